"""A fitted classifier as a folder without pickle, and as an ONNX file."""

import copy
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.decisions import DecisionRule
from evalign.estimator.network import build, find_device
from evalign.estimator.rows import OWNER
from evalign.training import CheckpointError, Standardizer, checkpoint

if TYPE_CHECKING:
    from evalign.estimator.classifier import AlignedClassifier

C = TypeVar("C", bound="AlignedClassifier")


def save(classifier: "AlignedClassifier", path: str | os.PathLike[str]) -> None:
    arguments = {name: _plain(value) for name, value in classifier.get_params().items()}
    functions = [name for name, value in arguments.items() if callable(value)]
    names = getattr(classifier, "feature_names_in_", None)
    tree = {
        "estimator": OWNER,
        "arguments": {k: v for k, v in arguments.items() if k not in functions},
        "functions": functions,
        "classes": classifier.classes_.tolist(),
        "classes_dtype": classifier.classes_.dtype.str,
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": None if names is None else names.tolist(),
        "network": classifier.network_.state_dict(),
        "standardizer": classifier._scaler.state_dict(),
        "rule": classifier.rule_.state_dict(),
        "history": classifier.history_,
        "seed": classifier._seed,
    }
    checkpoint.save(path, tree)


def load(cls: type[C], path: str | os.PathLike[str], arguments: dict[str, Any]) -> C:
    if (Path(path) / "run.json").exists():
        inside = Path(path) / "model"
        raise CheckpointError(f"{path} is a run of the command line. Its model is {inside}.")
    tree = checkpoint.load(path)
    if tree.get("estimator") != OWNER:
        raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
    for name in tree["functions"]:
        allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
        given = name in arguments or name == "on_epoch"
        require(given, f"{OWNER}.load", name, allowed, "none", cure)
    saved = tree["arguments"]
    if isinstance(saved["class_weight"], list):
        saved["class_weight"] = dict(saved["class_weight"])
    classifier = cls(**(saved | arguments))
    classifier.classes_ = np.array(tree["classes"], dtype=tree["classes_dtype"])
    classifier.n_features_in_ = tree["n_features_in"]
    if tree["feature_names_in"] is not None:
        classifier.feature_names_in_ = np.array(tree["feature_names_in"], dtype=object)
    classifier._seed = tree["seed"]
    network = build(
        classifier.network,
        classifier.n_features_in_,
        len(classifier.classes_),
        dropout=classifier.dropout,
        seed=classifier._seed,
    )
    try:
        network.load_state_dict(tree["network"])
    except RuntimeError as error:
        raise CheckpointError(f"The saved weights belong to another network: {error}") from None
    classifier.network_ = network.eval().to(find_device(classifier.device))
    classifier._scaler = Standardizer.from_state_dict(tree["standardizer"])
    metric = None if isinstance(classifier.metric, str) else classifier.metric
    classifier.rule_ = DecisionRule.from_state_dict(tree["rule"], metric=metric)
    classifier.history_ = tree["history"]
    return classifier


def export(classifier: "AlignedClassifier", path: str | os.PathLike[str]) -> None:
    program = torch.onnx.export(
        _Whole(classifier).cpu().eval(),
        (torch.zeros(2, classifier.n_features_in_),),
        input_names=["X"],
        output_names=["label", "probability", "score"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props["classes"] = json.dumps(classifier.classes_.tolist())
    program.save(path)


class _Whole(nn.Module):
    """All that `predict` does, as one module: what is exported."""

    mean: Tensor
    scale: Tensor
    offsets: Tensor
    gain: Tensor

    def __init__(self, classifier: "AlignedClassifier") -> None:
        super().__init__()
        self.network = copy.deepcopy(classifier.network_)
        rule = classifier.rule_
        none = torch.zeros(len(rule.gain), dtype=rule.gain.dtype)
        buffers = {"offsets": none if rule.offsets is None else rule.offsets, "gain": rule.gain}
        for name, value in (classifier._scaler.state_dict() | buffers).items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.network(((x.double() - self.mean) / self.scale).float()).double()
        probability = (logits + self.offsets).softmax(1)
        score = probability @ self.gain
        return score.argmax(1), probability, score


def _plain(value: Any) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, dict):  # whose keys may be numbers
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value.item() if isinstance(value, np.generic) else value
