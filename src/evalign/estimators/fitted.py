"""`FittedClassifier`: the result of a fit, which is saved, loaded and exported."""

import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.decisions import DecisionRule
from evalign.estimators.network import BLOCK, Factory, blockwise
from evalign.estimators.rows import OWNER, dense, network_input
from evalign.estimators.scaling import QuantileNormal, Standardizer
from evalign.tables.features import Features
from evalign.training import History


@dataclass(frozen=True, eq=False)
class FittedClassifier:
    """A trained network, with the columns and the scaling before it and the rule after it.

    Args:
        network: gives logits (n, n_classes).
        scaler: made of the training rows.
        rule: from logits to labels.
        classes: the labels, sorted; if multilabel, the numbers of their columns.
        features: what was learned about the columns.
        history: a record per epoch.
        seed: of the split and of training.
        kind: the classifier's argument `network`.
    """

    network: nn.Module
    scaler: Standardizer | QuantileNormal
    rule: DecisionRule
    classes: np.ndarray
    features: Features
    history: History
    seed: int
    kind: str | Factory

    @property
    def multilabel(self) -> bool:
        """Whether a row may have several labels."""
        return self.rule.task == "multilabel"

    def probabilities(self, X: Any) -> Tensor:
        """Probabilities (n, n_classes) of rows of the matrix, dense or sparse, in float64.

        If multilabel, (n, n_labels, 2): of each label's absence, and of the label.
        """
        device = next(self.network.parameters()).device
        blocks = (dense(X[i : i + BLOCK]) for i in range(0, X.shape[0], BLOCK))
        inputs = (network_input(block, self.scaler) for block in blocks)
        logits = torch.cat([blockwise(self.network, block, device) for block in inputs])
        if not self.multilabel:
            return self.rule.probabilities(logits)
        finite, cure = bool(logits.isfinite().all()), "Lower learning_rate, and fit again."
        require(finite, OWNER, "network", "give finite logits", "others", cure)
        return self.rule.softmax(logits)

    def on_cpu(self) -> Self:
        """A copy that can be loaded without a GPU."""
        return replace(self, network=copy.deepcopy(self.network).cpu())

    def state_dict(self) -> dict[str, Any]:
        """What is saved; see `storage.rebuilt`."""
        parts = ("features", "scaler", "rule", "classes", "history", "seed")
        return {name: getattr(self, name) for name in parts} | {
            "network": self.network.state_dict()
        }
