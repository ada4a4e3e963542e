"""The text of a table in Markdown, HTML and CSV, and its agreement with the documentation."""

import csv
import json
import re
from pathlib import Path

import pytest
from evalign_study import catalog
from evalign_study.papers import tables
from evalign_study.papers.render import findings
from evalign_study.pipeline import writing
from evalign_study.pipeline.formats import Grid, markdown, on_page
from evalign_study.pipeline.writing import fill

from study.tests.papers.made_tables import curves, evidence, pick

ROOT = Path(__file__).parents[3]
PAGES = {"btg": "btg", "surf": "surf", "ablation": "ablations"}  # the others are EAST's
FOUND = {"F1*": [0.80, 0.81, 0.82], "CE": [0.70, 0.71, 0.72]}


def parts(found):
    return findings(found).parts


def written(found):
    return markdown(parts(found))


def written_on_page(found):
    return markdown(on_page(parts(found)))


def write(found, folder):
    return writing.write(found.table.name, findings(found), folder)


def read(folder, name):
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_without_records_it_says_so_and_shows_nothing_else():
    assert written(evidence({})) == "## A made table\n\nNot run.\n"


def test_ours_beside_the_printed():
    text, ours, theirs = written(evidence(FOUND)), "0.810 ± 0.025", "0.710 ± 0.025"
    rows = [
        "|  | trials | Acc, printed | Acc, argmax | Acc, tuned | Recall, argmax | Recall, tuned |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        rf"| F1\* | 3 | 0.70 ± 0.01 | {ours} | {ours} | 0.620 ± 0.050 | 0.620 ± 0.050 |",
        f"| CE | 3 | 0.60 ± 0.02 | {theirs} | {theirs} | 0.420 ± 0.050 | 0.420 ± 0.050 |",
        "| Focal (added) | – | – | – | – | – | – |",
    ]
    assert text.count("\n".join(rows)) == 2  # two variants of Mammography
    strict = "|  | trials | Acc, argmax | Acc, tuned | Recall, argmax | Recall, tuned |"
    assert text.count(strict) == 4  # and by the other selection, and twice for Adult


def test_verdicts_stand_first():
    text = written(evidence(FOUND))
    count = "2 of 3 claims confirmed, 2 not comparable."
    assert f"\nAs in the paper: {count} Strictly: {count}\n" in text
    assert "| Mammography ✓ +0.100; Adult ? +0.100 |" in written_on_page(evidence(FOUND))
    row = r"| F1\* is better (F1\* against CE, Acc) | Mammography | +0.100 |"
    confirmed = "confirmed: +0.100 (+0.100 to +0.100)"
    assert f"{row} {confirmed} | {confirmed} |" in text
    assert f"| Adult | – | not comparable: {confirmed.partition(': ')[2]} |" in text
    assert "not confirmed: −0.080 (−0.130 to −0.030), the reverse holds" in text
    assert text.index("claim |") < text.index("### Mammography, as in the papers")


def test_decisions_and_selections_are_kept_apart():
    whole = evidence(FOUND)
    for record in whole.records.values():
        record["picks"] = {"loss": pick(0.6, 0.7), "accuracy": pick(0.8, 0.9)}
    papers, strict = (p for p in parts(whole)[:9] if isinstance(p, Grid) and p.head[0] == "")
    assert papers.rows[0][3:5] == ["0.600 ± 0.000", "0.700 ± 0.000"]
    assert strict.rows[0][2:4] == ["0.800 ± 0.000", "0.900 ± 0.000"]


def test_csv_has_every_number(tmp_path):
    write(evidence(FOUND), tmp_path)
    rows = read(tmp_path, "made.csv")
    # lines × (columns × decisions) × selections × variants of both panels
    assert len(rows) == 3 * (2 * 2) * 2 * 3
    first = rows[0]
    assert (first["line"], first["method"], first["metric"]) == ("F1*", "mcfbeta_f1", "accuracy")
    assert (first["variant"], first["selection"], first["decision"]) == (
        "paper",
        "papers",
        "argmax",
    )
    assert (float(first["printed mean"]), float(first["printed std"])) == (0.70, 0.01)
    assert (float(first["mean"]), first["trials"]) == (pytest.approx(0.81), "3")
    assert float(first["lowest"]) < float(first["median"]) < float(first["highest"])
    assert {row["trials"] for row in rows if row["line"] == "Focal"} == {"0"}
    claims = read(tmp_path, "made-claims.csv")
    assert len(claims) == 5 * 2
    assert claims[0]["verdict"] == "confirmed"
    assert claims[1]["seen"] == "strictly"
    assert [claim["relation"] for claim in claims[::4]] == ["higher", "not lower", "higher"]


@pytest.mark.parametrize(
    ("name", "title", "y"),
    [
        ("drawn", "Mammography: loss against F1", [0.1, 0.2, 0.3] * 2),  # of both repetitions
        ("converged", "Mammography: F1 (training)", [0.1, 0.2, 0.3]),
    ],
)
def test_figures_are_drawn(tmp_path, name, title, y):
    write(curves(name, (0.1, 0.2, 0.3)), tmp_path)
    page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page).group(1))
    assert list(data["figures"]) == [title]
    (trace,) = data["figures"][title]["data"]
    assert trace["name"] == "Surrogate"
    assert f'id="{title}"' in page
    assert trace["y"] == y


def test_a_figure_has_its_numbers_in_a_table():
    text = written(curves("converged", (0.1, 0.29, 0.3)))
    assert "|  | trials | F1 (training) | epochs |" in text
    assert "Median of the repetitions" in text
    assert "± is" not in text
    assert "| Surrogate | 2 | 0.300 (0.300 to 0.300) | 2 (2 to 2) |" in text
    assert "Epoch and setting" not in text


RESULTS = ROOT / "study" / "results"


def test_documentation_shows_the_records(committed):
    """If not, run for each page: evalign-study render --page docs/evidence/PAGE.md."""
    for name in tables.names():
        file = PAGES.get(name.partition("-")[0], "east")
        page = (ROOT / "docs" / "evidence" / f"{file}.md").read_text(encoding="utf-8")
        text = markdown(on_page(catalog.tables()[name].findings(committed, RESULTS).parts))
        assert fill(page, name, text) == page
