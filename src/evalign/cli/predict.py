"""The work of `evalign predict`, `evaluate` and `report`, which start from a run folder."""

from argparse import Namespace
from typing import Any

import pandas as pd

from evalign.cli.dataset import label_blocks, labelled, reading_of
from evalign.cli.errors import refused
from evalign.cli.outcome import contents, judged, predictions, shown
from evalign.cli.run import DETAILS, LARGEST, PREDICTIONS, REPORT, FinishedRun
from evalign.cli.terminal import Terminal
from evalign.report import render
from evalign.store.files import digest, replacing
from evalign.tables.files import TableFile, check_size, is_parquet
from evalign.tables.warnings import warn_of_few, warn_of_perfect


def label_table(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign predict`."""
    opened = FinishedRun(given.run)
    labels, used = opened.labels, opened.columns
    source = TableFile(given.data, reading_of(given.reading, used.reading))
    source.need(used.features)
    model = opened.models["model"]
    # From CSV to CSV, text stays as it is. In Parquet, the model's numbers become numbers.
    as_numbers = is_parquet(given.out) and not is_parquet(given.data)
    learnt = model.features_.columns if as_numbers else ()
    numbers = [column.name for column in learnt if column.kind == "number"]

    def label(block: pd.DataFrame, before: int) -> dict[str, Any]:
        with refused(TypeError, where=f"{source}, from row {1 + before}: "):
            found = judged(model, labels, block.loc[:, used.features])
        # The model has refused any cell that is not a number, so only gaps are coerced.
        numeric = block[numbers].apply(pd.to_numeric, errors="coerce").astype(float)
        return dict(numeric) | found

    label_blocks(spoken, given, source.blocks(used.text, used.dates), label)


def score_table(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign evaluate`."""
    opened = FinishedRun(given.run)
    used, labels = opened.columns, opened.labels
    source = TableFile(given.data, reading_of(given.reading, used.reading))
    source.need(used.used)
    frame, models = source.read(used.text), opened.models
    rows = labelled(frame, frame.loc[:, used.features], used, labels, source)
    with refused(TypeError, where=f"{source}: "):
        table = predictions(rows, labels, models)
    with opened.reading("run.json"):
        content, result = contents(table, labels, opened.about, digest(given.data))
    if not content.seen:
        warn_of_perfect(table, labels.names)
    warn_of_few("test", labels.names, content.y)
    classes = content.hard(content.aligned.predicted, matrix=False).report(content.classes)
    spoken.result(result, *shown(result), "", *str(classes).splitlines())


def render_report(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign report`."""
    opened, out = FinishedRun(given.run), given.out or given.run / REPORT
    with opened.reading(f"{PREDICTIONS} or {DETAILS}"):
        check_size(given.run / PREDICTIONS, LARGEST)
        table, details = TableFile(given.run / PREDICTIONS).read(), dict(opened.read(DETAILS))
        tested = opened.arguments["--test"]
        page = render(*contents(table, opened.labels, opened.about, tested, details))
    with replacing(out) as aside:
        aside.write_text(page, encoding="utf-8")
    spoken.result({"out": str(out)}, f"Wrote {out}")
