"""What a Confusion says of each class, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    Args:
        classes: the names of the classes.
        columns: the values of all classes, by the name of the column.
    """

    classes: tuple[str, ...]
    columns: dict[str, list[float]]

    @classmethod
    def of(cls, c: "Confusion", classes: Sequence[object] | None) -> "ClassReport":
        names = tuple(map(str, range(c.num_classes) if classes is None else classes))
        allowed = f"be {c.num_classes} different names"
        ok = len(names) == len(set(names)) == c.num_classes
        require(ok, "Confusion.report", "classes", allowed, classes)
        columns = {
            "precision": safe_ratio(c.tp, c.predicted),
            "recall": safe_ratio(c.tp, c.actual),
            "f1": safe_ratio(2 * c.tp, c.predicted + c.actual),
            "correct": c.tp,
            "predicted": c.predicted,
            "true": c.actual,
        }
        return cls(names, {name: values.tolist() for name, values in columns.items()})

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The values of each class by the name of their column."""
        rows = zip(*self.columns.values(), strict=True)
        return {
            name: dict(zip(self.columns, row, strict=True))
            for name, row in zip(self.classes, rows, strict=True)
        }

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each class."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=pd.Index(self.classes, name="class"))

    def __str__(self) -> str:
        names = [visible(name) for name in self.classes[:SHOWN]]
        width = max(len(name) for name in ["class", *names])
        lines = ["class".ljust(width) + "".join(f"{column:>12}" for column in self.columns)]
        for name, values in zip(names, zip(*self.columns.values(), strict=True), strict=False):
            shares, counts = values[:3], values[3:]
            row = [f"{share:12.3f}" for share in shares] + [f"{count:12,.6g}" for count in counts]
            lines.append(name.ljust(width) + "".join(row))
        more = len(self.classes) - len(names)
        return "\n".join([*lines, f"and {more:,} more classes"] if more else lines)
