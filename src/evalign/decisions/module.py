"""The formula from logits to labels, in tensors alone, and a module of it to ship with a network.

Nothing here branches on values: the module compiles, exports and travels in a `state_dict`.
"""

import torch
from torch import Tensor, nn


def calibrated(logits: Tensor, factor: float | Tensor, offsets: Tensor | None) -> Tensor:
    """factor·logits + offsets, of rows (N, C)."""
    scaled = factor * logits
    return scaled if offsets is None else scaled + offsets.to(logits.device)


def probabilities_of(logits: Tensor, *, multilabel: bool) -> Tensor:
    """η (N, C) of calibrated logits; (N, L, 2) if multilabel: of absence and of presence."""
    if multilabel:
        return torch.stack([-logits, logits], -1).sigmoid()
    return logits.softmax(1)


def scores_of(eta: Tensor, gain: Tensor, *, multilabel: bool) -> Tensor:
    """The expected gains Σ_y η_y G[y, j] of labels (N, C); of presence (N, L) if multilabel."""
    gain = gain.to(eta.device)
    if not multilabel:
        return eta @ gain
    absent, present = (eta.unsqueeze(-2) @ gain).squeeze(-2).unbind(-1)
    return present - absent


def labels_of(scores: Tensor, *, multilabel: bool) -> Tensor:
    """The labels (N,) of the largest scores; if multilabel (N, L), 1 where a score is positive."""
    return (scores > 0).long() if multilabel else scores.argmax(1)


def log_odds(logits: Tensor, *, multilabel: bool) -> Tensor:
    """Rows (N, C) with maximum 0, of (N, C) or of one logit (N, 1); unchanged if multilabel."""
    if multilabel:
        return logits
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits - logits.amax(1, keepdim=True)


class RuleModule(nn.Module):
    """A rule as a module from logits to label indices, made by `DecisionRule.as_module`.

    It computes in float64, so that its labels are those of the rule. A row with NaN or infinite
    logits gets the label −1, and in a multilabel problem all its labels do.

    Args:
        gain: G of the rule.
        factor: multiplies the logits.
        offsets: added to them, one for each class or label.
        multilabel: whether each column is a label of its own.
        class_dim: the dimension of the classes.
        probabilities: whether to return labels and probabilities, instead of labels.
    """

    gain: Tensor
    factor: Tensor
    offsets: Tensor

    def __init__(
        self,
        gain: Tensor,
        factor: float,
        offsets: Tensor | None,
        multilabel: bool,
        class_dim: int,
        probabilities: bool = False,
    ) -> None:
        super().__init__()
        gain = gain.detach().clone().double()
        self.register_buffer("gain", gain)
        self.register_buffer("factor", gain.new_tensor(factor))
        own = torch.zeros(len(gain)) if offsets is None else offsets.detach().clone()
        self.register_buffer("offsets", own.to(gain))
        self.multilabel, self.class_dim, self.probabilities = multilabel, class_dim, probabilities

    def forward(self, logits: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        many, dim = self.multilabel, self.class_dim
        if logits.ndim == 1:
            logits, dim = logits.unsqueeze(1), 1
        values = logits.double().movedim(dim, -1)
        flat = values.flatten(0, -2)
        rows = calibrated(log_odds(flat, multilabel=many), self.factor, self.offsets)
        eta = probabilities_of(rows, multilabel=many)
        labels = labels_of(scores_of(eta, self.gain, multilabel=many), multilabel=many)
        finite = flat.isfinite().all(1, keepdim=many)
        labels = torch.where(finite, labels, -1).reshape(*values.shape[:-1], *labels.shape[1:])
        labels = labels.movedim(-1, dim) if many else labels
        if not self.probabilities:
            return labels
        eta = eta[..., 1] if many else eta
        return labels, eta.reshape(*values.shape[:-1], -1).movedim(-1, dim)
