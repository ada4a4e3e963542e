"""The page docs/speed.md shows the stored results, and no others."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tables_are_those_of_the_results(device):
    path = ROOT / "benchmarks" / "loss_speed.py"
    spec = importlib.util.spec_from_file_location("loss_speed", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    stored = ROOT / "benchmarks" / "results" / f"loss_speed_{device}.json"
    result = json.loads(stored.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert benchmark.targets(result) in page
    assert benchmark.table(result) in page
    assert f"torch {result['torch']}" in page
