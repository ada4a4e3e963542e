"""The public name of `evalign.core.metrics`."""

from evalign.core.metrics import *  # noqa: F403
from evalign.core.metrics import __all__ as __all__
