"""The one file of the ground floor that recognises tensors and calls the upper floor."""

import sys
from collections.abc import Collection
from importlib.util import find_spec
from typing import Any


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None


def needs_torch(name: str) -> ImportError:
    """The error of a name that needs PyTorch, where that is missing."""
    return ImportError(f"{name} needs PyTorch: pip install 'evalign[torch]'")


def no_attribute(module: str, name: str, upper: Collection[str] = ()) -> Exception:
    """The error of a module's `__getattr__`: of a name of the `upper` floor, that it needs PyTorch.

    `hasattr` is false after an AttributeError alone, and an import statement keeps the text of an
    ImportError alone. So the error depends on who asks: `_handle_fromlist` is Python's own function
    for "from module import name".
    """
    if name not in upper:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    error = needs_torch(name)
    asked_by_import = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    return error if asked_by_import else AttributeError(str(error))


def aligned_classifier() -> Any:
    """The class `AlignedClassifier`, which trains a network."""
    if not has_torch():
        raise needs_torch("AlignedClassifier")
    from evalign.training.classifier import AlignedClassifier

    return AlignedClassifier
