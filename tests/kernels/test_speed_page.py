"""The page docs/evidence/speed.md shows the stored results, and no others."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_are_those_of_the_results():
    path = ROOT / "benchmarks" / "loss_speed.py"
    spec = importlib.util.spec_from_file_location("loss_speed", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    stored = (ROOT / "benchmarks" / "results").glob("loss_speed_*.json")
    results = [json.loads(file.read_text(encoding="utf-8")) for file in stored]
    shown = benchmark.sections(
        (ROOT / "docs" / "evidence" / "speed.md").read_text(encoding="utf-8")
    )
    tables = {result["kind"]: benchmark.section(result) for result in results}
    assert shown == {kind: tables.get(kind, "") for kind in shown}
    for result in results:  # of all lines that are measured, and with their goals
        lines = benchmark.LINES[result["kind"]]
        assert [(x["mode"], x["name"], x["goal"]) for x in result["lines"]] == [
            (line.mode, line.name, line.goal) for line in lines
        ]
