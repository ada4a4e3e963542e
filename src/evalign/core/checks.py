"""Error messages, and checks of single arguments."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from evalign.core import stairs


def complaint(owner: str, argument: str, allowed: str, got: object, cure: str = "") -> str:
    """The text of an error: whose argument it is, what is allowed, what was given, and the cure."""
    return f"{argument} of {owner} must {allowed}. Got {got}.{' ' + cure if cure else ''}"


_everywhere = ContextVar("checked", default=False)


@contextmanager
def checked() -> Iterator[None]:
    """Check values also where reading them synchronises the device, and that logits are finite."""
    before = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(before)


def within_checked() -> bool:
    """Whether the call is made within `checked`."""
    return _everywhere.get()


def require(ok: bool, owner: str, argument: str, allowed: str, got: object, cure: str = "") -> None:
    """Raise the complaint as a ValueError unless `ok`."""
    if not ok:
        raise ValueError(complaint(owner, argument, allowed, got, cure))


def refuse_masked(owner: str, argument: str, values: object) -> None:
    """Refuse masked numpy cells, whose hidden values would be taken for data."""
    number = np.ma.count_masked(values) if isinstance(values, np.ma.MaskedArray) else 0
    cure = "Fill them, or leave these rows out."
    require(not number, owner, argument, "be without masked cells", f"{number} of them", cure)


def check_ignored(owner: str, ignore_index: int) -> None:
    """Check that `ignore_index` is not itself a label, where labels are 0 and 1."""
    allowed = "be neither 0 nor 1 for a float or multilabel target, which holds them"
    cure = "Mark what to leave out by another value, such as -100."
    require(ignore_index not in (0, 1), owner, "ignore_index", allowed, ignore_index, cure)


def numbers(value: object) -> np.ndarray:
    """A float64 copy; empty if the value does not hold numbers."""
    if np.ma.is_masked(value):
        return np.zeros(0)
    try:
        array = np.asarray(stairs.as_numpy(value))
        # Text that looks like numbers is none.
        return array.astype(np.float64) if array.dtype.kind in "biufO" else np.zeros(0)
    except (TypeError, ValueError, OverflowError):  # strings, ragged lists, 10**400
        return np.zeros(0)
