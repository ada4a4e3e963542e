"""What a Confusion says of each class, as a table."""

from dataclasses import dataclass

from evalign.core.text import visible

SHOWN = 20  # classes in a printed table


@dataclass(frozen=True)
class ClassReport:
    """Precision, recall and F1 of each class (0 where 0/0), and its correct, predicted, true rows.

    Rows count by their weight, and in a soft Confusion by their membership.
    """

    rows: dict[str, dict[str, float]]

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The values of each class by the name of their column."""
        return self.rows

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
