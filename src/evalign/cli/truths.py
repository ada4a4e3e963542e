"""Truth values that are text, as CSV has them: TRUE, True or true, by whom it was written.

Texts here are arrays of Arrow, in one or several chunks.
"""

from typing import Any

import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

TRUTHS = ("false", "true")


def spelling(texts: Any) -> list[str] | None:
    """How texts spell false and true; None if they do not, or in several ways."""
    levels = texts.unique()
    known = [levels.filter(pc.equal(_plain(levels), truth)).to_pylist() for truth in TRUTHS]
    if not any(known) or max(map(len, known)) > 1:
        return None
    return [
        found[0] if found else truth.title() for found, truth in zip(known, TRUTHS, strict=True)
    ]


def respelled(texts: Any, pair: list[str]) -> Any:
    """The texts, in which false and true are spelled as in the pair."""
    for truth, spelled in zip(TRUTHS, pair, strict=True):
        texts = pc.if_else(pc.equal(_plain(texts), truth), spelled, texts)
    return texts


def _plain(texts: Any) -> Any:
    return pc.utf8_lower(pc.utf8_trim_whitespace(texts))
