"""What a Confusion says of each class, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from evalign.core.checks import require
from evalign.core.numerics import safe_ratio
from evalign.core.text import visible

if TYPE_CHECKING:
    from evalign.core.confusion import Confusion

SHOWN = 20  # classes in a printed table


@dataclass(frozen=True)
class ClassReport:
    """Precision, recall and F1 of each class (0 where 0/0), and its correct, predicted, true rows.

    Rows count by their weight, and in a soft Confusion by their membership.
    """

    rows: dict[str, dict[str, float]]

    @classmethod
    def of(cls, c: "Confusion", classes: Sequence[object] | None) -> "ClassReport":
        names = [*map(str, range(c.num_classes) if classes is None else classes)]
        ok = len(names) == len(set(names)) == c.num_classes
        allowed = f"be {c.num_classes} different names"
        require(ok, "Confusion.report", "classes", allowed, classes)
        columns = {
            "precision": safe_ratio(c.tp, c.predicted),
            "recall": safe_ratio(c.tp, c.actual),
            "f1": safe_ratio(2 * c.tp, c.predicted + c.actual),
            "correct": c.tp,
            "predicted": c.predicted,
            "true": c.actual,
        }
        table = torch.stack([*columns.values()], 1).tolist()
        return cls(
            {k: dict(zip(columns, v, strict=True)) for k, v in zip(names, table, strict=True)}
        )

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The values of each class by the name of their column."""
        return self.rows

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each class."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.rows, orient="index")

    def __str__(self) -> str:
        shown = [(visible(name), row) for name, row in [*self.rows.items()][:SHOWN]]
        width = max(map(len, ["class", *(name for name, _ in shown)]))
        columns = [*next(iter(self.rows.values()))]
        lines = ["class".ljust(width) + "".join(f"{column:>12}" for column in columns)]
        for name, row in shown:
            texts = (f"{x:12.3f}" if k < 3 else f"{x:12,.6g}" for k, x in enumerate(row.values()))
            lines.append(name.ljust(width) + "".join(texts))
        more = len(self.rows) - len(shown)
        return "\n".join([*lines, f"and {more:,} more classes"] if more else lines)
