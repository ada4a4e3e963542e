"""Text that a terminal or a page can show as it is. Imports nothing slow."""

import re

# ASCII and Latin-1 controls, line separators, and the marks that turn the direction of writing.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str, keep: str = "") -> str:
    r"""The text with control characters, but those to keep, written out.

    A name in a table may hold a terminal's commands, which would be obeyed when it is printed.

    Examples:
        >>> visible("red\x1b[31m")
        'red\\x1b[31m'
    """

    def escape(found: re.Match[str]) -> str:
        character = found[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return CONTROL.sub(escape, text)
