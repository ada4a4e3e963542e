"""Options that several commands share. Paths are checked here, before anything slow is loaded."""

import re
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Context, Exit, Option

from evalign.cli.errors import UsageError
from evalign.cli.files import SUFFIXES, table, writable

# Copies of the library's values, because the library takes seconds to load; a test compares them.
DECISIONS = Literal["argmax", "tuned", "expected"]
MODELS = Literal["blend", "network", "boosting", "forest", "linear"]
UNITS = {"s": 1, "m": 60, "h": 3600}
LEAST = 6.0  # seconds of `evalign fit`: to load, to train the fastest model, and for the report
Column = partial(Option, metavar="COL")
Flag = partial(Option, False, metavar="")
NewFile = partial(Option, metavar="FILE", dir_okay=False)
OldFile = partial(Option, metavar="FILE", exists=True, dir_okay=False)


def sharing(*groups: Callable[..., None]) -> Callable[[Any], Any]:
    """Decorate a command that takes the options of these groups as `**shared`."""

    def extend(command: Any) -> Any:
        own = [p for p in signature(command).parameters.values() if p.kind != p.VAR_KEYWORD]
        more = [p for group in groups for p in signature(group).parameters.values()]
        shared = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in more]
        command.__signature__ = Signature([*own, *shared])
        return command

    return extend


def seconds(text: Any) -> float | None:
    """Parse a time such as "90", "90s", "5m" or "1h", which a fit can keep to.

    Examples:
        >>> seconds("1.5m")
        90.0
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d*\.?\d+)([smh]?)", text)
    if not found or not float(found[1]):
        raise UsageError(f"--time must be a time such as 90s, 5m or 1h. Got {text!r}.")
    limit = float(found[1]) * UNITS[found[2] or "s"]
    if limit < LEAST:
        what = "which loading, the fastest model and the report take"
        raise UsageError(f"--time must be at least {LEAST:g}s, {what}. Got {text!r}.")
    return limit


def show_help(context: Context, wanted: bool) -> None:
    if wanted:
        print(context.get_help())
        raise Exit


# Paths
TABLE = "Table: .csv, .tsv (either may be .gz), .parquet or .xlsx."
Data = Annotated[
    Path, Argument(metavar="DATA", help=TABLE, exists=True, dir_okay=False, callback=table)
]
RunFolder = Annotated[
    Path, Argument(metavar="RUN", help="Run folder written by `evalign fit`.", exists=True)
]
WRITTEN = "Table to write: .csv, .tsv (either may be .gz) or .parquet."
NewTable = Annotated[Path, NewFile(help=WRITTEN, callback=writable(*SUFFIXES))]

# Options of several commands
Target = Annotated[str, Column(help="Label column.")]
Weight = Annotated[str | None, Column(help="Column of sample weights.")]
POSITIVE = "Positive class of a binary label (default: the last in sorted order)."
Positive = Annotated[str | None, Option(metavar="LABEL", help=POSITIVE)]
Groups = Annotated[
    str | None, Column(help="Column of groups: rows that share a value stay in one part or fold.")
]
CLASSES = (
    "All classes between commas, in the order of an ordinal metric or of costs, as in "
    "bad,poor,ok,good,great; some may have no rows (default: sorted)."
)
Classes = Annotated[str | None, Option(metavar="LABELS", help=CLASSES)]
Metric = Annotated[
    str, Option(metavar="NAME", help="Metric to optimise; `evalign metrics` lists the names.")
]
Epochs = Annotated[
    int | None, Option(metavar="N", min=1, help="Maximum number of epochs of a network.")
]
Json = Annotated[bool, Option("--json", metavar="", help="Print one JSON object, nothing else.")]
# In place of typer's, which shows a type.
SHOW_HELP = Option(
    "--help", metavar="", is_eager=True, callback=show_help, help="Show this message and exit."
)
Help = Annotated[bool, SHOW_HELP]
Quiet = Annotated[bool, Option("--quiet", metavar="", help="Print errors only.")]

# Help that does not fit beside its option
DECISION = (
    "How to choose labels: tuned on held-out rows, expected (without labelled rows), or argmax."
)
CONSTRAINT = 'Constraint on the predictions, such as "recall >= 0.9" or "recall[yes] >= 0.9".'
CONFIDENCE = "Probability that the constraint holds on new data, such as 0.95."
CONSTRAINT_GROUPS = 'Column of the groups of a constraint such as "gap(recall) <= 0.05".'
SEP = "Separator of a CSV (default: a comma, or a tab in a .tsv)."
MISSING = "Additional marker of missing values, besides those of pandas. May be repeated."
DATES = "Format of dates other than ISO 8601, such as %d/%m/%Y."


def goal(
    metric: Metric = "f1_macro",
    decision: DECISIONS = Option("tuned", help=DECISION),
    constraint: str | None = Option(None, metavar="TEXT", help=CONSTRAINT),
    confidence: float | None = Option(None, metavar="P", help=CONFIDENCE),
    constraint_groups: str | None = Column(None, help=CONSTRAINT_GROUPS),
) -> None:
    """The goal of a decision rule."""


def roles(
    groups: Groups = None,
    weight: Weight = None,
    drop: list[str] | None = Column(None, help="Column to ignore. May be repeated."),
    positive: Positive = None,
    classes: Classes = None,
) -> None:
    """The roles of columns, besides the label."""


def reading(
    sep: str | None = Option(None, metavar="MARK", help=SEP),
    encoding: str | None = Option(None, metavar="NAME", help="Encoding of a CSV (default: utf-8)."),
    decimal: str | None = Option(None, metavar="MARK", help="Decimal mark of a CSV (default: .)."),
    missing: list[str] | None = Option(None, metavar="TEXT", help=MISSING),
    dates: str | None = Option(None, metavar="FORMAT", help=DATES),
) -> None:
    """How to read a file. `predict` and `evaluate` remember it."""


def output(as_json: Json = False, quiet: Quiet = False, show_help: Help = False) -> None:
    """What to print."""
