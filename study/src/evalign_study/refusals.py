"""Errors of one shape: what is wrong, what is allowed, what came, and the cure."""

from collections.abc import Iterable
from difflib import get_close_matches


def require(ok: bool, owner: str, argument: str, allowed: str, got: object, cure: str = "") -> None:
    """Raise a ValueError of this shape unless `ok`."""
    if not ok:
        end = f" {cure}" if cure else ""
        raise ValueError(f"{argument} of {owner} must {allowed}. Got {got}.{end}")


def nearest(name: object, known: Iterable[str]) -> str:
    """Suggest the closest known name for a misspelt one; "" if none is close."""
    names = {each.casefold(): each for each in known}
    close = get_close_matches(str(name).casefold(), names, n=1)
    return f"Did you mean {names[close[0]]!r}?" if close else ""


def installing(what: str) -> str:
    """Say how to install a missing package."""
    return f"Run in the clone of evalign: pip install -e {what}"
