"""The work of `evalign predict`, `evaluate` and `report`, which start from a run folder."""

from pathlib import Path
from typing import Any

import pandas as pd

from evalign.cli.dataset import reading_of, rows
from evalign.cli.errors import UsageError, refused
from evalign.cli.files import digest, replacing
from evalign.cli.outcome import (
    contents,
    judged,
    predictions,
    probabilities,
    shown,
    shown_classes,
    was_seen,
)
from evalign.cli.run import LARGEST, PREDICTIONS, REPORT, FinishedRun
from evalign.cli.terminal import terminal
from evalign.core.text import counted, listed
from evalign.report import ModelFindings, TriedModels, render
from evalign.tables.files import TableFile, check_size, is_parquet, writing
from evalign.tables.frames import frame_like
from evalign.tables.warnings import warn_of_few, warn_of_perfect, warn_of_seen


def label_table(
    run: Path, data: Path, out: Path, *, as_json: bool, quiet: bool, **reading: Any
) -> None:
    """Do the work of `evalign predict`; `reading` are the options about reading a file."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        labels, used, names = opened.labels, opened.columns, opened.labels.written
        source = TableFile(data, reading_of(reading, used.reading))
        source.need(used.features)
        if out.exists() and out.samefile(data):
            raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
        taken = [name for name in names if name in source.names]
        if taken:
            cure = "Rename them, or remove them."
            raise UsageError(f"{source} already has columns named {listed(taken)}. {cure}")

        model = opened.classifier("model")
        # From CSV to CSV, text stays as it is. In Parquet, the model's numbers become numbers.
        as_numbers = is_parquet(out) and not is_parquet(data)
        numbers = [name for name, kind in used.kinds.items() if kind == "number" and as_numbers]
        count = 0
        with replacing(out) as aside, writing(aside, out) as write:
            for block, raw in source.blocks(used.text, used.dates):
                with refused():
                    X = frame_like(block, used.kinds, source, 1 + count)
                codes, values = judged(model, labels, X)
                added = {"prediction": labels.decode(codes)}
                added |= probabilities("probability", values, labels)
                numeric = {name: X[name].to_numpy() for name in numbers}
                write(raw.assign(**numeric, **added))
                count += len(raw)
        spoken.result({"rows": count, "out": str(out)}, f"Labelled {counted(count)}: {out}")


def score_table(run: Path, data: Path, *, as_json: bool, quiet: bool, **reading: Any) -> None:
    """Do the work of `evalign evaluate`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        used, labels = opened.columns, opened.labels
        source = TableFile(data, reading_of(reading, used.reading))
        source.need(used.used)
        models = {name: opened.classifier(name) for name in opened.models}
        blocks, count = [], 0
        for block, _ in source.blocks(used.text, used.dates):
            part = rows(block, used, labels, source, 1 + count)
            blocks.append(predictions(part, labels, models))
            count += len(block)
        seen = was_seen(opened.about, digest(data))
        with opened.reading("history.json"):
            histories = opened.read("history.json")
            table = pd.concat(blocks, ignore_index=True)
            content, result = contents(table, labels, opened.about, histories, seen=seen)
        if seen:
            warn_of_seen(source)
        else:
            warn_of_perfect(table, labels.names)
        warn_of_few("test", labels.names, content.y)
        spoken.result(result, *shown(result), "", shown_classes(result))


def render_report(run: Path, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign report`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened, out = FinishedRun(run), out or run / REPORT
        with opened.reading(PREDICTIONS):
            check_size(run / PREDICTIONS, LARGEST)
            candidates = None if opened.is_network else opened.read("candidates.json")
            content, result = contents(
                TableFile(run / PREDICTIONS).read(),
                opened.labels,
                opened.about,
                opened.read("history.json"),
                seen=was_seen(opened.about, opened.arguments["--test"]),
                tried=candidates and TriedModels(**candidates),
                findings=ModelFindings(**opened.read("findings.json")),
            )
        with replacing(out) as aside:
            aside.write_text(render(content, result), encoding="utf-8")
        spoken.result({"out": str(out)}, f"Wrote {out}")
