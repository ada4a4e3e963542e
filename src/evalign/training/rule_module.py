"""A decision rule as a module, to ship with a network."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from evalign.decisions import formula

if TYPE_CHECKING:
    from evalign.decisions.rule import DecisionRule


class RuleModule(nn.Module):
    """A rule as a module from logits to label indices, made by `DecisionRule.as_module`.

    It computes in float64, by the formula of the rule, and compiles, exports and travels in a
    `state_dict`. A row with NaN or infinite logits gets the label −1, for all its labels in a
    multilabel problem.
    """

    gain: Tensor
    factor: Tensor
    offsets: Tensor

    def __init__(self, rule: "DecisionRule", probabilities: bool = False) -> None:
        super().__init__()
        offsets = [0.0] * len(rule.gain) if rule.offsets is None else rule.offsets
        numbers = {"gain": rule.gain, "factor": rule.factor, "offsets": offsets}
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        self.multilabel = rule.multilabel
        self.positive = rule.positive
        self.class_dim = rule.class_dim
        self.probabilities = probabilities

    def forward(self, logits: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        class_dim = self.class_dim
        if logits.ndim == 1:
            logits = logits.unsqueeze(1)
            class_dim = 1
        values = logits.double().movedim(class_dim, -1)
        flat = values.flatten(0, -2)
        task = {"multilabel": self.multilabel}
        rows = formula.log_odds(flat, **task, positive=self.positive)
        eta = formula.probabilities(rows, self.factor, self.offsets, **task)
        gains = formula.expected_gains(eta, self.gain, **task)
        labels = formula.with_none(formula.labels(gains, **task), flat, **task)
        labels = labels.reshape(*values.shape[:-1], *labels.shape[1:])
        labels = labels.movedim(-1, class_dim) if self.multilabel else labels
        if not self.probabilities:
            return labels
        eta = eta[..., 1] if self.multilabel else eta
        return labels, eta.reshape(*values.shape[:-1], -1).movedim(-1, class_dim)
