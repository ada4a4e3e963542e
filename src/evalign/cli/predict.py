"""The work of `evalign predict`, `evaluate` and `report`, which start from a run folder."""

import warnings
from pathlib import Path

import pyarrow as pa

from evalign.cli import columns
from evalign.cli.dataset import rows, warn_of_scarce
from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.cli.files import digest, is_parquet, replacing
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
from evalign.cli.tables import TableFile, writing
from evalign.cli.terminal import terminal
from evalign.core.text import counted
from evalign.report import ModelFindings, TriedModels, render


def label_table(run: Path, data: Path, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign predict`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        labels, used, names = opened.labels, opened.columns, opened.labels.written
        source = TableFile(data, used.decimal)
        source.need(used.features)
        if out.exists() and out.samefile(data):
            raise UsageError(f"--out must be another file than DATA. Got {out} twice.")
        taken = [name for name in names if name in source.schema.names]
        if taken:
            cure = "Rename them, or remove them."
            raise UsageError(f"{source} already has columns named {listed(taken)}. {cure}")

        model = opened.classifier("model")
        # From CSV to CSV, text stays as it is. In Parquet, the model's numbers become numbers.
        numbers = set(used.numbers) if is_parquet(out) and not is_parquet(data) else set()
        kinds = {field.name: field.type for field in source.schema}
        kinds |= dict.fromkeys([*numbers, *names], pa.float64()) | {"prediction": labels.type}
        schema, count = pa.schema(kinds.items()), 0
        with writing(out, schema) as write:
            for block in source.blocks():
                X = columns.frame(block, used, source, 1 + count)
                parts = {name: block[name] for name in block.column_names}
                parts |= {name: pa.array(X[name], from_pandas=True) for name in numbers}
                codes, values = judged(model, labels, X)
                parts["prediction"] = labels.decode(codes)
                parts |= probabilities("probability", values, labels)
                write(pa.table(parts, schema=schema))
                count += block.num_rows
            source.check_rows(count)
        spoken.result({"rows": count, "out": str(out)}, f"Labelled {counted(count)}: {out}")


def score_table(run: Path, data: Path, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign evaluate`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened = FinishedRun(run)
        used, labels = opened.columns, opened.labels
        source = TableFile(data, used.decimal)
        source.need(used.used)
        models = {name: opened.classifier(name) for name in opened.models}
        blocks, count = [], 0
        for block in source.blocks():
            part = rows(block, used, labels, source, 1 + count)
            blocks.append(predictions(part, labels, models))
            count += block.num_rows
        source.check_rows(count)
        seen = was_seen(opened.about, digest(data))
        with opened.reading("run.json"):
            histories = opened.read("history.json")
            table = pa.concat_tables(blocks)
            content, result = contents(table, labels, opened.about, histories, seen=seen)
        if seen:
            text = f"The run was trained or selected on {source}, so the scores are too good."
            warnings.warn(f"{text} Give rows that it has not seen.", DataWarning, stacklevel=2)
        warn_of_scarce("test", content.y, labels)
        spoken.result(result, *shown(result), "", shown_classes(result))


def render_report(run: Path, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Do the work of `evalign report`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        opened, out = FinishedRun(run), out or run / REPORT
        written = TableFile(run / PREDICTIONS)
        written.check_size(LARGEST)
        with opened.reading(PREDICTIONS):
            candidates = None if opened.is_network else opened.read("candidates.json")
            content, result = contents(
                written.read(),
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
