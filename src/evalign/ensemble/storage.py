"""Save and load a fitted ensemble as a folder without pickle.

| in it              | holds                                                                  |
| ------------------ | ---------------------------------------------------------------------- |
| `ensemble/`        | arguments, rules, results, SHA-256 of the files, as a checkpoint       |
| `models/0-1.skops` | the model of the first candidate's second fold                         |
| `models/3-0/`      | that of a network, as `AlignedClassifier.save` writes it               |
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)

from evalign.core.checks import complaint, require
from evalign.core.text import installing
from evalign.ensemble.candidates import OWNER
from evalign.ensemble.training import TrainedModels
from evalign.estimator import AlignedClassifier
from evalign.estimator.storage import as_json, reading
from evalign.training import CheckpointError, checkpoint
from evalign.training.checkpoint import read_plain

MAX_MODEL_BYTES = 2**34  # packed, and unpacked
FORESTS = (ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier)
TREES = [
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
]
# Types that skops does not trust by default. They hold numbers and the packages' own models.
TRUSTED = [
    *TREES,
    "catboost.core.CatBoostClassifier",
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
]


def save(
    path: str | os.PathLike[str], state: dict[str, Any], candidates: Sequence[TrainedModels]
) -> None:
    """Write an ensemble, whole or not at all.

    Args:
        path: the folder.
        state: a tree of plain values, see `AlignedEnsemble.save`.
        candidates: with their models.
    """
    skops_io = _skops()
    for one in candidates:
        for model in one.models:
            if isinstance(model, AlignedClassifier):
                arguments = model.get_params(deep=False)
                functions = [name for name, value in arguments.items() if callable(value)]
                allowed = "be without functions to be saved"
                cure = "Give a network by its name, and a metric by its name."
                found = f"{functions} of {one.name!r}"
                require(not functions, OWNER, "candidates", allowed, found, cure)
            # `load` would refuse it, as it cannot check the branches of such trees.
            flags = getattr(model, "is_categorical_", None)
            allowed, got = "ask for numbers to be saved", f"categories: {one.name!r}"
            cure = "Put FrameEncoder before it in a pipeline."
            require(flags is None or not np.any(flags), OWNER, "candidates", allowed, got, cure)
    with checkpoint.replacing(path) as new:
        files: dict[str, str] = {}
        (new / "models").mkdir()
        about = []
        for place, one in enumerate(candidates):
            for fold, model in enumerate(one.models):
                stem = new / "models" / f"{place}-{fold}"
                if isinstance(model, AlignedClassifier):
                    model.save(stem)
                    continue
                data = skops_io.dumps(model, compression=zipfile.ZIP_DEFLATED)
                stem.with_suffix(".skops").write_bytes(data)
                files[stem.name] = hashlib.sha256(data).hexdigest()
            about.append([one.name, one.own, one.frame, len(one.models)])
        tree = {"estimator": OWNER, "candidates": about, "files": files, **state}
        checkpoint.save(new / "ensemble", tree)


def load(
    path: str | os.PathLike[str], trusted: Sequence[str]
) -> tuple[dict[str, Any], dict[str, TrainedModels]]:
    """The state that `save` was given, and the candidates by their names.

    Args:
        path: what `save` wrote. It need not be trusted: no number in it is believed.
        trusted: types that skops may build, beyond `TRUSTED`.
    """
    folder = checkpoint.recovered(path)
    tree = checkpoint.load(folder / "ensemble")
    if tree.get("estimator") != OWNER:
        raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
    candidates = {}
    with reading(path, OWNER):
        for place, (name, own, frame, folds) in enumerate(tree.pop("candidates")):
            names = (f"{place}-{fold}" for fold in range(int(folds)))
            models = [_model(folder / "models" / n, tree["files"].get(n), trusted) for n in names]
            candidates[str(name)] = TrainedModels(str(name), bool(own), bool(frame), models)
    return tree, candidates


def plain_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The constructor's arguments as JSON: no functions, splitters or estimators."""
    plain = {name: as_json(value) for name, value in arguments.items()}
    for name in ("cv", "random_state"):
        plain[name] = int(plain[name]) if isinstance(plain[name], Integral) else None
    plain["metric"] = plain["metric"] if isinstance(plain["metric"], str) else None
    plain["candidates"] = [one if isinstance(one, str) else [one[0]] for one in plain["candidates"]]
    return plain


