"""`evalign-study list`, `run` and `render`: the tables of the papers, and our own."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Argument, Option

from evalign.cli.errors import UsageError, refused
from evalign.cli.options import Json, Quiet
from evalign.cli.terminal import Terminal, terminal
from evalign.store.files import replacing
from evalign_study import catalog, planning, running
from evalign_study.cli.progress import bar, cluster
from evalign_study.cli.protocols import (
    FOLDER,
    Asked,
    is_protocol,
    render_protocol,
    run_protocol,
    state,
)
from evalign_study.pipeline.execute import ExecutionError
from evalign_study.pipeline.formats import markdown, on_page
from evalign_study.pipeline.running import run as run_table
from evalign_study.pipeline.table import Findings
from evalign_study.pipeline.writing import fill, has_place, write
from evalign_study.records.results import ResultsWarning, recorded
from evalign_study.trainers.rivals import PYTHON

ALL = "all"
# Where the repository keeps them, if this is it.
RESULTS = Path("study/results") if Path("study/results").is_dir() else Path("results")
Out = Annotated[Path, Option(help="The folder for the tables.")]
Folder = Annotated[Path, Option("--results", help="The folder with the records.")]


def list_tables(as_json: Json = False, quiet: Quiet = False) -> None:
    """List the tables and figures; of protocols also how many runs are there.

    Examples:

        evalign-study list
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        tables = catalog.tables()
        data: dict[str, dict[str, Any]] = {
            name: {"title": table.title, "datasets": table.datasets, "claims": table.claims}
            for name, table in tables.items()
        }
        known = running.known_records(RESULTS / FOLDER, before=RESULTS)
        for name in planning.names():
            data.setdefault(name, {"title": planning.table(name)["title"]})
            data[name] |= state(name, known)
        shown = Table(box=None, pad_edge=False, show_header=False)
        for name, told in data.items():
            shown.add_row(name, told["title"])
        counts = [
            f"{name}: {data[name]['done']:,} of {data[name]['needed']:,} runs of its protocol, "
            f"{data[name]['capped']:,} capped"
            for name in planning.names()
        ]
        spoken.result({"tables": data}, shown, "", *counts)


