"""Export a fitted classifier as an ONNX file."""

import copy
import json
import os
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.estimators.rows import OWNER, network_input
from evalign.tables.columns import (
    BooleanColumn,
    CategoryColumn,
    DateColumn,
    LearntColumn,
    NumberColumn,
    calendar,
)
from evalign.tables.features import Features

OUTPUTS = ["label", "probability", "score"]
INSIDE = "evalign/"  # prefix of all names but those of inputs and outputs
NO_DATE = int(np.datetime64("NaT", "us").astype(np.int64))


def export(path: str | os.PathLike[str], classifier: Any) -> None:
    """Write one module from raw rows to labels, with the classes in the file's metadata.

    An array is one input; of a frame, each column is one.
    """
    import onnx
    from onnx import compose, helper

    inputs = _inputs(classifier.features_)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "# The axis name: n", UserWarning)  # one for all inputs
        # torch's own, of how it copies its modules.
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        program = torch.onnx.export(
            _RowsToLabels(copy.copy(classifier)).eval(),  # on the CPU
            tuple(example for example, _ in inputs.values()),
            input_names=[f"input {place}" for place in range(len(inputs))],
            output_names=OUTPUTS,
            dynamic_shapes=(({0: torch.export.Dim("n")},) * len(inputs),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    # Inside, names of torch's choice could be those of columns.
    model = compose.add_prefix(program.model_proto, INSIDE, rename_outputs=False)
    graph = model.graph
    within = [value.name for value in graph.input]
    del graph.input[:]
    for (name, (example, kind)), inner in zip(inputs.items(), within, strict=True):
        shape = ["n", *example.shape[1:]]
        if isinstance(kind, CategoryColumn):
            graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.STRING, shape))
            graph.node.insert(0, _coded(helper, name, inner, kind))
        else:
            number = helper.np_dtype_to_tensor_dtype(example.numpy().dtype)
            graph.input.append(helper.make_tensor_value_info(name, number, shape))
            graph.node.insert(0, helper.make_node("Identity", [name], [inner]))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))  # of LabelEncoder
    targets = classifier._targets
    labels = targets.columns or targets.ordered.tolist()
    model.metadata_props.add(key="classes", value=json.dumps(labels))
    onnx.save(model, os.fspath(path))


class _RowsToLabels(nn.Module):
    """The whole of `predict`. A graph cannot refuse a row: an infinite one gets no label."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.network, self.classifier = classifier.network_, classifier

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rule, features = self.classifier.rule_, self.classifier.features_
        many = self.classifier._targets.multilabel
        X = _of_array(features, inputs[0]) if _is_array(features) else _of_columns(features, inputs)
        logits = self.network(network_input(X, self.classifier._scaler)).double()
        probability = rule.softmax(logits)
        label, score = rule.labels_of(probability), rule.scores_of(probability)
        if many:
            probability = probability[..., 1]
        usable = X.isfinite().all(1)
        of_row = usable.unsqueeze(1)
        label = torch.where(of_row if many else usable, label, -1)
        return (
            label,
            torch.where(of_row, probability, torch.nan),
            torch.where(of_row, score, torch.nan),
        )


def _is_array(features: Features) -> bool:
    numbers = all(isinstance(column, NumberColumn) for column in features.columns)
    return numbers and not features.named


def _inputs(features: Features) -> dict[str, tuple[Tensor, LearntColumn | None]]:
    """An example of each input by its name, and its column."""
    if _is_array(features):
        return {"X": (torch.zeros(2, len(features.given)), None)}
    taken = [column.name for column in features.columns if column.name in OUTPUTS]
    cure = "Rename it, because it is an output of the file."
    require(not taken, f"{OWNER}.export", "features", "have other names", taken, cure)
    whole = CategoryColumn | DateColumn  # by a code, or in microseconds
    inputs = {}
    for column in features.columns:
        kind = torch.int64 if isinstance(column, whole) else torch.float64
        inputs[column.name] = torch.zeros(2, 1, dtype=kind), column
    return inputs


def _coded(helper: Any, name: str, inner: str, column: CategoryColumn) -> Any:
    """The node from text to the position of its flag. An empty text is missing."""
    codes = column.codes
    return helper.make_node(
        "LabelEncoder",
        [name],
        [inner],
        domain="ai.onnx.ml",
        keys_strings=["" if level is None else level for level in codes],
        values_int64s=list(codes.values()),
        default_int64=column.other,
    )


def _of_array(features: Features, X: Tensor) -> Tensor:
    """The matrix of an array of numbers, see `Features.matrix`."""
    columns = [column for column in features.columns if isinstance(column, NumberColumn)]
    used = [features.given.index(column.name) for column in columns]
    X, fill = X[:, used], torch.tensor([column.fill for column in columns], dtype=torch.float64)
    flagged = X[:, [place for place, column in enumerate(columns) if column.gaps]].isnan()
    return torch.cat([torch.where(X.isnan(), fill, X.double()), flagged.double()], 1)


def _of_columns(features: Features, inputs: tuple[Tensor, ...]) -> Tensor:
    """The matrix of a frame, of a tensor (n, 1) for each column, see `Features.matrix`."""
    numbers: list[Tensor] = []
    flags: list[Tensor] = []
    for column, x in zip(features.columns, inputs, strict=True):
        if isinstance(column, CategoryColumn):
            flags.append(x == torch.arange(len(column.flag_names)))
            continue
        gap = x == NO_DATE if isinstance(column, DateColumn) else x.isnan()
        if isinstance(column, NumberColumn):
            numbers.append(torch.where(gap, column.fill, x))
        elif isinstance(column, BooleanColumn):
            flags.append(x == 1)
        else:
            found = calendar(x.double())  # the quotient of integers would be float32
            pairs = zip(column.parts, column.fill, strict=True)
            numbers += [torch.where(gap, fill, found[part].double()) for part, fill in pairs]
        flags += [gap] if column.gaps else []
    return torch.cat([part.double() for part in (*numbers, *flags)], 1)
