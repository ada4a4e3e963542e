"""The work of `evalign predict`, `evaluate` and `report`, which start from a run folder."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from evalign.cli import columns
from evalign.cli.dataset import rows, warn_of_scarce
from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.cli.files import check_file, digest, is_parquet, replacing
from evalign.cli.labels import warn_of_formulas
from evalign.cli.outcome import (
    contents,
    judged,
    met,
    predictions,
    probabilities,
    shown,
    shown_classes,
    was_seen,
)
from evalign.cli.run import LARGEST, PREDICTIONS, REPORT, FinishedRun, Model
from evalign.cli.tables import TableFile, writing
from evalign.cli.terminal import terminal
from evalign.core.text import counted
from evalign.report import render, scores


def label_table(run: Path, data: Path, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign predict`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        source = TableFile(data, opened.columns.decimal)
        source.need(opened.columns.features)
        if out.exists() and out.samefile(data):
            raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
        labels, used, names = opened.labels, opened.columns, opened.labels.written
        taken = [name for name in names if name in source.schema.names]
        if taken:
            cure = "Rename them, or remove them."
            raise UsageError(f"{source} already has columns named {listed(taken)}. {cure}")

        model, unseen = opened.classifier("model"), UnseenLevels(used)
        # From CSV to CSV, text stays as it is. In Parquet, the model's numbers become numbers.
        numbers = set(used.numbers) if is_parquet(out) and not is_parquet(data) else set()
        kinds = {field.name: field.type for field in source.schema}
        kinds |= dict.fromkeys(numbers, pa.float64())
        kinds |= dict.fromkeys(names, pa.float64()) | {"prediction": labels.type}
        schema = pa.schema(kinds.items())
        count = 0
        with writing(out, schema) as write:
            for block in source.blocks():
                X = columns.frame(block, used, source, 1 + count)
                unseen.count(model, X)
                parts = {name: block[name] for name in block.column_names}
                parts |= {name: pa.array(X[name], from_pandas=True) for name in numbers}
                codes, values = judged(model, labels, X)
                parts["prediction"] = labels.decode(codes)
                parts |= probabilities("probability", values, labels)
                write(pa.table(parts, schema=schema))
                count += block.num_rows
            source.check_rows(count)
        unseen.warn(source)
        warn_of_formulas(out, labels)
        result = {"rows": count, "out": str(out), "unseen": dict(unseen.levels)}
        spoken.result(result, f"Labelled {counted(count)}: {out}")


def score_table(run: Path, data: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign evaluate`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        source = TableFile(data, opened.columns.decimal)
        used, labels = opened.columns, opened.labels
        source.need(used.used)
        models = {name: opened.classifier(name) for name in opened.models}
        unseen, blocks, count = UnseenLevels(used), [], 0
        for block in source.blocks():
            part = rows(block, used, labels, source, 1 + count)
            unseen.count(models["model"], part.X)
            blocks.append(predictions(part, labels, models))
            count += block.num_rows
        source.check_rows(count)
        unseen.warn(source)
        table = pa.concat_tables(blocks)
        with opened.reading("history.json"):
            seen = was_seen(opened.about, digest(data))
            content = contents(table, labels, opened.about, opened.read("history.json"), seen=seen)
        if seen:
            text = f"The run was trained on {source}, or chosen by it: this is not a test, and the"
            cure = "Give rows that it has not seen; its own test rows are in its report."
            warnings.warn(f"{text} scores are too good. {cure}", DataWarning, stacklevel=2)
        warn_of_scarce("test", content.y, labels)
        result = scores(content) | met(content, labels, opened.about)
        spoken.result(result, *shown(result), "", shown_classes(result))


def render_report(run: Path, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign report`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        out = out or run / REPORT
        check_file(out)
        written = TableFile(run / PREDICTIONS)
        written.check_size(LARGEST)
        table = written.read()
        with opened.reading(PREDICTIONS):
            about = opened.about
            seen = was_seen(about, about["arguments"]["--test"])
            content = contents(
                table,
                opened.labels,
                about,
                opened.read("history.json"),
                seen=seen,
                tried=opened.tried,
                findings=opened.findings,
            )
        page = render(content, scores(content))
        with replacing(out) as aside:
            aside.write_text(page, encoding="utf-8")
        spoken.result({"out": str(out)}, f"Wrote {out}")


class UnseenLevels:
    """Counts the levels of categories that training never saw, and rows of gaps, block by block."""

    def __init__(self, used: columns.Columns) -> None:
        self.used = used
        self.rows = self.read = 0
        self.levels: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.blank: list[int] = []

    def count(self, model: Model, X: pd.DataFrame) -> None:
        new = model.features_.unseen(X)
        self.rows += int(np.any(list(new.values()), axis=0).sum()) if new else 0
        for name, odd in new.items():
            if odd.any():
                self.levels[name] += int(odd.sum())
                self.examples.setdefault(name, X[name].iloc[int(odd.argmax())])
        self.blank += (1 + self.read + np.flatnonzero(X.isna().all(axis=1))).tolist()
        self.read += len(X)

    def warn(self, source: TableFile) -> None:
        """Warn of the rows counted. Call it once, after all rows."""
        if self.rows:
            where = "; ".join(
                f"{name!r}: {count}, such as {self.examples[name][:40]!r}"
                for name, count in self.levels.items()
            )
            text = f"{source} has categories that training never saw in {counted(self.rows)}"
            warnings.warn(f"{text} ({where}); they count as rare ones.", DataWarning, stacklevel=2)
        if self.blank and not self.used.blanks:
            more = len(self.blank) - 1
            which = f"row {self.blank[0]}" + (f" and {counted(more, 'other')}" if more else "")
            text = f"{source} has no value for the model in {which}"
            cure = "Remove rows that are blank: their labels rest on nothing."
            warnings.warn(f"{text}. {cure}", DataWarning, stacklevel=2)
