"""The times of fits in docs/evidence/models.md are those of the benchmarks."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = {
    "auto": "`AlignedClassifier`",
    "example": "`tabm`'s own example",
    "boosting": "histogram gradient boosting",
}


def shown():
    """Write the lines of the table; a time is followed by the F1 of other rows."""
    found = {}
    for kind in ("cpu", "cuda"):
        file = ROOT / "benchmarks" / "results" / f"fit_speed_{kind}.json"
        for one in json.loads(file.read_text(encoding="utf-8"))["found"]:
            cut = one["seconds"] > one.get("limit", one["seconds"])
            text = f"{one['seconds']:.1f} s{', cut' if cut else ''} ({100 * one['f1']:.0f})"
            found.setdefault((one["rows"], NAMES[one["name"]]), {})[kind] = text
    for (rows, name), told in sorted(found.items()):
        yield f"| {rows:,} | {name} | {told['cpu']} | {told['cuda']} |"


def test_the_page_shows_the_stored_times():
    page = (ROOT / "docs" / "evidence" / "models.md").read_text(encoding="utf-8")
    assert "\n".join(shown()) in page


def test_the_page_shows_the_times_of_the_command():
    file = ROOT / "benchmarks" / "results" / "fit_command.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "evidence" / "models.md").read_text(encoding="utf-8")
    found = {one["rows"]: one for one in told["found"]}
    for rows, one in found.items():
        goal = f"{told['goals'][str(rows)]} s" if str(rows) in told["goals"] else ""
        memory = f"{one['peak_mib']:,.0f} MiB | {one['table_mib']:,.1f} MiB"
        assert f"| {rows:,} | {one['seconds']:.1f} s | {goal} | {memory} |" in page
    extra = found[1_000_000]["peak_mib"] - found[1_000]["peak_mib"]
    assert f"a million rows take {extra / found[1_000_000]['table_mib']:.1f} times" in page
    limited = json.loads(file.with_name("fit_command_10s.json").read_text(encoding="utf-8"))
    few, more = (one["seconds"] for one in limited["found"])
    assert f"runs of 1,000 and 10,000 rows took {few:.1f} and {more:.1f} s" in page
    assert max(few, more) <= 1.2 * 10  # the limit is kept
