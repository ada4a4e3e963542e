"""A fitted classifier as an ONNX file."""

import json
import os

import torch
from torch import Tensor, nn

from evalign.estimator.rows import network_input
from evalign.estimator.state import Fitted


def export(path: str | os.PathLike[str], fitted: Fitted) -> None:
    """Write one module from raw rows to labels, with the classes in the file's metadata."""
    program = torch.onnx.export(
        _RowsToLabels(fitted.on_cpu()).eval(),
        (torch.zeros(2, fitted.n_features),),
        input_names=["X"],
        output_names=["label", "probability", "score"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props["classes"] = json.dumps(fitted.classes.tolist())
    program.save(path)


class _RowsToLabels(nn.Module):
    """All that `predict` does. A graph refuses no row: one that is not finite gets no label."""

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        self.network, self.fitted = fitted.network, fitted

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rule = self.fitted.rule
        logits = self.network(network_input(X, self.fitted.scaler)).double()
        probability = rule.softmax(logits)
        usable = X.isfinite().all(1)
        label = torch.where(usable, rule.labels_of(probability), -1)
        probability = torch.where(usable.unsqueeze(1), probability, torch.nan)
        return label, probability, rule.scores_of(probability)
