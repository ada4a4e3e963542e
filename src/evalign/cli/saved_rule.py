"""The file of a decision rule, with what it needs to label a table."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from evalign.cli.errors import UsageError
from evalign.cli.files import replacing
from evalign.cli.labels import Labels
from evalign.decisions import DecisionRule
from evalign.estimator.out_of_fold import Method
from evalign.training.checkpoint import WRONG_TREE, read_plain

FORMAT = "evalign rule"
VERSION = 1
LARGEST = 2**28  # bytes of a rule: a gain matrix of a thousand classes takes a tenth of it


@dataclass(frozen=True)
class SavedRule:
    """A rule with what it needs to label a table.

    Args:
        rule: from scores to class codes.
        labels: the classes, in the order of the codes.
        columns: those of the classes; one alone is of the last class of two.
        method: "predict_proba" for probabilities, "decision_function" for logits.
        decimal: the mark in the numbers of its table, for tables that do not tell theirs.
    """

    rule: DecisionRule
    labels: Labels
    columns: list[str]
    method: Method
    decimal: str = "."

    def write(self, path: Path) -> None:
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "target": self.labels.column,
            "labels": list(self.labels.values),
            "columns": self.columns,
            "logits": self.method == "decision_function",
            "decimal": self.decimal,
            "rule": self.rule.state_dict(),
        }
        with replacing(path) as aside:
            aside.write_text(json.dumps(tree, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "SavedRule":
        """Open a file, which may come from anyone: nothing in it is trusted."""
        try:
            tree = json.loads(read_plain(path, LARGEST))
        except (ValueError, OSError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from error
        if not isinstance(tree, dict) or tree.get("format") != FORMAT:
            cure = "Give the file that `evalign decide --target` wrote."
            raise UsageError(f"{path} is not a rule of evalign. {cure}")
        if tree.get("version") != VERSION:
            got, cure = tree.get("version"), "Use it with the version of evalign that wrote it."
            raise UsageError(f"{path} has format version {got}, this is {VERSION}. {cure}")
        try:
            rule = DecisionRule.from_state_dict(tree["rule"])
            values, columns, logits = tree["labels"], tree["columns"], tree["logits"]
            decimal = tree.get("decimal", ".")  # earlier files do not tell
            kinds, lists = {type(value) for value in values}, {type(values), type(columns)}
            number, one = len(rule.gain), len(columns) == 1
            "".join(value for value in values if type(value) is str).encode()  # whether one can
            sound = [
                len(kinds) == 1 and kinds <= {str, int, float},
                len(set(values)) == len(values) == number > 1,
                all(type(name) is str for name in [*columns, tree["target"]]),
                len(set(columns)) == len(columns) == (1 if one and number == 2 else number),
                lists == {list} and type(logits) is bool and decimal in (".", ","),
                rule.class_dim in (1, -1),
                all(math.isfinite(value) for value in values if type(value) is float),
                not any(type(value) is int and abs(value) >= 2**63 for value in values),
                rule.task in ("binary", "multiclass"),
            ]
            if not all(sound):
                raise ValueError("its labels, columns and gains do not fit together")
        except WRONG_TREE as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise UsageError(f"{path} is damaged: {why}. Fit the rule again.") from error
        method: Method = "decision_function" if logits else "predict_proba"
        labels = Labels(tree["target"], tuple(values))
        return cls(rule, labels, list(columns), method, decimal)
