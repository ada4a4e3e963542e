"""Saved classifiers that somebody made: checksums are right, what they hold is not."""

import math
import shutil

import pytest
import torch

from evalign import AlignedClassifier
from evalign.store.files import StoreError
from tests.forged import forge, opened, put
from tests.ground.made import imbalanced

X, Y = imbalanced(120, classes=3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    model = AlignedClassifier(
        epochs=1,
        device="cpu",
        decision="argmax",
        random_state=0,
    )
    model.fit(X, Y).save(path)
    return path


CASES = [
    *((name, value) for name in ("rule", "network", "scaler", "classes")
      for value in (..., None, 3, "text", [], {})),
    *(("arguments", value) for value in (..., None, 3, "text")),
    ("functions", ...),
    ("functions", 3),
    ("functions", ["nosuch"]),
    ("seed", ...),
    ("seed", "0"),
    ("seed", 10**30),
    ("features", ...),
    ("features", None),
    ("features.given", ["x0"]),
    ("features.columns", []),
    *(("features.columns", [column] + [
        {"kind": "number", "name": f"x{i}", "fill": 0.0, "gaps": False} for i in range(1, 4)])
      for column in (
        {"kind": "nosuch", "name": "x0"},
        {"kind": "number", "name": "x0"},
        {"kind": "number", "name": "x0", "fill": math.nan, "gaps": False},
        {"kind": "number", "name": "x0", "fill": 0.0, "gaps": True},  # a column more
        {"kind": "boolean", "name": "x0", "gaps": 2},
        {"kind": "category", "name": "x0", "levels": ["a", "a"], "rare": []},
        {"kind": "category", "name": "x0", "levels": [str(i) for i in range(10**5)], "rare": []},
        {"kind": "date", "name": "x0", "parts": ["week"], "fill": [0.0], "gaps": False,
         "utc": False},
        {"kind": "date", "name": "x0", "parts": ["year"], "fill": [], "gaps": False, "utc": False},
      )),
    ("classes", {"$labels": list(range(10**5))}),
    ("classes", {"$labels": [2, 1, 0]}),
    ("arguments.network", "nosuch"),
    ("arguments.device", "nosuch"),
    ("arguments.nosuch", 1),
    ("rule.gain", [[math.nan] * 3] * 3),
    ("rule.gain", [[1.0, 0.0], [0.0, 1.0]]),
    ("rule.gain", [1.0, 2.0, 3.0]),
    ("rule.decision", "nosuch"),
    ("rule.offsets", [math.nan] * 3),
    ("rule.nosuch", 1),
]  # fmt: skip


@pytest.mark.parametrize(("where", "value"), CASES, ids=lambda case: str(case)[:30])
def test_a_wrong_state_is_refused_in_one_line(saved, tmp_path, where, value):
    path = shutil.copy(saved, tmp_path / "model")
    name, dot, rest = where.partition(".")
    inside = f"{name}.+.{rest}" if dot and name in ("features", "rule") else where
    put(path, f"+.{inside}" if name in ("arguments", "functions") else f"+.fitted.{inside}", value)
    with pytest.raises(StoreError) as refused:
        AlignedClassifier.load(path)
    assert "\n" not in str(refused.value)


KNOTS = torch.zeros(X.shape[1], 257, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaler/state/knots", KNOTS + math.nan),
        ("scaler/state/knots", KNOTS[:1]),
        ("scaler/state/values", KNOTS + math.inf),
        ("scaler/state/values", None),
        ("network/head.weight", None),
        ("network/head.weight", torch.zeros(2, 2)),
        ("classes", torch.tensor([0, 2, 1])),
        ("classes", torch.zeros(3, 3)),
    ],
)
def test_wrong_tensors_are_refused(saved, tmp_path, name, value):
    path = shutil.copy(saved, tmp_path / "model")
    state, tensors = opened(path)
    tensors = {k: w for k, w in tensors.items() if k != f"/state/fitted/{name}"}
    forge(path, state, tensors | ({} if value is None else {f"/state/fitted/{name}": value}))
    with pytest.raises(StoreError):
        AlignedClassifier.load(path)
