"""The run folder: all that `fit` leaves behind, complete or absent, with checksums.

| file                       | holds                                                           |
| -------------------------- | --------------------------------------------------------------- |
| `run.json`                 | format, arguments, columns, classes, versions, SHA-256 of files |
| `model/`, `baseline/`      | `AlignedClassifier.save`, or `AlignedEnsemble.save` for both    |
| `test_predictions.parquet` | the models' answers for the test rows                           |
| `metrics.json`             | `evalign.report.scores` of them                                 |
| `history.json`             | a record per epoch, for each network                            |
| `candidates.json`          | what each model of an ensemble reaches                          |
| `findings.json`            | warnings, the rules, and the columns that matter                |
| `report.html`              | made from the others, and the only one without a checksum       |

It is built in `<folder>.partial/run` and renamed at the end. The checkpoints of the training lie
beside it: after a crash the same command continues from them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evalign.cli.columns import Columns
from evalign.cli.dates import FORMS
from evalign.cli.errors import UsageError
from evalign.cli.files import digest, partial_folder, replacing, synced
from evalign.cli.labels import Labels
from evalign.ensemble import AlignedEnsemble
from evalign.estimator import AlignedClassifier
from evalign.report import ModelFindings, TriedModels
from evalign.training import CheckpointError
from evalign.training.checkpoint import WRONG_TREE, read_plain, sync_folder

try:
    import fcntl
except ImportError:  # Windows, where two commands at once do not notice each other
    fcntl = None

FORMAT = "evalign run"
VERSION = 5  # models are trained on labels, not on codes
PREDICTIONS = "test_predictions.parquet"
REPORT = "report.html"
MODELS = ("model", "baseline")
NETWORK = "network"  # of --model: one network, which has no candidates
LARGEST = 2**30  # bytes of a file, but for those of the models
About = dict[str, Any]
Model = AlignedClassifier | AlignedEnsemble
SHAPE: dict[str, type] = {
    "arguments": dict,
    "files": dict,
    "file": str,
    "columns": dict,
    "classes": list,
    "rows_per_class": list,
    "rows": dict,
    "versions": dict,
}


class FinishedRun:
    """A run folder that `fit` has completed, checked against its checksums.

    Args:
        folder: what `fit` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = _read_about(folder)
        for name, written in self.about["files"].items():
            with self.reading(name):
                self._check(name, written)
        for name in ("history.json", "metrics.json", PREDICTIONS):
            if name not in self.about["files"]:
                raise _damaged(folder, f"run.json does not name {name}")

    def _check(self, name: str, written: str) -> None:
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise _damaged(self.folder, f"{name} is outside of it")
        if not path.is_file():  # a pipe or a device has no end
            raise _damaged(self.folder, f"{name} is missing, or no plain file")
        if digest(path) != written:
            raise _damaged(self.folder, f"{name} has changed since it was written")

    @property
    def columns(self) -> Columns:
        return Columns(**self.about["columns"])

    @property
    def labels(self) -> Labels:
        return Labels(self.columns.target, tuple(self.about["classes"]))

    @property
    def models(self) -> list[str]:
        """ "model", and "baseline" if there is one."""
        if self._is_network:
            return [name for name in MODELS if f"{name}/manifest.json" in self.about["files"]]
        with self.reading("run.json"):
            return list(with_baseline(self._ensemble, self.about))

    @property
    def _is_network(self) -> bool:
        return self.about["arguments"]["--model"] == NETWORK

    @cached_property
    def _ensemble(self) -> AlignedEnsemble:
        with self.reading("model"):
            return AlignedEnsemble.load(self.folder / "model")

    def classifier(self, name: str) -> Model:
        """One of its models."""
        with self.reading(name):
            if self._is_network:
                model = AlignedClassifier.load(self.folder / name)
            else:
                model = with_baseline(self._ensemble, self.about)[name]
            if model.classes_.tolist() != sorted(self.labels.values):
                raise ValueError("its classes are others than those of run.json")
            if list(model.features_.given) != self.columns.features:
                raise ValueError("its columns are others than those of run.json")
            return model

    @property
    def tried(self) -> TriedModels | None:
        """The models that an ensemble was made of."""
        name = "candidates.json"
        with self.reading(name):
            return TriedModels(**self.read(name)) if name in self.about["files"] else None

    @property
    def findings(self) -> ModelFindings | None:
        """What else is known of the models, unless an older version wrote the run."""
        name = "findings.json"
        with self.reading(name):
            return ModelFindings(**self.read(name)) if name in self.about["files"] else None

    def read(self, name: str) -> Any:
        """One of its JSON files."""
        with self.reading(name):
            return json.loads(read_plain(self.folder / name, LARGEST))

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Within it, an error is that of a file that `fit` did not write so."""
        try:
            yield
        except (UsageError, CheckpointError):
            raise
        except (OSError, EOFError, MemoryError, *WRONG_TREE) as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise _damaged(self.folder, f"{name} cannot be used: {why[:300]}") from error


def with_baseline(ensemble: AlignedEnsemble, about: About) -> dict[str, AlignedEnsemble]:
    """An ensemble as "model", and as "baseline" the candidate that it is held to, if any."""
    models = {"model": ensemble}
    if about["arguments"]["--baseline"] and about["baseline"] is not None:
        models["baseline"] = ensemble.only(about["baseline"])
    return models


def strongest(ensemble: AlignedEnsemble) -> str | None:
    """The candidate with the best score on held-out rows, but for one that the ensemble is."""
    scores = dict(
        zip(ensemble.cv_results_["candidate"], ensemble.cv_results_["rule_score"], strict=True)
    )
    others = [name for name in ensemble.models_ if list(ensemble.weights_) != [name]]
    return max(others, key=lambda name: np.nan_to_num(scores[name], nan=-np.inf), default=None)


def finished(folder: Path, arguments: About) -> FinishedRun | None:
    """The run of these arguments, or None if it is not complete. Refuse any other folder."""
    partial = partial_folder(folder)
    if (folder / "run.json").exists():
        run = FinishedRun(folder)
        _check_same(folder, run.about["arguments"], arguments)
        if _command(partial) == arguments:  # killed between the rename and its removal
            _remove(partial)
        return run
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not a run of evalign. Choose another --out.")
    command = _command(partial)
    if command is not None:
        _check_same(partial, command, arguments)
    elif partial.exists() and set(partial.iterdir()) - set(partial.glob("command.json.*.partial")):
        raise UsageError(f"{partial} exists and is not a run of evalign. Choose another --out.")
    return None


@contextmanager
def building(folder: Path, arguments: About) -> Iterator[tuple[Path, Path, About]]:
    """Give a folder for the run's files, one for checkpoints, and what becomes `run.json`.

    After an error the partial folder is kept if it holds training to continue from.
    """
    partial = partial_folder(folder)
    building, checkpoints = partial / "run", partial / "checkpoints"
    about: About = {"format": FORMAT, "version": VERSION, "arguments": arguments}
    with _alone(partial):
        try:
            with replacing(partial / "command.json") as aside:
                aside.write_text(json.dumps(arguments, indent=1), encoding="utf-8")
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            yield building, checkpoints, about
            _finish(building, about)
            if folder.exists():
                folder.rmdir()
            sync_folder(building)
            os.rename(building, folder)
            sync_folder(partial.parent)
        except BaseException:
            shutil.rmtree(building if any(checkpoints.glob("*")) else partial, ignore_errors=True)
            raise
        _remove(partial)


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Make the folder and lock it for this process. The system unlocks it after a crash."""
    partial.mkdir(exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            cure = "Wait for it, or choose another --out."
            raise UsageError(f"Another `evalign fit` is writing {partial}. {cure}") from error
        yield
    finally:
        os.close(descriptor)


def _finish(folder: Path, about: About) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        synced(path)
    digests = {path.relative_to(folder).as_posix(): digest(path) for path in files}
    digests.pop(REPORT, None)
    about["files"] = digests
    about["sha256"] = _digest_of(about)
    with replacing(folder / "run.json") as aside:
        aside.write_text(json.dumps(about, indent=1), encoding="utf-8")


def _command(partial: Path) -> About | None:
    """The arguments of the run that is being built there, or None."""
    path = partial / "command.json"
    if not path.exists():
        return None
    try:
        return json.loads(read_plain(path, LARGEST))
    except (ValueError, OSError, RecursionError) as error:
        cure = "Delete the folder to start afresh."
        raise UsageError(f"{path} cannot be read: {error}. {cure}") from error


def _remove(partial: Path) -> None:
    """Delete the folder, its command last: until then the rest is known to be this run's."""
    shutil.rmtree(partial / "checkpoints", ignore_errors=True)
    shutil.rmtree(partial, ignore_errors=True)


def _read_about(folder: Path) -> About:
    path = folder / "run.json"
    try:
        about = json.loads(read_plain(path, LARGEST))
    except (ValueError, OSError, RecursionError) as error:
        raise _damaged(folder, f"run.json cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UsageError(f"{folder} is not a run of evalign: see its run.json.")
    if about.get("version") != VERSION:
        got, cure = about.get("version"), "Use it with the version of evalign that wrote it."
        raise UsageError(f"{folder} has format version {got}, this is {VERSION}. {cure}")
    if about.pop("sha256", None) != _digest_of(about):
        raise _damaged(folder, "run.json has changed since it was written")
    wrong = [name for name, kind in SHAPE.items() if not isinstance(about.get(name), kind)]
    if wrong or not _is_sound(about):
        raise _damaged(folder, f"run.json does not say what `evalign fit` writes {wrong or ''}")
    return about


def _is_sound(about: About) -> bool:
    """Whether columns are texts, and classes two or more different texts or numbers."""
    try:
        found, classes = Columns(**about["columns"]), about["classes"]
        names = [*found.used, *found.left_out]
        kinds = {type(label) for label in classes}
        ok = all(isinstance(name, str) and "\0" not in name for name in [*names, *about["files"]])
        forms = found.date_forms
        ok = ok and isinstance(forms, dict) and set(forms) <= set(found.dates)
        ok = ok and set(forms.values()) <= set(FORMS) and found.decimal in (".", ",")
        truths = found.truths
        ok = ok and isinstance(truths, dict) and set(truths) <= set(found.categories)
        ok = ok and all([type(text) for text in pair] == [str, str] for pair in truths.values())
        ok = ok and isinstance(found.percents, dict) and type(found.blanks) is bool
        ok = ok and all(type(signs) is bool for signs in found.percents.values())
        alike = len(kinds) == 1 and kinds <= {str, int, float}
        return ok and alike and len(set(classes)) == len(classes) > 1
    except TypeError:
        return False


def _check_same(folder: Path, then: About, now: About) -> None:
    for name in {**then, **now}:
        if then.get(name) != now.get(name):
            got = f"{name} was {then.get(name)} and is now {now.get(name)}"
            if name == "data":  # a checksum, which tells a reader nothing
                got = "DATA is another table, or has changed since"
            cure = "Choose another --out, or delete it."
            raise UsageError(f"{folder} belongs to another command: {got}. {cure}")


def _digest_of(about: About) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, why: str) -> UsageError:
    return UsageError(f"{folder} is damaged: {why}. Restore it from a copy, or fit again.")
