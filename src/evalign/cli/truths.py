"""Truth values that are text, as CSV has them: TRUE, True, true or 1, by whom it was written.

Texts here are arrays of Arrow, in one or several chunks.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

TRUTHS = ("false", "true")
DIGITS = (["0", "0.0"], ["1", "1.0"])  # as others write them; with points beside gaps


def spelling(texts: Any) -> list[str] | None:
    """How texts spell false and true; None if they do not, or in several ways."""
    levels = texts.unique()
    if pc.any(pc.is_in(_plain(levels), value_set=pa.array([*DIGITS[0], *DIGITS[1]]))).as_py():
        return None  # beside the words they mean something else
    known = [levels.filter(pc.equal(_plain(levels), truth)).to_pylist() for truth in TRUTHS]
    if not any(known) or max(map(len, known)) > 1:
        return None
    return [
        found[0] if found else truth.title() for found, truth in zip(known, TRUTHS, strict=True)
    ]


def respelled(texts: Any, pair: list[str]) -> Any:
    """The texts, in which false and true, or 0 and 1, are spelled as in the pair."""
    for truth, digits, spelled in zip(TRUTHS, DIGITS, pair, strict=True):
        same = pc.is_in(_plain(texts), value_set=pa.array([truth, *digits]))
        texts = pc.if_else(same, spelled, texts)
    return texts


def _plain(texts: Any) -> Any:
    return pc.utf8_lower(pc.utf8_trim_whitespace(texts))