def constructor_arguments(
    path: str | os.PathLike[str],
    state: dict[str, Any],
    trained: dict[str, TrainedModels],
    given: dict[str, Any],
) -> dict[str, Any]:
    """The saved arguments, of which `given` replace some."""
    with reading(path, OWNER):
        arguments = dict(state["arguments"]) | given
        if "candidates" not in given:
            arguments["candidates"] = tuple(
                one if isinstance(one, str) else (one[0], _as_given(trained[one[0]].models))
                for one in arguments["candidates"]
                if isinstance(one, str) or one[0] in trained  # what was left out is not saved
            )
        known = arguments["metric"] is not None
    allowed, cure = "be given: functions are not saved", "load(path, metric=...)"
    require(known, f"{OWNER}.load", "metric", allowed, "none", cure)
    return arguments


def _as_given(models: list[Any]) -> Any:
    """An unfitted copy of a candidate, for which a constant may stand in on some folds."""
    own = (model for model in models if not isinstance(model, DummyClassifier))
    return clone(next(own, models[0]))


def _model(stem: Path, checksum: str | None, trusted: Sequence[str]) -> Any:
    if checksum is None:
        return AlignedClassifier.load(stem)
    data = read_plain(stem.with_suffix(".skops"), MAX_MODEL_BYTES)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{stem.name}.skops has changed since it was written")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        packed = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        if any(member.compress_type not in packed for member in members):
            raise ValueError(f"{stem.name}.skops is packed in a way that evalign does not use")
        size = sum(member.file_size for member in members)
        if size > MAX_MODEL_BYTES:
            raise ValueError(f"{stem.name}.skops has {size:,} bytes unpacked")
    skops_io = _skops()
    try:
        model = skops_io.loads(data, trusted=[*TRUSTED, *trusted])
    except skops_io.exceptions.UntrustedTypesFoundException:
        model, allowed = None, {*TRUSTED}
    else:
        if isinstance(model, FORESTS):
            _check_trees(model)
            return model
        allowed = {*TRUSTED} - {*TREES}  # trees are checked inside of known forests only
    unknown = {*skops_io.get_untrusted_types(data=data)} - allowed - {*trusted}
    if unknown or model is None:
        cure = f"If you trust them: load(path, trusted={sorted(unknown)})."
        raise CheckpointError(f"{stem.name}.skops holds objects of other types. {cure}")
    return model


def _check_trees(model: Any) -> None:
    """Refuse trees whose branches leave the tree: compiled code follows them unchecked."""
    width = model.n_features_in_
    for tree in getattr(model, "estimators_", []):
        nodes = tree.tree_
        inner = nodes.children_left >= 0
        _check_nodes(nodes.children_left, nodes.children_right, nodes.feature, inner, width)
    for each in getattr(model, "_predictors", []):
        for predictor in each:
            nodes = predictor.nodes
            left, right, feature = (
                nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx")
            )
            _check_nodes(left, right, feature, nodes["is_leaf"] == 0, width)
            if nodes["is_categorical"].any():
                raise ValueError("a tree splits on categories, which there are none of")


def _check_nodes(
    left: np.ndarray, right: np.ndarray, feature: np.ndarray, inner: np.ndarray, width: int
) -> None:
    place = np.arange(len(inner))[inner]
    for child in (left[inner], right[inner]):
        if not ((child > place) & (child < len(inner))).all():
            raise ValueError("a tree has a branch that leaves the tree")
    if not ((feature[inner] >= 0) & (feature[inner] < width)).all():
        raise ValueError("a tree splits on a column that does not exist")


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        allowed, cure = "be installed to save an ensemble", installing(".[cli]")
        raise ModuleNotFoundError(
            complaint(OWNER, "skops", allowed, "none", cure), name="skops"
        ) from error
    return skops.io
