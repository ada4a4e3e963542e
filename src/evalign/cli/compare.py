"""The work of `evalign compare`, and of `evalign demo`, a comparison on built-in data."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

from evalign import comparison
from evalign.cli.dataset import load, reading_of
from evalign.cli.errors import refused
from evalign.cli.introduction import introduce
from evalign.cli.metrics import check_metric
from evalign.cli.options import READING
from evalign.cli.terminal import Terminal, terminal
from evalign.comparison import (
    METHODS,
    MIN_VALUES,
    PLAIN,
    TUNED,
    FoldScore,
    Row,
    least_shown,
    summarize,
    verdict,
)
from evalign.core.text import counted
from evalign.estimator import AlignedClassifier
from evalign.estimator.network import mlp
from evalign.metrics import resolve
from evalign.report.words import number
from evalign.tables.files import TableFile
from evalign.training import TrainingWarning

# The demo has few rows and should be quick: a small network and some of the methods are enough.
DEMO_METRIC = "f1_macro"
DEMO_METHODS = [PLAIN, TUNED, "EAST (argmax)", "aligned (tuned)", "random forest (argmax)"]
DEMO_FOLDS, DEMO_SEEDS = 3, 2
NEXT = """
Now with a table of your own:
  evalign compare data.csv --target label --metric f1_macro
  evalign fit data.csv --target label --metric f1_macro --out run
  evalign predict run new.csv --out scored.csv
  evalign --help"""


def compare_methods(
    data: Path,
    *,
    metric: str,
    folds: int,
    seeds: int,
    epochs: int | None,
    drop: list[str] | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Do the work of `evalign compare`; its options are explained in `commands`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        reading = reading_of({name: options.pop(name) for name in READING})
        dataset = load(TableFile(data, reading), drop=drop or [], **options)
        labels, rows = dataset.labels, dataset.rows
        check_metric(metric, len(labels.values))
        with refused():
            records = comparison.compare(
                AlignedClassifier(metric, epochs=epochs, pos_label=labels.positive),
                rows.X,
                labels.array[rows.y],
                methods=list(METHODS),
                folds=folds,
                seeds=range(seeds),
                groups=rows.groups,
                sample_weight=rows.weight,
            )
        introduce(spoken, dataset)
        about = {"rows": len(rows.y), "classes": labels.names, "folds": folds, "seeds": seeds}
        with refused():
            done = _run(spoken, records, len(METHODS) * folds * seeds)
        _show(spoken, about, metric, done)


def show_demo(*, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign demo`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        X, y = long_tailed_digits()
        most, least = np.bincount(y)[[0, 9]]
        spoken.note(f"Handwritten digits, long-tailed: from {most} rows of 0 to {least} of 9.")
        torch.set_num_threads(1)  # the network is too small to gain from more
        classifier = AlignedClassifier(
            DEMO_METRIC, network=small, epochs=30, batch_size=64, learning_rate=0.01, device="cpu"
        )
        given: dict[str, Any] = {"folds": DEMO_FOLDS, "seeds": range(DEMO_SEEDS)}
        records = comparison.compare(classifier, X, y, methods=DEMO_METHODS, **given)
        done = _run(spoken, records, len(DEMO_METHODS) * DEMO_FOLDS * DEMO_SEEDS)
        about = {"rows": len(y), "classes": [str(digit) for digit in range(10)]}
        about |= {"folds": DEMO_FOLDS, "seeds": DEMO_SEEDS}
        _show(spoken, about, DEMO_METRIC, done)
        for line in NEXT.splitlines():
            spoken.note(line)


def long_tailed_digits() -> tuple[np.ndarray, np.ndarray]:
    """All rows of digit 0, and geometrically fewer of each next one, down to 1 in 20."""
    digits: Any = load_digits()
    X, y, rng = digits.data, digits.target, np.random.default_rng(0)
    kept = []
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(y == digit))
        kept.append(rows[: round(len(rows) * 20 ** (-digit / 9))])
    kept = np.concatenate(kept)
    return X[kept], y[kept]


def small(n_features: int, n_classes: int) -> nn.Module:
    return mlp(n_features, n_classes, hidden=(64,))


def _run(spoken: Terminal, records: Iterator[FoldScore], total: int) -> list[FoldScore]:
    """Collect all records behind a progress bar."""
    with warnings.catch_warnings():
        # EAST sees one batch at a time, and no option makes batches larger.
        warnings.filterwarnings("ignore", "A batch of", TrainingWarning)
        bar = Console(stderr=True)
        return list(track(records, "Comparing", total, console=bar, disable=spoken.quiet))


def _show(spoken: Terminal, about: dict[str, Any], metric: str, records: list[FoldScore]) -> None:
    judged_by = resolve(metric)
    greater = judged_by.greater_is_better
    rows = summarize(records, greater_is_better=greater, bounds=judged_by.bounds)
    sentences = verdict(records, metric=metric, greater_is_better=greater)
    if about["folds"] * about["seeds"] >= MIN_VALUES:
        least = number(least_shown(records))
        sentences.append(f"These folds cannot tell a difference below about {least} from chance.")
    data = {
        "metric": metric,
        "greater_is_better": greater,
        **about,
        "methods": [_plain(row) for row in rows],
        "verdict": sentences,
        "records": [record._asdict() for record in records],
    }
    explained = (
        f"Mean {metric}{'' if greater else ' (less is better)'} over {about['folds']} folds, "
        f"{counted(about['seeds'], 'time')}, with its 95% interval; difference to {PLAIN}."
    )
    spoken.result(data, _table(rows), explained, "", *sentences)


def _table(rows: list[Row]) -> Table:
    """Show a line per method."""
    table = Table("method", box=None, pad_edge=False)
    for heading in ("mean", "95% interval", "difference", "p", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, score, difference, seconds in rows:
        cells = [number(score.value), f"{number(score.low)} to {number(score.high)}", "", ""]
        if difference is not None:
            sign = "+" if difference.value > 0 else ""
            p = "<0.001" if difference.p < 0.001 else f"{difference.p:.3f}"
            cells[2:] = f"{sign}{number(difference.value)}", p
        table.add_row(method, *cells, f"{seconds:.1f}")
    return table


def _plain(row: Row) -> dict[str, Any]:
    mean, low, high, _ = row.score
    difference = None if row.difference is None else row.difference._asdict()
    interval = {"mean": mean, "low": low, "high": high}
    return {"method": row.method, **interval, "difference": difference, "seconds": row.seconds}
