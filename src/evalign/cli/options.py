"""Arguments that several commands share. A path is checked here, before anything is loaded."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from evalign.cli.errors import UsageError
from evalign.cli.files import (
    check_file,
    check_page,
    check_parent,
    check_rule,
    check_run,
    check_suffix,
    check_table,
    check_utf8,
)

# Copies of the library's values, because the library takes seconds to load. A test compares them.
RECIPES = ("aligned", "cross_entropy", "east")
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
MODEL: MODELS = "blend"  # what `fit` takes if it is not told
UNITS = {"s": 1, "m": 60, "h": 3600}


def checked(*checks: Callable[[Path], None]) -> Callable[[Path | None], Path | None]:
    """A callback for an argument or an option that takes a path."""

    def callback(path: Path | None) -> Path | None:
        if path is not None:
            for check in (check_utf8, *checks):
                check(path)
        return path

    return callback


def seconds(text: str | None) -> float | None:
    """The seconds of "90", "90s", "5m" or "1h".

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


Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="A table: .csv, .tsv (either may be .gz), .parquet or .xlsx.",
        callback=checked(check_table),
    ),
]
RunFolder = Annotated[
    Path,
    Argument(
        metavar="RUN", help="The folder that `evalign fit` wrote.", callback=checked(check_run)
    ),
]
NewRun = Annotated[
    Path,
    Option(metavar="RUN", help="A new folder for the results.", callback=checked(check_parent)),
]
NewTable = Annotated[
    Path,
    Option(
        metavar="FILE",
        help="The table to write: .csv, .tsv (either may be .gz) or .parquet.",
        callback=checked(check_suffix, check_file),
    ),
]
NewPage = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="The page (.html) to write (default: in RUN).",
        callback=checked(check_file, check_page),
    ),
]
NewRuleOrTable = Annotated[
    Path,
    Option(
        metavar="FILE",
        help="The rule (.json) to write; with --rule the table.",
        callback=checked(check_file),
    ),
]
RuleFile = Annotated[
    Path | None,
    Option(
        "--rule",
        metavar="FILE",
        help="A rule that this command wrote, to label rows with.",
        callback=checked(check_rule),
    ),
]
Validation = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Rows to choose the epoch and the decision on.",
        callback=checked(check_table),
    ),
]
Test = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Rows for the report (default: a fifth of DATA).",
        callback=checked(check_table),
    ),
]
Target = Annotated[str, Option(metavar="COL", help="The column with the label.")]
Metric = Annotated[str, Option(help="What to train for; `evalign metrics` lists the names.")]
Seed = Annotated[int, Option(min=0, max=2**31 - 1, help="Of the split and of the training.")]
Epochs = Annotated[
    int | None, Option(min=1, help="Passes over the rows at most; else what the network wants.")
]
Model = Annotated[
    MODELS,
    Option(
        help="What to train: several models, whose probabilities are averaged (blend), of which "
        "the best is used (auto), or one of them."
    ),
]
Time = Annotated[
    str | None,
    Option(
        metavar="TIME",
        help="For all of it, such as 90s, 5m or 1h: models that would take longer are left out.",
    ),
]
Recipe = Annotated[
    str | None,
    Option(
        help=f"How to train a network: {', '.join(RECIPES)}. By default aligned, or with a "
        "constraint cross_entropy."
    ),
]
Decision = Annotated[
    DECISIONS,
    Option(
        help="From probabilities to labels: the most probable class (argmax), or what is best for "
        "the metric by held-out labels (tuned) or by the probabilities alone (expected)."
    ),
]
Constraint = Annotated[
    str | None,
    Option(
        metavar="TEXT",
        help='What the labels must meet, such as "recall >= 0.9" or "recall[yes] >= 0.9".',
    ),
]
Confidence = Annotated[
    float | None,
    Option(metavar="P", help="The probability of that on new rows, such as 0.95."),
]
Group = Annotated[
    str | None, Option(metavar="COL", help="Rows with one value of this column stay together.")
]
Weight = Annotated[str | None, Option(metavar="COL", help="The column with a weight per row.")]
Drop = Annotated[
    list[str] | None, Option(metavar="COL", help="A column not to learn from. May be repeated.")
]
Positive = Annotated[
    str | None, Option(metavar="LABEL", help="Of two classes the positive one (default: the last).")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, Option("--quiet", help="Say nothing but errors.")]
