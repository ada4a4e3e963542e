"""The run folder: all that `fit` leaves behind, complete or absent, with checksums.

`run.json` holds the arguments, columns, classes and versions, and the SHA-256 of every other file
but `report.html`, which is made from the others. It is built in `<folder>.partial`, beside the
checkpoints of training, from which the same command continues after a crash.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from evalign.cli.dataset import Columns
from evalign.cli.errors import UsageError
from evalign.cli.terminal import plain
from evalign.estimators import AlignedClassifier, AlignedEnsemble
from evalign.store import archive, files
from evalign.store.files import StoreError, digest, read_json, replacing, write_json
from evalign.tables.labels import Labels

try:
    import fcntl
except ImportError:  # Windows, where two commands at once do not notice each other
    fcntl = None

PREDICTIONS, METRICS, DETAILS = "test_predictions.parquet", "metrics.json", "details.json"
REPORT, ABOUT, COMMAND = "report.html", "run.json", "command.json"
NETWORK = "network"  # of --model: one network, which has no candidates
LARGEST = 2**30  # bytes of a file, except those of the models
About = dict[str, Any]
Model = AlignedClassifier | AlignedEnsemble


class FinishedRun:
    """A run folder that `fit` has completed, checked against its checksums.

    The folder may come from anyone: it names no file outside of it, and nothing in it is executed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = read_json(folder / ABOUT, "run")
        with self.reading(ABOUT):
            self.columns = Columns(**self.about["columns"])
            self.labels = Labels(self.columns.target, tuple(self.about["classes"]))
            self.arguments: About = dict(self.about["arguments"])
            for name, written in self.about["files"].items():
                path = folder / name
                inside = path.resolve().is_relative_to(folder.resolve())
                if not inside or not path.is_file() or digest(path) != written:
                    raise files.damaged(folder, f"{name} is missing, or has changed since")

    @cached_property
    def models(self) -> dict[str, Model]:
        """The "model" and, if there is one, the "baseline"."""
        with self.reading("model"):
            names = [name for name in ("model", "baseline") if name in self.about["files"]]
            found: dict[str, Any] = {name: archive.load(self.folder / name) for name in names}
            if isinstance(found["model"], AlignedEnsemble):
                found |= with_baseline(found["model"], self.about)
            for model in found.values():
                same = model.classes_.tolist() == sorted(self.labels.values)
                if not same or list(model.features_.given) != self.columns.features:
                    raise ValueError(f"its classes or columns are not those of {ABOUT}")
        return found

    def read(self, name: str) -> Any:
        """One of its JSON files."""
        with self.reading(name):
            return json.loads(files.read_plain(self.folder / name, LARGEST))

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Report an error in here as damage to a file."""
        return files.reading(self.folder, f"{name}: ")


def with_baseline(ensemble: AlignedEnsemble, about: About) -> dict[str, AlignedEnsemble]:
    """An ensemble as "model" and, as "baseline", the candidate that it is compared with, if any."""
    models = {"model": ensemble}
    if about["arguments"]["--baseline"] and about["baseline"] is not None:
        models["baseline"] = ensemble.only(about["baseline"])
    return models


def strongest(ensemble: AlignedEnsemble) -> str | None:
    """The candidate of `gain_`, unless the ensemble is that candidate alone."""
    against = ensemble.gain_["against"]
    return None if list(ensemble.weights_) == [against] else against


def finished(folder: Path, arguments: About) -> FinishedRun | None:
    """The run of these arguments, or None if it is not complete. Refuse any other folder."""
    if (folder / ABOUT).exists():
        run = FinishedRun(folder)
        _check_same(folder, run.arguments, arguments)
        return run
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not a run of evalign. Choose another --out.")
    return None


class NewRun(NamedTuple):
    """A folder for the run's files, one for checkpoints, and what becomes `run.json`."""

    folder: Path
    checkpoints: Path
    about: About


@contextmanager
def building(folder: Path, arguments: About) -> Iterator[NewRun]:
    """Give a run to fill, which gets its name at the end.

    After an error the partial folder is kept if it holds training to continue from.
    """
    partial = folder.absolute().with_name(folder.absolute().name + ".partial")
    checkpoints = partial / "checkpoints"
    about: About = {"arguments": arguments}
    with _locked(partial):
        _check_partial(partial, arguments)
        try:
            write_json(partial / COMMAND, "command", plain(arguments))
            with replacing(folder, partial / "run") as new:
                new.mkdir()
                yield NewRun(new, checkpoints, about)
                written = sorted(path for path in new.iterdir() if path.name != REPORT)
                about["files"] = {path.name: digest(path) for path in written}
                write_json(new / ABOUT, "run", plain(about))
        except BaseException:
            if not any(checkpoints.glob("*")):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(partial, ignore_errors=True)


def _check_partial(partial: Path, arguments: About) -> None:
    """Refuse a partial folder of another command."""
    if all(path.suffix == ".partial" for path in partial.iterdir()):
        return
    try:
        then = read_json(partial / COMMAND, "command")
    except StoreError as error:
        cure = "Delete it, or choose another --out."
        raise UsageError(f"{partial} exists and is not a run of evalign. {cure}") from error
    _check_same(partial, then, arguments)


def _check_same(folder: Path, then: About, now: About) -> None:
    changed = [name for name in now if then.get(name) != now[name]]
    if changed:
        what = f"{folder} belongs to a command with another {', '.join(changed)}"
        raise UsageError(f"{what}. Choose another --out, or delete it.")


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """Make the folder and lock it for this process. The system unlocks it after a crash."""
    partial.mkdir(exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        cure = "Wait for it, or choose another --out."
        raise UsageError(f"Another `evalign fit` is writing {partial}. {cure}") from error
    finally:
        os.close(descriptor)


def dump(path: Path, data: Any) -> None:
    """Write a JSON file of the run for everyone to read."""
    path.write_text(json.dumps(plain(data), indent=1), encoding="utf-8")
