"""Arguments that several commands share. A path is checked here, before anything is loaded."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from evalign.cli.errors import UsageError
from evalign.cli.files import SUFFIXES, table, writable

# Copies of the library's values, because the library takes seconds to load. A test compares them.
RECIPES = Literal["aligned", "cross_entropy", "east"]
DECISIONS = Literal["argmax", "tuned", "expected"]
MODELS = Literal[
    "auto",
    "blend",
    "network",
    "boosting",
    "forest",
    "linear",
    "lightgbm",
    "xgboost",
    "catboost",
]
UNITS = {"s": 1, "m": 60, "h": 3600}
Column = partial(Option, metavar="COL")
NewFile = partial(Option, metavar="FILE")
OldFile = partial(Option, metavar="FILE", exists=True, dir_okay=False)


def seconds(text: Any) -> float | None:
    """Seconds of "90", "90s", "5m" or "1h".

    Examples:
        >>> seconds("1.5m")
        90.0
    """
    if text is None:
        return None
    unit = text[-1:] if text[-1:] in UNITS else "s"
    try:
        found = float(text.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        found = math.nan
    if not (0 < found < math.inf):
        raise UsageError(f"--time must be a time such as 90s, 5m or 1h. Got {text!r}.")
    return found


# Paths
TABLE = "A table: .csv, .tsv (either may be .gz), .parquet or .xlsx."
Data = Annotated[
    Path,
    Argument(metavar="DATA", help=TABLE, exists=True, dir_okay=False, callback=table),
]
RunFolder = Annotated[
    Path, Argument(metavar="RUN", help="The folder that `evalign fit` wrote.", exists=True)
]
NewRun = Annotated[
    Path, Option(metavar="RUN", help="A new folder for the results.", callback=writable())
]
WRITTEN = "The table to write: .csv, .tsv (either may be .gz) or .parquet."
NewTable = Annotated[Path, NewFile(help=WRITTEN, callback=writable(*SUFFIXES))]
PAGE = "The page (.html) to write; by default the report in RUN."
NewPage = Annotated[Path | None, NewFile(help=PAGE, callback=writable(".html"))]
RULE = "The rule (.json) to write; with --rule, the table."
NewRuleOrTable = Annotated[Path, NewFile(help=RULE, callback=writable(".json", *SUFFIXES))]
RuleFile = Annotated[
    Path | None, OldFile("--rule", help="Label rows with a rule that `evalign decide` wrote.")
]
Validation = Annotated[
    Path | None, OldFile(help="Rows to choose epoch and decision on.", callback=table)
]
Test = Annotated[
    Path | None, OldFile(help="Test rows (default: a fifth of DATA, held out).", callback=table)
]

# Reading a file. `predict` and `evaluate` remember what `fit` was told.
READING = ("sep", "encoding", "decimal", "missing", "dates")
SEP = "Separator of a CSV (default: a comma, or a tab in a .tsv)."
Sep = Annotated[str | None, Option(metavar="MARK", help=SEP)]
Encoding = Annotated[str | None, Option(metavar="NAME", help="Encoding of a CSV (default: utf-8).")]
Decimal = Annotated[str | None, Option(metavar="MARK", help="Decimal mark of a CSV (default: .).")]
MISSING = "Text that stands for a gap, beside those that pandas knows. May be repeated."
Missing = Annotated[list[str] | None, Option(metavar="TEXT", help=MISSING)]
DATES = "Format of dates that are not ISO 8601, such as %d/%m/%Y."
Dates = Annotated[str | None, Option(metavar="FORMAT", help=DATES)]

# Columns
Target = Annotated[str, Column(help="Column with the label.")]
Group = Annotated[str | None, Column(help="Rows with the same value here stay together.")]
Weight = Annotated[str | None, Column(help="Column with a weight per row.")]
Drop = Annotated[list[str] | None, Column(help="Column not to learn from. May be repeated.")]
Positive = Annotated[
    str | None,
    Option(metavar="LABEL", help="Positive class of two (default: the last in order)."),
]

# Goal
Metric = Annotated[str, Option(help="Metric to optimise; `evalign metrics` lists the names.")]
Decision = Annotated[
    DECISIONS,
    Option(
        help="From probabilities to labels: best for the metric on held-out labels (tuned), best "
        "by the probabilities alone (expected), or the most probable class (argmax)."
    ),
]
CONSTRAINT = 'What predictions must satisfy, such as "recall >= 0.9" or "recall[yes] >= 0.9".'
Constraint = Annotated[str | None, Option(metavar="TEXT", help=CONSTRAINT)]
CONFIDENCE = "Probability that the constraint holds on new data, such as 0.95."
Confidence = Annotated[float | None, Option(metavar="P", help=CONFIDENCE)]

# Training
MODEL = "One model, a weighted mean of several (blend), or the best of several (auto)."
Model = Annotated[MODELS, Option(help=MODEL)]
RECIPE = "How to train a network (default: aligned; with a constraint, cross_entropy)."
Recipe = Annotated[RECIPES | None, Option(help=RECIPE)]
TIME = "Time for the whole command, such as 90s, 5m or 1h; slow models are left out."
Time = Annotated[str | None, Option(metavar="TIME", help=TIME, callback=seconds)]
Epochs = Annotated[int | None, Option(min=1, help="Maximum number of epochs of a network.")]
Seed = Annotated[int, Option(min=0, max=2**31 - 1, help="Seed of the split and of training.")]

# Output
Verbose = Annotated[bool, Option("--verbose", help="Show what each column was read as.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", help="Print errors only.")]
