"""Rows that do not count, labels that are no class, orders swapped, probabilities for logits."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score, matthews_corrcoef
from torch import Tensor

import evalign
from attacks.calls import BINARY, CLASSES, MULTICLASS, ROWS, judged, rows
from attacks.judge import Case, one_sentence
from evalign import Confusion, fit_decision
from evalign.decisions import DecisionFitter

IGNORED = -100
ODD = (math.nan, -math.inf, math.inf, 3e38)
SCORES = {
    "f1_macro": lambda y, given: f1_score(y, given, average="macro"),
    "matthews_corrcoef": matthews_corrcoef,
}


def refused(act: Callable[[], object], *words: str) -> str | None:
    """Why an act was not refused in one sentence with these words, or None."""
    try:
        found = act()
    except (ValueError, TypeError) as error:
        lacks = [word for word in words if word not in str(error)]
        return one_sentence(error) or (f"no {lacks} in {str(error)!r}" if lacks else None)
    return f"it was taken: {str(found)[:100]}"


def masked_rows(rng: Any) -> Iterator[Case]:
    """Ignored rows may hold anything, as padded tokens do, and rows of weight 0 minus infinity.

    It is as if they were absent.
    """

    def as_absent(make: Any, z: Tensor, y: Tensor, keep: Tensor, way: str) -> str | None:
        tokens, more = way == "tokens", {}
        whole = (z.T.unsqueeze(0), y.unsqueeze(0)) if tokens else (z, y)
        if way == "weight 0":
            more["sample_weight"] = keep.float()
        found, expected = judged(make, *whole, **more), judged(make, z[keep], y[keep])
        if isinstance(found, str) or isinstance(expected, str):
            return None if found == expected == "refused" else f"{found}, not {expected}"
        gradient = found[1][0].T if tokens else found[1]
        if not math.isclose(found[0], expected[0], rel_tol=1e-5, abs_tol=1e-6):
            return f"the loss is {found[0]}, not {expected[0]}"
        if not torch.allclose(gradient[keep], expected[1], rtol=1e-4, atol=1e-6):
            return "the gradient of the other rows has changed"
        return None if (gradient[~keep] == 0).all() else "an ignored row has a gradient"

    smoothed = {"smoothed": lambda: evalign.AlignedLoss("f1_macro", label_smoothing=0.1)}
    for binary in (False, True):
        for name, make in (BINARY if binary else MULTICLASS | smoothed).items():
            ways = [("rows", value) for value in ODD] + [("weight 0", -math.inf)]
            for way, value in ways + ([] if binary else [("tokens", value) for value in ODD]):
                logits, target = rows(rng, binary)
                keep = torch.from_numpy(rng.random(ROWS) < 0.7)
                keep[:3] = torch.tensor([True, True, False])
                target[:2] = torch.tensor([0, 1])
                logits[~keep] = value
                if way != "weight 0":
                    target[~keep] = IGNORED
                yield Case(
                    f"{name}: {value}, {way}",
                    lambda m=make, z=logits, y=target, k=keep, w=way: as_absent(m, z, y, k, w),
                )


def score_order(rng: Any) -> Iterator[Case]:
    """By place the true labels may be taken for the predicted ones, so it is refused."""
    score: Any = evalign.score
    for number in range(30):
        y, given = rng.integers(CLASSES, size=(2, 40))
        y[:CLASSES] = np.arange(CLASSES)
        name = str(rng.choice(list(SCORES)))

        def right(y: Any = y, given: Any = given, name: str = name) -> str | None:
            found, expected = evalign.score(name, y_true=y, y_pred=given), SCORES[name](y, given)
            same = math.isclose(found, expected, abs_tol=1e-9)
            return None if same else f"{found}, not {expected}"

        by_place = [(given, y), (y.tolist(), given.tolist())]
        for a, b in by_place:
            yield Case(
                f"{name} by place #{number}",
                lambda a=a, b=b, n=name: refused(lambda: score(n, a, b)),
            )
        yield Case(f"{name} by name #{number}", right)


def odd_labels(rng: Any) -> Iterator[Case]:
    """A label that is no class is refused, or left out where it is said to be ignored."""
    for odd in (CLASSES, 255, -1, IGNORED, 2**31, 2**62):
        for side in ("y_true", "y_pred"):
            labels = {name: rng.integers(CLASSES, size=40) for name in ("y_true", "y_pred")}
            labels["y_true"][:CLASSES] = np.arange(CLASSES)
            labels[side] = labels[side].copy()
            labels[side][-3:] = odd
            known = [*range(CLASSES)]
            yield Case(
                f"score {odd} in {side}",
                lambda given=labels, k=known: refused(
                    lambda: evalign.score("f1_macro", classes=k, **given)
                ),
            )
            given, true = (torch.from_numpy(labels[name]) for name in ("y_pred", "y_true"))
            if side == "y_pred" or odd != IGNORED:  # which a target may hold
                yield Case(
                    f"Confusion {odd} in {side}",
                    lambda a=given, b=true: refused(
                        lambda: Confusion.from_predictions(a, b, num_classes=CLASSES)
                    ),
                )
                if odd != IGNORED:
                    yield Case(
                        f"Confusion {odd} in {side}, no classes named",
                        lambda a=given, b=true: (
                            None
                            if a.max() == CLASSES or b.max() == CLASSES  # perhaps a fifth class
                            else refused(lambda: Confusion.from_predictions(a, b))
                        ),
                    )
            if side == "y_true":

                def left_out(labels: Any = labels, odd: int = odd) -> str | None:
                    found = evalign.score("f1_macro", ignore_index=odd, **labels)
                    kept = labels["y_true"] != odd
                    expected = SCORES["f1_macro"](labels["y_true"][kept], labels["y_pred"][kept])
                    tensors = (torch.from_numpy(labels[name]) for name in ("y_pred", "y_true"))
                    c = Confusion.from_predictions(*tensors, ignore_index=odd, num_classes=CLASSES)
                    hard = evalign.metrics.resolve("f1_macro")(c).item()
                    same = math.isclose(found, expected) and math.isclose(hard, expected)
                    return None if same else f"{found} and {hard}, not {expected}"

                yield Case(f"{odd} ignored", left_out)


def probabilities(rng: Any) -> Iterator[Case]:
    """Probabilities of several classes where logits belong, by every door."""
    how = {"metric": "f1_macro"}
    for number in range(10):
        z = torch.from_numpy(rng.normal(size=(60, CLASSES)) * rng.uniform(0.5, 4))
        y = torch.from_numpy(rng.integers(CLASSES, size=60))
        y[:CLASSES] = torch.arange(CLASSES)
        p = z.softmax(1)
        doors: dict[str, Callable[[], object]] = {
            name: lambda m=make, p=p, y=y: m()(p.clone().requires_grad_(), y)
            for name, make in MULTICLASS.items()
        }
        doors |= {
            "fit_decision": lambda p=p, y=y: fit_decision(p, y, **how),
            "rule": lambda p=p, z=z, y=y: fit_decision(z, y, **how)(p),
            "rule, NumPy": lambda p=p, z=z, y=y: fit_decision(z, y, **how)(p.numpy()),
            "DecisionFitter": lambda p=p, y=y: DecisionFitter(**how).update(p, y),
        }
        for door, act in doors.items():
            yield Case(f"{door} #{number}", lambda act=act: refused(act, "probabilities"))

    def taken(act: Callable[[], Any]) -> str | None:
        act()
        return None

    for number in range(10):  # the same numbers by the argument that is theirs
        z = torch.from_numpy(rng.normal(size=(60, CLASSES)))
        y = torch.from_numpy(rng.integers(CLASSES, size=60))
        p = z.softmax(1)
        yield Case(
            f"by name #{number}",
            lambda p=p, y=y: taken(
                lambda: fit_decision(y=y, probabilities=p, **how)(probabilities=p)
            ),
        )


ATTACKS = {
    "loss calls: ignored rows hold anything": masked_rows,
    "score: order of its labels": score_order,
    "score and Confusion: labels that are no class": odd_labels,
    "probabilities in the place of logits": probabilities,
}
