"""Which of two classes is the positive one."""

from collections.abc import Sequence
from typing import Any

from evalign.core.checks import require

# One of the first is positive by itself, where the other class is one of the second.
POSITIVE = (1, True)
NEGATIVE = (0, -1, False)
MOST_SHOWN = 8  # classes in an error


def known_positive(labels: Sequence[Any]) -> Any:
    """1 or True of two classes whose other one is 0, −1 or False; None for others."""
    for positive, other in (labels, labels[::-1]):
        if positive in POSITIVE and other in NEGATIVE:
            return positive
    return None


def place_of_positive(
    labels: Sequence[Any], pos_label: Any = None, order: Sequence[Any] | None = None
) -> int:
    """The place of the positive class of two: `pos_label`, else 1 or True, else the second.

    The second is that of `order`, which holds the same labels.
    """
    places = list(labels)
    if pos_label in places:
        return places.index(pos_label)
    ordered = places if order is None else list(order)
    known = known_positive(ordered) if len(ordered) == 2 else None
    return places.index(ordered[-1] if known is None else known)


def check_positive(owner: str, labels: Sequence[Any], pos_label: Any) -> None:
    """Refuse a positive class that is none of two classes."""
    require(
        pos_label is None or (len(labels) == 2 and pos_label in labels),
        owner,
        "pos_label",
        f"be None, or one of two classes; the classes are {list(labels)[:MOST_SHOWN]}",
        repr(pos_label),
    )