def run(
    name: Annotated[str, Argument(metavar="TABLE", help="See `evalign-study list`; or all.")],
    dataset: Annotated[
        list[str] | None, Option(metavar="NAME", help="One of its data sets. May be repeated.")
    ] = None,
    trials: Annotated[
        int | None, Option(min=1, help="Seeds of each setting (default: the paper's number).")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="A small slice to see that it runs; numbers mean nothing.")
    ] = False,
    line: Annotated[
        list[str] | None, Option(metavar="LINE", help="A line, as printed. May be repeated.")
    ] = None,
    variant: Annotated[
        list[str] | None, Option(metavar="NAME", help="paper (the default) or strict.")
    ] = None,
    setting: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="Another setting.")
    ] = None,
    data: Annotated[
        Path | None, Option(metavar="CSV", help="A table of your own, in place of the data sets.")
    ] = None,
    target: Annotated[
        str | None, Option(metavar="COLUMN", help="The column of labels of --data.")
    ] = None,
    loss: Annotated[
        str | None, Option(metavar="MODULE:FACTORY", help="A loss of your own, as one more line.")
    ] = None,
    seconds: Annotated[
        float | None, Option(min=0, help="Stop after them; the same command goes on.")
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Units of work at a time.")] = 1,
    backend: Annotated[
        str | None, Option(help='"dask": on the cluster at DASK_SCHEDULER_ADDRESS, or a local one.')
    ] = None,
    autogluon: Annotated[
        Path | None, Option(metavar="PYTHON", help="An interpreter with AutoGluon, for models.")
    ] = None,
    out: Out = Path("reproduction"),
    results: Folder = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the runs of a table that are not recorded yet, and write the results.

    After a crash, the same command continues where it stopped. A quick look keeps its records and
    files apart, in the folder "quick" of --out.

    Examples:

        evalign-study run east-table1 --dataset adult --trials 10

        evalign-study run east-table1 --set patience=20 --out my-run

        evalign-study run east-table1 --data my.csv --target y --loss mine:loss

        evalign-study run all --quick
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken, refused():
        warnings.simplefilter("always", ResultsWarning)
        _refuse_files(out, results)
        if is_protocol(name):
            asked = Asked(
                name,
                panels=dataset,
                lines=line,
                variants=variant or ["paper"],
                changes=setting or [],
                trials=trials,
                quick=quick,
                data=data,
                target=target,
                loss=loss,
            )
            run_protocol(spoken, asked, out, results, jobs=jobs, seconds=seconds)
            return
        if line or variant or setting or data or target or loss or seconds:
            listed = ", ".join(planning.names())
            options = "--line, --variant, --set, --data, --target, --loss and --seconds"
            raise UsageError(f"{options} are for the tables {listed}. Got {name!r}.")
        if name == ALL and (dataset or trials is not None):
            raise UsageError("--dataset and --trials are for one table: name it in place of all.")
        if backend not in (None, "dask"):
            raise UsageError(f'backend of run must be "dask". Got {backend!r}.')
        if autogluon is not None:
            if not autogluon.is_file():
                raise UsageError(f"--autogluon must be an interpreter. Got {str(autogluon)!r}.")
            os.environ[PYTHON] = str(autogluon.absolute())  # processes of other units see it
        what = {"datasets": dataset, "trials": trials, "quick": quick}
        tables = [table.part(**what) for table in catalog.named(name)]
        _refuse_files(out, results)
        if quick:
            out = results = out / "quick"
        found: dict[str, Findings] = {}
        failed = []
        with cluster(backend), bar(spoken) as progress:
            for table in tables:
                try:
                    run_table(table, results, jobs=jobs, backend=backend, progress=progress)
                except ExecutionError as error:  # the records of the other units are still written
                    first, *_, last = str(error).splitlines()
                    failed.append(f"{table.name}: {first} The last error: {last}")
                found[table.name] = table.findings(recorded(results), results)
                write(table.name, found[table.name], out)
        _show(spoken, found, out, quick=quick)
        if failed:
            raise UsageError("; ".join(failed))


def render(
    name: Annotated[str, Argument(metavar="TABLE", help="See `evalign-study list`.")] = ALL,
    page: Annotated[
        Path | None, Option(help="A Markdown page with marked places for tables, to fill.")
    ] = None,
    out: Out = Path("reproduction"),
    results: Folder = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the recorded results of one table, or of all, without training.

    The command writes NAME.md, NAME.html and NAME.csv with all numbers; a page gets the summary.
    For a table of a paper it also writes NAME-claims.csv with every verdict.

    Examples:

        evalign-study render

        evalign-study render recipe --page docs/evidence/training.md
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken, refused():
        warnings.simplefilter("always", ResultsWarning)
        tables = [] if _is_new(name) else catalog.named(name)
        if not results.is_dir():
            raise UsageError(f"--results must be the folder of the records. Got {str(results)!r}.")
        _refuse_files(out, results)
        text = "" if page is None else page.read_text(encoding="utf-8")
        # "all" covers tables of several pages, so a page gets only the tables it has marks for.
        places = [table.name for table in tables if has_place(text, table.name)]
        if page is not None and not places:
            fill(text, tables[0].name, "")  # raises the error that names the missing marks
        records = recorded(results)
        protocols = [one for one in planning.names() if name in (one, ALL)]
        if protocols:
            known = running.known_records(results / FOLDER, before=results)
            for one in protocols:
                render_protocol(Asked(one), known, out)
        found = {table.name: table.findings(records, results) for table in tables}
        for one, findings in found.items():
            write(one, findings, out)
        if page is not None:
            for one in places:
                text = fill(text, one, markdown(on_page(found[one].parts)))
            with replacing(page) as aside:
                aside.write_text(text, encoding="utf-8")
        _show(spoken, found, out)


def _is_new(name: str) -> bool:
    """Whether a table has no records but those of its protocol."""
    return is_protocol(name) and name not in catalog.tables()


def _refuse_files(out: Path, results: Path) -> None:
    for option, folder in {"--out": out, "--results": results}.items():
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{option} must be a folder. Got {str(folder)!r}.")


def _show(
    spoken: Terminal, found: Mapping[str, Findings], out: Path, *, quick: bool = False
) -> None:
    shown = [
        line
        for name, findings in found.items()
        for line in (f"{findings.title} ({name})", *findings.lines, "")
    ]
    if quick:
        shown.append("A quick look: these numbers mean nothing.")
    data = {name: findings.data for name, findings in found.items()}
    spoken.result({"tables": data, "out": str(out)}, *shown, f"Written to {out}.")
