"""Helpers for messages and JSON: escaping, plurals, lists, suggestions. Imports nothing slow."""

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Any

# ASCII and Latin-1 controls, line separators, the marks that turn the direction of writing, and
# halves of characters, which no file can hold: a name of a file that is not UTF-8 has them.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Escape control characters.

    A name in a table may hold terminal commands, which would run when it is printed.
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain(value: Any) -> Any:
    """A value as JSON holds it in every language: lists for arrays, null for NaN and infinities."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def installing(what: str) -> str:
    """How to install a missing package, in the words of the README."""
    return f"Run in the clone of evalign: pip install -e {quote(what)}"


def counted(number: int, thing: str = "row") -> str:
    """A number and its noun, in the plural where it needs one: "1 row", "2,000 rows"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def listed(names: Sequence[str], most: int = 8) -> str:
    """Write names as part of a sentence: the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def nearest(name: object, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name: the closest known one, or "" if none is close."""
    names = {each.casefold(): each for each in known}
    close = get_close_matches(str(name).casefold(), names, n=1)
    return f"Did you mean {names[close[0]]!r}?" if close else ""
