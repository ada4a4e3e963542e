"""Helpers for messages: escaping, plurals, lists, suggestions. Imports nothing slow."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from shlex import quote

# ASCII and Latin-1 controls, line separators, the marks that turn the direction of writing, and
# halves of characters, which no file can hold: a name of a file that is not UTF-8 has them.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """Escape control characters, except those in `keep`.

    A name in a table may hold terminal commands, which would run when it is printed.
    """

    def escape(found: re.Match[str]) -> str:
        character = found[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return CONTROL.sub(escape, text)


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
