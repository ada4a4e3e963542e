"""A fitted classifier of numbers as a module, to compile or export."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.tables.columns import NumberColumn
from evalign.training.classifier_rows import OWNER


class RowsToLabels(nn.Module):
    """The whole of `predict`, made by `AlignedClassifier.as_module`, on the CPU."""

    fill: Tensor

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        features = classifier.features_
        columns = [column for column in features.columns if isinstance(column, NumberColumn)]
        ok = len(columns) == len(features.columns)
        allowed, cure = "be fitted on numbers alone", "Encode it by FrameEncoder before fit."
        require(ok, f"{OWNER}.as_module", "classifier", allowed, "other columns", cure)
        self.used = [features.given.index(column.name) for column in columns]
        self.flagged = [place for place, column in enumerate(columns) if column.gaps]
        fill = torch.tensor([column.fill for column in columns], dtype=torch.float64)
        self.register_buffer("fill", fill)
        self.scaler, self.network = classifier._scaler, classifier.__getstate__()["network_"]
        self.back = np.argsort(classifier._places).tolist()
        self.rule = classifier.rule_.as_module(probabilities=True)

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        X = X[:, self.used].double()
        gaps = X.isnan()
        rows = torch.cat([torch.where(gaps, self.fill, X), gaps[:, self.flagged].double()], 1)
        logits = self.network(self.scaler(rows).float())[:, self.back]
        labels, probabilities = self.rule(logits)
        finite = rows.isfinite().all(1, keepdim=True)  # a graph cannot refuse a row
        labels = torch.where(finite if labels.ndim == 2 else finite.squeeze(1), labels, -1)
        return labels, torch.where(finite, probabilities, torch.nan)
