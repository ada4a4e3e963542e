"""The progress bar of a long run, and the cluster it computes on."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

from rich import progress as bars
from rich.console import Console

from evalign.cli.errors import UsageError
from evalign.cli.terminal import Terminal
from evalign_study.pipeline.running import Progress
from evalign_study.refusals import installing


@contextmanager
def bar(spoken: Terminal) -> Iterator[Progress]:
    """Show one progress bar, which the phases use in turn."""
    left = bars.TextColumn("{task.fields[left]}")
    columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()]
    console = Console(stderr=True)
    shown = bars.Progress(*columns, left, console=console, disable=spoken.quiet)
    task = shown.add_task("", left="")

    def tell(phase: str, done: int, total: int, seconds: float) -> None:
        shown.start()  # only now, so that an error before the first unit stays one line
        time = f"{timedelta(seconds=round(seconds))} left"
        shown.update(task, description=phase, completed=done, total=total, left=time)

    try:
        yield tell
    finally:
        if shown.live.is_started:
            shown.stop()


def cluster(backend: str | None) -> AbstractContextManager[object]:
    """Connect to the cluster of a backend; without a backend do nothing."""
    if backend is None:
        return nullcontext()
    try:
        from dask.distributed import Client  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        text = f"distributed is not installed. {installing('study')}"
        raise UsageError(text) from error
    return Client()
