"""Warnings about training that goes wrong, each with a cure.

They depend on the history alone, so a resumed run warns as an uninterrupted one.
"""

import math
from typing import Any

COLLAPSED_EPOCHS = 5
VANISHED_EPOCHS = 3
VANISHED_NORM = 1e-7


def new_advice(history: list[dict[str, Any]]) -> dict[str, str]:
    """Warnings, by kind, that the last record of the history is the first to give."""
    found, last = {}, history[-1]
    if not math.isfinite(last["validation_loss"]):
        found["diverged"] = (
            f"The validation loss is {last['validation_loss']}; training stops here. Lower the "
            "learning rate, set clip_norm, or look for such values in the data."
        )
    recent = history[-COLLAPSED_EPOCHS:]
    if len(recent) == COLLAPSED_EPOCHS and all(record["collapsed"] for record in recent):
        found["collapsed"] = (
            f"All validation rows were predicted as one class for {COLLAPSED_EPOCHS} epochs. A "
            "class may be too rare: give more rows of it. A loss without cross-entropy may "
            "collapse, too: use AlignedLoss, the recipe aligned."
        )
    recent = history[-VANISHED_EPOCHS:]
    flat = all(r["gradient_norm"] < VANISHED_NORM and r["loss"] > 0.01 for r in recent)
    if len(recent) == VANISHED_EPOCHS and flat:
        found["vanished"] = (
            f"The gradient has been below {VANISHED_NORM:g} for {VANISHED_EPOCHS} epochs although "
            f"the loss is {last['loss']:.3g}. Use a higher temperature, a lower learning rate, "
            "standardised inputs, or AlignedLoss (the recipe aligned), which keeps a cross-entropy "
            "term."
        )
    said = {kind for past in history[:-1] for kind in past["warnings"]}
    return {kind: text for kind, text in found.items() if kind not in said}
