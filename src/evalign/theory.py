"""The public name of `evalign.core.theory`."""

from evalign.core.theory import *  # noqa: F403
from evalign.core.theory import __all__ as __all__
