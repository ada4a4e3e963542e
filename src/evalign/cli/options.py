"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from evalign.estimator import AlignedClassifier
from evalign.recipes import RECIPES

EPOCHS = AlignedClassifier().epochs

Data = Annotated[Path, Argument(metavar="DATA", help="A table: .csv, .csv.gz, .tsv or .parquet.")]
RunFolder = Annotated[Path, Argument(metavar="RUN", help="The folder that `evalign fit` wrote.")]
Target = Annotated[str, Option(metavar="COL", help="The column with the label.")]
Metric = Annotated[str, Option(help="What to train for, by scikit-learn's name of the scorer.")]
Seed = Annotated[int, Option(min=0, max=2**31 - 1, help="Of the split and of the training.")]
Epochs = Annotated[int, Option(min=1, help="Passes over the rows at most.")]
Recipe = Annotated[str, Option(help=f"How to train: {', '.join(RECIPES)}.")]
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
