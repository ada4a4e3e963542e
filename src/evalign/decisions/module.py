"""The formula from logits to labels, in tensors alone, and a module of it to ship with a network.

Nothing here branches on values: the module compiles, exports and travels in a `state_dict`.
"""

from typing import Any

import torch
from torch import Tensor, nn


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
    logits gets the label −1, for all its labels in a multilabel problem.
    """

    gain: Tensor
    factor: Tensor
    offsets: Tensor

    def __init__(self, rule: Any, probabilities: bool = False) -> None:
        super().__init__()
        gain = rule.gain.detach().double()
        offsets = torch.zeros(len(gain)) if rule.offsets is None else rule.offsets.detach()
        self.register_buffer("gain", gain)
        self.register_buffer("factor", gain.new_tensor(rule.factor))
        self.register_buffer("offsets", offsets.to(gain))
        self.multilabel, self.class_dim = rule.multilabel, rule.class_dim
        self.probabilities = probabilities

    def softmax(self, logits: Tensor) -> Tensor:
        """η (N, C) of finite logits (N, C); (N, L, 2) if multilabel: of absence and of presence."""
        rows = self.factor * logits + self.offsets
        if self.multilabel:
            return torch.stack([-rows, rows], -1).sigmoid()
        return rows.softmax(1)

    def scores_of(self, eta: Tensor) -> Tensor:
        """The expected gains Σ_y η_y G[y, j] of labels (N, C); of presence (N, L) if multilabel."""
        if not self.multilabel:
            return eta @ self.gain
        absent, present = (eta.unsqueeze(-2) @ self.gain).squeeze(-2).unbind(-1)
        return present - absent

    def labels_of(self, eta: Tensor) -> Tensor:
        """The labels (N,) of the largest scores; if multilabel (N, L), 1 for a positive score."""
        scores = self.scores_of(eta)
        return (scores > 0).long() if self.multilabel else scores.argmax(1)

    def forward(self, logits: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        many, dim = self.multilabel, self.class_dim
        if logits.ndim == 1:
            logits, dim = logits.unsqueeze(1), 1
        values = logits.double().movedim(dim, -1)
        flat = values.flatten(0, -2)
        eta = self.softmax(log_odds(flat, multilabel=many))
        finite = flat.isfinite().all(1, keepdim=many)
        labels = torch.where(finite, self.labels_of(eta), -1)
        labels = labels.reshape(*values.shape[:-1], *labels.shape[1:])
        labels = labels.movedim(-1, dim) if many else labels
        if not self.probabilities:
            return labels
        eta = eta[..., 1] if many else eta
        return labels, eta.reshape(*values.shape[:-1], -1).movedim(-1, dim)
