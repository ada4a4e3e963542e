"""`load`: open whatever was fitted and saved.

Nothing slow is imported before it is needed: a service that applies a saved rule waits for NumPy
alone.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from evalign.core import stairs
from evalign.store.files import nothing, reading

ESTIMATORS = ("AlignedClassifier", "AlignedDecisionCV", "AlignedEnsemble")


def load(path: str | os.PathLike[str], **arguments: Any) -> Any:
    """Open what was saved: an estimator, a run of the command line, or a rule.

    Args:
        path: what `save` of an estimator or of a rule wrote, the folder or file that `evalign fit`
            or `evalign decide` wrote, or a checkpoint of an `AlignedModule`, for its rule. It need
            not be trusted. A rule needs NumPy alone, a network or a checkpoint PyTorch.
        arguments: passed on to the `load` of an estimator.

    Returns:
        An `AlignedClassifier`, `AlignedEnsemble` or `AlignedDecisionCV`; the model of a run, for
        frames with the columns `feature_names_in_`; or a `DecisionRule`.

    Examples:
        >>> import tempfile
        >>> from evalign import AlignedEnsemble
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
        return rule_of_file(path)
    if path.is_file() and of_torch(path):
        return rule_of_checkpoint(path)
    return estimator_of_file(path, arguments)


def rule_of_file(path: Path) -> Any:
    """The rule that `DecisionRule.save` wrote."""
    from evalign.decisions.rule import DecisionRule
    from evalign.decisions.saved_rule import read_state

    with reading(path):
        return DecisionRule.from_state_dict(read_state(path))


def of_torch(path: Path) -> bool:
    """Whether torch wrote the archive."""
    with reading(path), ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def rule_of_checkpoint(path: Path) -> Any:
    """The rule in a checkpoint that Lightning wrote with torch."""
    from evalign.decisions.rule import DecisionRule

    with reading(path):
        state = stairs.state_of_checkpoint(path, f"Opening the checkpoint {path}")
        if "rule" not in state:
            raise nothing(path, "a checkpoint without a rule, which a validation leaves")
        return DecisionRule.from_state_dict(state["rule"])


def estimator_of_file(path: Path, arguments: dict[str, Any]) -> Any:
    """The estimator that its `save` wrote."""
    from evalign.estimators.spine import register_models
    from evalign.store import archive

    kind = archive.kind_of(path)
    if kind not in ESTIMATORS:
        raise nothing(path, f"a {kind} is no model")
    register_models()
    return archive.load(path, kind, **arguments)
