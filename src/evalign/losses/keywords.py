"""A sentence for the arguments of other libraries' losses that these do not have."""

from collections.abc import Iterable
from inspect import Parameter, signature
from typing import Any, Self

from evalign.core.checks import complaint
from evalign.core.text import nearest

OF_ROWS = "Weights of rows go into the call: loss(logits, target, sample_weight=...)."
ONE_NUMBER = "The loss is one number of the whole batch, with nothing to reduce."
OF_CLASSES = "Weights of classes are class_weight."
LOGITS = "Pass logits: the loss applies the softmax or sigmoid itself."
ELSEWHERE = {
    "weight": OF_ROWS,
    "pos_weight": OF_ROWS,
    "average": 'It is a part of the name of a metric, as in MetricLoss("f1_macro").',
    "include_background": "AlignedLoss, and metrics such as Jaccard, take labels=[1, 2, ...].",
    "num_classes": "The logits have a column for each class.",
    "from_logits": LOGITS,
    "softmax": LOGITS,
    "sigmoid": LOGITS,
    "reduction": ONE_NUMBER,
    "reduce": ONE_NUMBER,
    "size_average": ONE_NUMBER,
}


class KnownKeywords:
    """A base of losses that refuses unknown arguments of the constructor with the cure."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        known = signature(cls).parameters.values()
        if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known):
            refuse_unknown(cls.__name__, given, [parameter.name for parameter in known])
        return super().__new__(cls)


def refuse_unknown(owner: str, given: dict[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            cure = ELSEWHERE.get(name) or nearest(name, known)
            if name in ("weight", "pos_weight", "alpha") and "class_weight" in known:
                cure = f"{OF_CLASSES} {cure}".rstrip()
            allowed = f"be left out: it is not one of {', '.join(known)}"
            raise TypeError(complaint(owner, name, allowed, type(given[name]).__name__, cure))
