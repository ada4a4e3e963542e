"""`import evalign` loads nothing but itself; what is asked for is loaded then."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules

import pytest

import evalign
from evalign.core.stairs import has_torch

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_of(*requirements):
    names = {name.split("[")[0].split(">")[0].replace("-", "_") for name in requirements}
    return {"sklearn" if name == "scikit_learn" else name for name in names} - {"evalign"}


EXTRAS = packages_of(*chain(*PROJECT["project"]["optional-dependencies"].values()))
NEEDED = packages_of(*PROJECT["project"]["dependencies"])


def loaded_by(*steps):
    """Return the packages in memory after each of these steps, which one process takes in turn."""
    tell = "print(*{name.split('.')[0] for name in sys.modules})"
    script = "\n".join(["import sys", *(f"{code}\n{tell}" for code in steps)])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_what_is_asked_for_is_loaded_then():
    """A new process is needed, as here everything is in memory already."""
    nothing, folder, a_rule, estimator = loaded_by(
        "import evalign, evalign.__main__",
        "evalign.integrations",
        "evalign.decisions.Decision, evalign.Confusion, evalign.metrics, evalign.DecisionRule",
        "evalign.AlignedDecisionCV",
    )
    assert {"numpy", "scipy", "sklearn", "narwhals"} <= NEEDED
    assert not nothing & (EXTRAS | NEEDED)
    assert not folder & (EXTRAS | NEEDED)
    assert a_rule & (EXTRAS | NEEDED) == {"numpy"}
    # scikit-learn itself loads these, where they are installed.
    assert not estimator & EXTRAS - {"pandas", "pyarrow", "rich"}
    assert "torch" not in estimator


def test_public_names_are_there():
    upper = set() if has_torch() else set(evalign._UPPER)
    for name in {*dir(evalign)} - upper:
        assert getattr(evalign, name) is not None
    assert set(evalign.__all__) <= {*dir(evalign)} - upper
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = evalign.Nothing


def test_type_checkers_see_what_there_is():
    """Names that appear at run time alone are unknown to an editor."""
    tree = ast.parse(Path(evalign.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [alias.name for line in block.body for alias in line.names]
    assert sorted([*imported, "__version__"]) == dir(evalign)


def test_every_public_module_is_listed():
    """`kernels` and `membership` are reached by losses, `store` by `save`, `cli` by the program."""
    found = {module.name for module in iter_modules(evalign.__path__)}
    functions = {"opening", "scoring"}  # `load` and `score`
    reached = {"__main__", "cli", "kernels", "membership", "store"}
    assert found & set(dir(evalign)) == found - reached - functions


def test_the_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert ROOT / PROJECT["tool"]["hatch"]["version"]["path"] == ROOT / "src/evalign/__init__.py"
    assert version("evalign") == evalign.__version__
