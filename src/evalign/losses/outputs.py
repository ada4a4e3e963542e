"""Read logits from the outputs of Hugging Face models.

Their Trainer calls a loss as `loss(output, labels, num_items_in_batch=...)`. By their convention
the classes of tokens (N, T, C) come last, those of pixels (N, C, h, w) do not, and the logits of
pixels may be coarser than the labels.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.core.arrays import safe_ratio
from evalign.core.checks import complaint


def logits_of(output: Any) -> Tensor:
    """The logits of a model's output: an object or a dict with that name, or a tuple's first."""
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(output, list | tuple) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        allowed = "be a tensor, have one named logits, or begin with it"
        got = [*output] if isinstance(output, Mapping) else type(output).__name__
        raise TypeError(complaint("a model", "output", allowed, got))
    return found


def classes_second(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and labels with the classes in dimension 1, and as many pixels as there are labels."""
    if logits.ndim == 3:
        return logits.mT, labels.mT if labels.shape == logits.shape else labels
    pixels = labels.shape[-2:]
    if logits.ndim == 4 and logits.shape[-2:] != pixels:
        logits = F.interpolate(logits, size=pixels, mode="bilinear", align_corners=False)
    return logits, labels


def share_of_step(labels: Tensor, num_items: Tensor | int | None) -> Tensor:
    """These labels as a share of the step's, by which Trainer expects a loss to be scaled.

    It adds up what micro-batches return, and multiplies by the number of processes.
    """
    items = labels.ne(-100).sum().double()
    of = items if num_items is None else torch.as_tensor(num_items, device=items.device).double()
    return safe_ratio(items, of, 1.0)
