"""`evalign-study reproduce`: the papers' tables, run again and held against what was printed.

And the suite of our own recipe, under the name "recipe".
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from rich import progress as bars
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from evalign.cli.errors import UsageError, refused
from evalign.cli.files import replacing
from evalign.cli.options import Json, Quiet
from evalign.cli.terminal import Terminal, terminal
from evalign.core.checks import complaint, nearest
from evalign_study.papers import tables
from evalign_study.papers.evidence import Evidence
from evalign_study.papers.formats import Part, markdown
from evalign_study.papers.plan import on
from evalign_study.papers.render import fill, headlines, parts, write
from evalign_study.papers.reproduce import Progress, planned, recorded
from evalign_study.papers.reproduce import reproduce as run
from evalign_study.papers.verdicts import verdicts
from evalign_study.records.execute import ExecutionError
from evalign_study.records.results import ResultsWarning
from evalign_study.suite import recipe
from evalign_study.suite.tables import SETS

ALL = "all"
Found = Evidence | recipe.Outcome


def reproduce(
    name: Annotated[str, Argument(help="A table or figure, see --list; or all.")] = "",
    listed: Annotated[bool, Option("--list", help="Show the tables and figures.")] = False,
    dataset: Annotated[
        list[str] | None, Option(metavar="NAME", help="One of its data sets. May be repeated.")
    ] = None,
    trials: Annotated[
        int | None, Option(min=1, help="Seeds of each setting (default: the paper's number).")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="A small slice to see that it runs; numbers mean nothing.")
    ] = False,
    out: Annotated[Path, Option(help="The folder for the tables.")] = Path("reproduction"),
    results: Annotated[Path, Option(help="The folder with the records.")] = Path("results"),
    render_only: Annotated[bool, Option("--render-only", help="Train nothing.")] = False,
    page: Annotated[
        Path | None, Option(help="A Markdown page with marked places for the tables, to fill.")
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Units of work at a time.")] = 1,
    backend: Annotated[
        str | None, Option(help='"dask": on the cluster at DASK_SCHEDULER_ADDRESS, or a local one.')
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a table of a paper again: the same splits, honest baselines, a verdict for each claim.

    What is recorded is not run again, so that the same command goes on after a crash. Written are
    NAME.md, NAME.html and NAME.csv with the numbers, and of a paper NAME-claims.csv with every
    verdict.

    Examples:

        evalign reproduce --list

        evalign reproduce east-table1 --dataset adult --trials 10

        evalign reproduce recipe --render-only

        evalign reproduce all --quick
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        warnings.simplefilter("always", ResultsWarning)
        if listed:
            return _show_list(spoken)
        if not name:
            raise UsageError("Name a table, or all. `evalign-study reproduce --list` shows them.")
        known = [*tables.names(), recipe.NAME, ALL]
        if name not in known:
            allowed, cure = f"be one of {', '.join(known)}", nearest(name, known)
            raise UsageError(complaint("reproduce", "name", allowed, repr(name), cure))
        if render_only and not quick and not results.is_dir():
            raise UsageError(f"--results must be the folder of the records. Got {str(results)!r}.")
        for option, folder in {"--out": out, "--results": results}.items():
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"{option} must be a folder. Got {str(folder)!r}.")
        if name == ALL and dataset:
            raise UsageError("--dataset is for one table: name it in place of all.")
        if backend not in (None, "dask"):
            raise UsageError(f'backend of reproduce must be "dask". Got {backend!r}.')
        if name == recipe.NAME and trials is not None:
            raise UsageError(f"--trials is for tables: {recipe.NAME} has its splits and seeds.")
        if page is not None and (dataset or trials is not None or quick):
            rest = "leave --dataset, --trials and --quick out"
            raise UsageError(f"--page is for whole tables: {rest}.")
        found: dict[str, Found] = {}
        failed = []
        with refused():
            names = [*tables.names(), recipe.NAME] if name == ALL else [name]
            papers = [one for one in names if one != recipe.NAME]
            paged = papers if name == ALL else names  # the recipe has a page of its own
            if page is not None:
                _fill(page, dict.fromkeys(paged, ""), dry=True)
            for one in papers:
                on(tables.table(one), dataset)
            if recipe.NAME in names:
                recipe.planned(dataset, quick=quick)
            written = out / "quick" if quick else out
            what = {"datasets": dataset, "quick": quick}
            where = {"out": out, "results": results, "jobs": jobs, "backend": backend}
            if render_only:
                records = recorded(written if quick else results).values()
                for one in papers:
                    evidence = Evidence(planned(one, trials=trials, **what), records)
                    write(evidence, written)
                    found[one] = evidence
                if recipe.NAME in names:
                    found[recipe.NAME] = recipe.reproduce(**what, **where, render_only=True)
            else:
                with _cluster(backend), _bar(spoken) as progress:
                    how = {**what, **where, "progress": progress}
                    for one in names:
                        try:
                            if one == recipe.NAME:
                                found[one] = recipe.reproduce(**how)
                            else:
                                found[one] = run(one, trials=trials, **how)
                        except ExecutionError as error:  # what was recorded is written down
                            first, *_, last = str(error).splitlines()
                            failed.append(f"{one}: {first} The last error: {last}")
            if page is not None:
                _fill(page, {one: markdown(_parts(found[one])) for one in paged if one in found})
        _show(spoken, found, written, quick=quick)
        if failed:
            raise UsageError("; ".join(failed))


def _parts(of: Found) -> Iterator[Part]:
    return recipe.parts(of) if isinstance(of, recipe.Outcome) else parts(of)


def _fill(page: Path, texts: dict[str, str], *, dry: bool = False) -> None:
    """Write texts between their marks; or see that it can be done, before hours of training."""
    text = page.read_text(encoding="utf-8")
    for name, of in texts.items():
        text = fill(text, name, of)
    if not dry:
        with replacing(page) as aside:
            aside.write_text(text, encoding="utf-8")


def _show_list(spoken: Terminal) -> None:
    known = [tables.table(name) for name in tables.names()]
    shown = Table(box=None, pad_edge=False, show_header=False)
    for table in known:
        shown.add_row(table.name, table.title)
    data = {
        table.name: {
            "title": table.title,
            "datasets": list(dict.fromkeys(panel.dataset for panel in table.panels)),
            "claims": [claim.text for claim in table.claims],
        }
        for table in known
    }
    shown.add_row(recipe.NAME, recipe.TITLE)
    data[recipe.NAME] = {"title": recipe.TITLE, "datasets": [*SETS, *recipe.IMAGES], "claims": []}
    spoken.result({"tables": data}, shown)


def _show(spoken: Terminal, found: dict[str, Found], out: Path, *, quick: bool) -> None:
    data, shown = {}, []
    for name, evidence in found.items():
        if isinstance(evidence, recipe.Outcome):
            bars = evidence.headline
            data[name] = [bar._asdict() for bar in bars]
            met = f"{sum(bar.met for bar in bars)} of {len(bars)} bars met. {evidence.part}".strip()
            shown += [f"{recipe.TITLE} ({name})", met if bars else "Not run.", ""]
            continue
        judged = list(verdicts(evidence))
        data[name] = [
            {"claim": claim.text, "data set": panel.label}
            | {way: _plain(verdict) for way, verdict in seen.items()}
            for claim, panel, seen in judged
        ]
        shown += [f"{evidence.table.title} ({name})", *headlines(seen for *_, seen in judged), ""]
    if quick:
        shown.append("A quick look: these numbers mean nothing.")
    spoken.result({"tables": data, "out": str(out)}, *shown, f"Written to {out}.")


def _plain(verdict: Any) -> dict[str, Any]:
    difference = verdict.difference and verdict.difference._asdict()
    return {"verdict": verdict.word, "reason": verdict.reason, "difference": difference}


@contextmanager
def _bar(spoken: Terminal) -> Iterator[Progress]:
    """One bar, for one phase after the other."""
    left = bars.TextColumn("{task.fields[left]}")
    columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()]
    console = Console(stderr=True)
    bar = bars.Progress(*columns, left, console=console, disable=spoken.quiet)
    task = bar.add_task("", left="")

    def tell(phase: str, done: int, total: int, seconds: float) -> None:
        bar.start()  # not before there is something to tell: an error is to be one line
        time = f"{timedelta(seconds=round(seconds))} left"
        bar.update(task, description=phase, completed=done, total=total, left=time)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()


def _cluster(backend: str | None) -> Any:
    if backend is None:
        return nullcontext()
    try:
        from dask.distributed import Client  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        text = "distributed is not installed. Run: pip install evalign-study"
        raise UsageError(text) from error
    return Client()
