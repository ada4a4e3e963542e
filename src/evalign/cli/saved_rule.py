"""The file of a decision rule, with the columns of the table that it labels."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evalign.cli.dataset import reading_of
from evalign.cli.errors import UsageError
from evalign.cli.files import replacing
from evalign.decisions import DecisionRule
from evalign.tables.files import Reading
from evalign.training.checkpoint import WRONG_TREE, read_plain

FORMAT, VERSION = "evalign rule", 3
LARGEST = 2**28  # bytes of a rule: a gain matrix of a thousand classes takes a tenth of it


class SavedRule(NamedTuple):
    """A rule, the columns with its scores, and how to read the file that holds them.

    Args:
        rule: from scores to class codes, with the names of the classes.
        columns: a column for each class; a single one is of the second of two classes.
        logits: the columns hold logits, not probabilities.
        reading: how the table that the rule was fitted to was read.
    """

    rule: DecisionRule
    columns: list[str]
    logits: bool
    reading: Reading

    def write(self, path: Path) -> None:
        tree = self._asdict() | {"rule": self.rule.state_dict(), "reading": asdict(self.reading)}
        tree |= {"format": FORMAT, "version": VERSION}
        with replacing(path) as aside:
            aside.write_text(json.dumps(tree, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "SavedRule":
        """Open a file, which may come from anyone."""
        try:
            tree = json.loads(read_plain(path, LARGEST))
            if (tree.pop("format"), tree.pop("version")) != (FORMAT, VERSION):
                raise ValueError(f"it is no rule of format version {VERSION}")
            rule, reading = DecisionRule.from_state_dict(tree["rule"]), reading_of(tree["reading"])
            saved = cls(**tree | {"rule": rule, "reading": reading})
            classes, columns = len(rule.classes or ()), saved.columns
            names = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
            fit = len(set(columns)) == len(columns) in ((1, 2) if classes == 2 else (classes,))
            if classes < 2 or not names or not fit or rule.task == "multilabel":
                raise ValueError("its classes and columns do not fit together")
            return saved
        except (OSError, RecursionError, *WRONG_TREE) as error:
            why = f"{type(error).__name__}: {error}"[:300]
            cure = "Give the file that `evalign decide --target` wrote."
            raise UsageError(f"{path} cannot be used: {why}. {cure}") from error

    def labels(self, values: np.ndarray) -> np.ndarray:
        """The labels of scores (N, C)."""
        given = {"logits" if self.logits else "probabilities": values}
        return np.array(self.rule.classes)[self.rule(**given)]
