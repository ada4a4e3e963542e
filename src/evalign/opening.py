"""`load`: open whatever was fitted and saved."""

import os
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch

from evalign.decisions import DecisionRule
from evalign.decisions.saved_rule import RULE
from evalign.estimators import AlignedClassifier, AlignedDecisionCV, AlignedEnsemble
from evalign.store.archive import kind_of
from evalign.store.files import nothing, read_json, reading

OPENED = {each.__name__: each for each in (AlignedClassifier, AlignedDecisionCV, AlignedEnsemble)}


def load(path: str | os.PathLike[str], **arguments: Any) -> Any:
    """Open what was saved: an estimator, a run of the command line, or a rule.

    Args:
        path: what `save` of an estimator or of a rule wrote, the folder or file that `evalign fit`
            or `evalign decide` wrote, or a checkpoint of an `AlignedModule`, for its rule. It need
            not be trusted.
        arguments: passed on to the `load` of an estimator.

    Returns:
        An `AlignedClassifier`, `AlignedEnsemble` or `AlignedDecisionCV`; the model of a run, for
        frames with the columns `feature_names_in_`; or a `DecisionRule`.

    Examples:
        >>> import tempfile
        >>> X = [[float(number)] for number in range(40)]
        >>> clf = AlignedEnsemble(candidates=["linear"], cv=2).fit(X, [x > 19 for [x] in X])
        >>> clf.save(path := tempfile.mkdtemp() + "/model")
        >>> load(path).predict([[3.0], [33.0]])
        array([False,  True])
    """
    path = Path(path)
    if (path / "run.json").is_file():
        # Needs the extra `cli`, which the rest of the library does not know.
        return import_module("evalign.cli.run").FinishedRun(path).models["model"]
    if path.is_file() and not is_zipfile(path):
        state = read_json(path, RULE)
        with reading(path):
            return DecisionRule.from_state_dict(state["rule"])
    if path.is_file() and of_torch(path):
        return rule_of_checkpoint(path)
    kind = kind_of(path)
    if kind not in OPENED:
        raise nothing(path, f"a {kind} is no model")
    return OPENED[kind].load(path, **arguments)


def of_torch(path: Path) -> bool:
    """Whether torch wrote the archive."""
    with reading(path), ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def rule_of_checkpoint(path: Path) -> DecisionRule:
    """The rule in a checkpoint that Lightning wrote with torch, without running code from there."""
    with reading(path):
        try:
            state = torch.load(path, "cpu", weights_only=True, mmap=True)
        except UnpicklingError as error:
            why = "more than weights and plain values: open it with load_from_checkpoint"
            raise nothing(path, why) from error
        if "rule" not in state:
            raise nothing(path, "a checkpoint without a rule, which a validation leaves")
        return DecisionRule.from_state_dict(state["rule"])
