"""The run folder: all that `fit` leaves behind, complete or absent, with checksums.

`run.json` holds the arguments, columns, classes and versions, and the SHA-256 of every other file
but `report.html`, which is made from the others.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from evalign.cli.dataset import Columns
from evalign.core.text import plain
from evalign.estimators import AlignedEnsemble
from evalign.opening import estimator_of_file
from evalign.store import files
from evalign.store.files import digest, read_json, replacing, write_json
from evalign.tables.labels import Labels

PREDICTIONS, METRICS, DETAILS = "test_predictions.parquet", "metrics.json", "details.json"
REPORT, ABOUT = "report.html", "run.json"
NETWORK = "network"  # of --model: one network, which has no candidates
LARGEST = 2**30  # bytes of a file, except those of the models
About = dict[str, Any]
Model = Any  # an AlignedEnsemble, or an AlignedClassifier of the upper floor


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
            model = estimator_of_file(self.folder / "model", {})
            same = model.classes_.tolist() == sorted(self.labels.values)
            if not same or list(model.features_.given) != self.columns.features:
                raise ValueError(f"its classes or columns are not those of {ABOUT}")
            return with_baseline(model, self.about)

    def read(self, name: str) -> Any:
        """One of its JSON files."""
        with self.reading(name):
            return json.loads(files.read_plain(self.folder / name, LARGEST))

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Report an error in here as damage to a file."""
        return files.reading(self.folder, f"{name}: ")


def with_baseline(model: Any, about: About) -> dict[str, Model]:
    """A "model" and, as "baseline", the candidate that an ensemble is compared with, if any."""
    name = about["baseline"]
    return {"model": model} | ({} if name is None else {"baseline": model.only(name)})


def strongest(model: Model) -> str | None:
    """The candidate of `gain_`, unless the ensemble is that candidate alone."""
    if not isinstance(model, AlignedEnsemble):
        return None
    against = model.gain_["against"]
    return None if list(model.weights_) == [against] else against


@contextmanager
def building(folder: Path, about: About) -> Iterator[Path]:
    """Give a folder to fill, which gets its name at the end, and is gone after an error.

    What `about` holds then becomes `run.json`.
    """
    with replacing(folder) as new:
        new.mkdir()
        yield new
        written = sorted(path for path in new.iterdir() if path.name != REPORT)
        about["files"] = {path.name: digest(path) for path in written}
        write_json(new / ABOUT, "run", plain(about))


def dump(path: Path, data: Any) -> None:
    """Write a JSON file of the run for everyone to read."""
    path.write_text(json.dumps(plain(data), indent=1), encoding="utf-8")
