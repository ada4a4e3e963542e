"""`load`: open whatever was fitted and saved."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from evalign.core.checks import complaint
from evalign.decisions import DecisionRule
from evalign.ensemble import AlignedEnsemble
from evalign.estimator import AlignedClassifier
from evalign.training import CheckpointError
from evalign.training.checkpoint import WRONG_TREE, read_plain, recovered

MAX_RULE_BYTES = 2**30


def load(path: str | os.PathLike[str], **arguments: Any) -> Any:
    """Open what was saved: a classifier, an ensemble, a run of the command line, or a rule.

    Args:
        path: a folder written by `AlignedClassifier.save`, `AlignedEnsemble.save` or `evalign fit`,
            or the JSON file of a rule, written by `evalign decide`. It need not be trusted.
        arguments: passed on to `AlignedClassifier.load` or `AlignedEnsemble.load`.

    Returns:
        An `AlignedClassifier` or an `AlignedEnsemble`, also of a run, for frames with the columns
        `feature_names_in_`; or a `DecisionRule`.

    Examples:
        >>> import tempfile
        >>> X = [[float(number)] for number in range(40)]
        >>> clf = AlignedEnsemble(candidates=["linear"], cv=2).fit(X, [x > 19 for [x] in X])
        >>> clf.save(folder := tempfile.mkdtemp() + "/model")
        >>> load(folder).predict([[3.0], [33.0]])
        array([False,  True])
    """
    folder = recovered(path)
    if (folder / "run.json").is_file():
        # Needs the extra `cli`, which the rest of the library does not know.
        return import_module("evalign.cli.run").FinishedRun(Path(path)).models["model"]
    if (folder / "ensemble").is_dir():
        return AlignedEnsemble.load(path, **arguments)
    if folder.is_dir():
        return AlignedClassifier.load(path, **arguments)
    if folder.suffix.lower() != ".json" or not folder.is_file():
        allowed = "lead to a folder or a rule (.json) that evalign wrote"
        raise FileNotFoundError(complaint("load", "path", allowed, os.fspath(path)))
    try:
        state = json.loads(read_plain(folder, MAX_RULE_BYTES))
        return DecisionRule.from_state_dict(state.get("rule", state))
    except (OSError, RecursionError, *WRONG_TREE) as error:
        why = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{os.fspath(path)} holds no rule of evalign: {why}") from error
