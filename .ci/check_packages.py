"""Looks into the built packages, and uses them in an environment that has nothing else.

python .ci/check_packages.py dist
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
DECISION = """
import importlib.util

import evalign
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

X, y = make_classification(500, weights=[0.9], random_state=0)
clf = evalign.AlignedDecisionCV(LogisticRegression(), metric="f1", random_state=0).fit(X, y)
assert clf.score(X, y) > 0.5, clf.score(X, y)
assert importlib.util.find_spec("torch") is None
try:
    from evalign import AlignedLoss
except ImportError as error:
    assert str(error) == "AlignedLoss needs PyTorch: pip install 'evalign[torch]'", error
else:
    raise AssertionError("AlignedLoss without torch")
"""
NETWORK = """
import numpy as np
from evalign import AlignedClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = (X[:, 0] > 1).astype(int)
model = AlignedClassifier(epochs=5, random_state=0).fit(X, y)
assert model.score(X, y) > 0.5, model.score(X, y)
"""


def check_contents(archive: Path) -> None:
    """A wheel holds the package and its metadata; an sdist the source and what belongs to it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
        package = archive.name.split("-")[0]
        expected = (f"{package}/", f"{package}-")
    else:
        with tarfile.open(archive) as sdist:
            names = [name.split("/", 1)[1] for name in sdist.getnames()]
        expected = ("src/", "pyproject.toml", "PKG-INFO", "README", "LICENSE", "CHANGELOG", ".git")
    strange = [x for x in names if not x.startswith(expected) or "results" in Path(x).parts]
    assert not strange, f"{archive.name} holds {strange[:10]}"


def main(dist: Path) -> None:
    archives = sorted(dist.iterdir())
    assert len(archives) == 4, archives  # a wheel and an sdist of each package
    for archive in archives:
        check_contents(archive)
    (library,), (study,) = dist.glob("evalign-*.whl"), dist.glob("evalign_study-*.whl")

    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder) / "venv", with_pip=True)
        programs = Path(folder) / "venv" / ("Scripts" if os.name == "nt" else "bin")
        # Only what the packages bring along, not what happens to lie on the path.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), *arguments]
            subprocess.run(command, cwd=folder, env=environment, check=True)

        def install(*packages: str) -> None:
            run("python", "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS), *packages)

        install(str(library.resolve()))
        run("python", "-c", DECISION)
        install(f"{library.resolve()}[cli]")
        run("evalign", "--version")
        run("python", "-c", DECISION)  # no extra brings torch by the way
        install(f"{library.resolve()}[torch]")
        run("python", "-c", NETWORK)
        install(str(study.resolve()))
        run("evalign-study", "--help")
    print("OK")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
