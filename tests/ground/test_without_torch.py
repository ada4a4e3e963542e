"""The ground floor where torch is not installed, each in a process of its own.

These tests fail where torch is installed: `make ground` has an environment without it.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tolerances

ROOT = Path(__file__).parents[2]
GROUND = [
    "cli",
    "core",
    "decisions",
    "estimators",
    "metrics",
    "opening",
    "report",
    "scoring",
    "store",
    "tables",
    "theory",
]
DECIMAL = re.compile(r"-?\d+\.\d+")


def run(*command, folder):
    """What a process says that starts Python with these arguments and must succeed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["torch", "safetensors", "tabm"])
def test_the_upper_floor_is_not_installed(package):
    assert importlib.util.find_spec(package) is None


def test_every_module_of_the_ground_floor_is_imported(tmp_path):
    script = f"""
from importlib import import_module
from pkgutil import walk_packages

count = 0
for name in {GROUND}:
    module = import_module(f"evalign.{{name}}")
    count += 1
    for part in walk_packages(getattr(module, "__path__", []), f"evalign.{{name}}."):
        import_module(part.name)
        count += 1
print(count)
"""
    assert int(run("-c", script, folder=tmp_path)) > 80


def test_the_example_of_the_readme(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n+```output\n(.*?)```", readme, re.S).groups()
    said = run("-c", code, folder=tmp_path)
    assert "AlignedDecisionCV" in code
    assert DECIMAL.sub("#", said).split() == DECIMAL.sub("#", output).split()
    decimals = [[float(x) for x in DECIMAL.findall(text)] for text in (said, output)]
    assert decimals[0] == pytest.approx(decimals[1], abs=tolerances.PRINTED)


def test_an_ensemble_is_fitted_saved_and_opened(tmp_path):
    """With all candidates that need no torch, and a report that says which one was left out."""
    script = """
import evalign
from sklearn.datasets import make_classification

X, y = make_classification(400, n_informative=4, weights=[0.85], random_state=0)
clf = evalign.AlignedEnsemble("f1", cv=2, random_state=0).fit(X[:300], y[:300])
assert "network" not in clf.weights_
clf.save("model")
assert (evalign.load("model").predict(X) == clf.predict(X)).all()
print(clf.score(X[300:], y[300:]))
"""
    assert float(run("-c", script, folder=tmp_path)) > 0.5


def test_the_command_line_fits_and_predicts(tmp_path):
    rows = [f"{x % 7 + x / 200},{'yes' if x % 7 > 4 else 'no'}" for x in range(240)]
    (tmp_path / "data.csv").write_text("\n".join(["x,label", *rows]))
    fit = ("-m", "evalign", "fit", "data.csv", "--target", "label", "--metric", "f1_macro")
    run(*fit, "--model", "boosting", "--out", "run", folder=tmp_path)
    run("-m", "evalign", "predict", "run", "data.csv", "--out", "scored.csv", folder=tmp_path)
    scored = (tmp_path / "scored.csv").read_text().splitlines()
    assert len(scored) == 241
    assert "prediction" in scored[0]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())


NEEDS_TORCH = [
    ("AlignedLoss", 'evalign.AlignedLoss("f1")'),
    ("AlignedLoss", "from evalign import AlignedLoss"),
    ("MetricLoss", "from evalign.losses import MetricLoss"),
    ("MetricLoss", 'evalign.losses.MetricLoss("f1")'),
    ("exact_backward", "from evalign.aggregation import exact_backward"),
    ("Settings", "from evalign.training import Settings"),
    ("AlignedClassifier", "evalign.AlignedClassifier().fit([[0.0], [1.0]], [0, 1])"),
    ("AlignedClassifier", "from evalign.estimators import AlignedClassifier"),
    (
        "AlignedClassifier",
        'evalign.AlignedEnsemble(candidates=["network"]).fit([[0.0]] * 9, [0, 1, 1] * 3)',
    ),
    (
        "DecisionRule.as_module",
        'evalign.fit_decision([[0, 2], [2, 0]] * 20, [1, 0] * 20, metric="f1").as_module()',
    ),
    ("Confusion.from_logits", "evalign.Confusion.from_logits([[0.0, 1.0]], [1])"),
]


def test_what_needs_torch_says_how_to_get_it(tmp_path):
    """An attribute that is not there is an AttributeError, so that `hasattr` is false."""
    script = f"""
import evalign

for code in {[code for _, code in NEEDS_TORCH]}:
    try:
        exec(code)
    except (ImportError, AttributeError) as error:
        print(error)
"""
    said = run("-c", script, folder=tmp_path).splitlines()
    assert said == [
        f"{name} needs PyTorch: pip install 'evalign[torch]'" for name, _ in NEEDS_TORCH
    ]


def test_the_face_can_be_looked_at(tmp_path):
    script = """
import evalign
from evalign import *

assert "AlignedLoss" in dir(evalign)
assert not hasattr(evalign, "AlignedLoss")
assert not hasattr(evalign.losses, "AlignedLoss")
assert all(hasattr(evalign, name) for name in evalign.__all__)
print(fit_decision.__name__, load.__name__, score.__name__)
"""
    assert run("-c", script, folder=tmp_path) == "fit_decision load score\n"
