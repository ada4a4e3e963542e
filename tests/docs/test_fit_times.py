"""The times of fits in docs/evidence/models.md are those of benchmarks/fit_speed.py."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = {
    "auto": "`AlignedClassifier`",
    "mlp": '`network="mlp"`',
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
