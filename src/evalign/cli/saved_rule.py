"""The file of a decision rule, with what it needs to label a table."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from evalign.cli.dataset import reading_of
from evalign.cli.errors import UsageError
from evalign.cli.files import replacing
from evalign.decisions import DecisionRule
from evalign.estimator.out_of_fold import Method
from evalign.tables.classes import Labels
from evalign.tables.files import Reading
from evalign.training.checkpoint import WRONG_TREE, read_plain

FORMAT = "evalign rule"
VERSION = 2  # with how its table was read
LARGEST = 2**28  # bytes of a rule: a gain matrix of a thousand classes takes a tenth of it


@dataclass(frozen=True)
class SavedRule:
    """A rule with what it needs to label a table.

    Args:
        rule: from scores to class codes.
        labels: the classes, in the order of the codes.
        columns: those of the classes; one alone is of the last class of two.
        method: "predict_proba" for probabilities, "decision_function" for logits.
        reading: how the table that the rule was fitted to was read.
    """

    rule: DecisionRule
    labels: Labels
    columns: list[str]
    method: Method
    reading: Reading

    def write(self, path: Path) -> None:
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "target": self.labels.column,
            "labels": list(self.labels.values),
            "columns": self.columns,
            "logits": self.method == "decision_function",
            "reading": asdict(self.reading),
            "rule": self.rule.state_dict(),
        }
        with replacing(path) as aside:
            aside.write_text(json.dumps(tree, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "SavedRule":
        """Open a file, which may come from anyone."""
        try:
            tree = json.loads(read_plain(path, LARGEST))
            if tree.get("format") != FORMAT or tree.get("version") != VERSION:
                raise ValueError(f"it is no rule of format version {VERSION}")
            rule = DecisionRule.from_state_dict(tree["rule"])
            labels, columns = Labels(str(tree["target"]), tuple(tree["labels"])), tree["columns"]
            classes, known = len(rule.gain), len(set(labels.values))
            sound = {type(value) for value in labels.values} in ({str}, {int})
            sound = sound and known == len(labels.values) == classes > 1
            sound = (
                sound
                and type(columns) is list
                and len(columns) in ((1, 2) if classes == 2 else (classes,))
            )
            sound = sound and len(set(columns)) == len(columns) and set(map(type, columns)) == {str}
            if not sound or rule.task == "multilabel":
                raise ValueError("its labels, columns and gains do not fit together")
            method: Method = "decision_function" if tree["logits"] else "predict_proba"
            return cls(rule, labels, list(columns), method, reading_of(tree["reading"]))
        except (OSError, RecursionError, *WRONG_TREE) as error:
            why = f"{type(error).__name__}: {error}"[:300]
            cure = "Give the file that `evalign decide --target` wrote."
            raise UsageError(f"{path} cannot be used: {why}. {cure}") from error
