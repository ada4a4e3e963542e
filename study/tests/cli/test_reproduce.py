"""`evalign-study reproduce`."""

import json

import pytest
from evalign_study.papers import tables
from evalign_study.suite import recipe

from study.tests.commands import done, invoke, refused
from study.tests.papers.test_reproduce import SMALL


@pytest.fixture
def small(real, monkeypatch):
    """One table of three lines instead of all others, on real rows."""
    monkeypatch.setattr(tables, "_tables", lambda: tables.read(SMALL))
    monkeypatch.setattr(recipe, "reproduce", lambda **how: recipe.Outcome([], []))  # its own tests


def test_list():
    result = done("reproduce", "--list")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines] == [*tables.names(), "recipe"]
    assert max(map(len, lines)) <= 80
    found = json.loads(done("reproduce", "--list", "--json").out)["tables"]
    assert found["btg-table4"]["datasets"] == ["mammography"]
    assert len(found["btg-table4"]["claims"]) == 6


def test_quick_look_end_to_end(small, tmp_path):
    out = tmp_path / "out"
    options = ["--quick", "--out", out, "--results", tmp_path / "results"]
    result = done("reproduce", "all", *options)
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == "A small table (small)"
    assert lines[-5:-3] == [f"{recipe.TITLE} (recipe)", "Not run."]  # the last of all
    assert lines[-2:] == [
        "A quick look: these numbers mean nothing.",
        f"Written to {out / 'quick'}.",
    ]
    assert "small, trials of" in result.err
    out = out / "quick"  # so that no table that was run is written over
    files = {path.name for path in out.iterdir()}
    assert files == {"small.md", "small.html", "small.csv", "small-claims.csv", "small.jsonl"}

    again = done("reproduce", "small", *options, "--render-only", "--json")
    claim, _ = json.loads(again.out)["tables"]["small"]
    assert (claim["claim"], claim["data set"]) == ("Better", "Mammography")
    assert claim["as in the paper"]["difference"]["trials"] == 2


def test_a_page_is_filled(small, tmp_path):
    page, out = tmp_path / "page.md", tmp_path / "out"
    page.write_text("# Page\n<!-- small -->\n<!-- end of small -->\n", encoding="utf-8")
    where = ["--out", out, "--results", tmp_path]
    done("reproduce", "small", "--render-only", "--page", page, *where)
    text = (out / "small.md").read_text(encoding="utf-8")
    assert text in page.read_text(encoding="utf-8")


def test_a_line_that_was_cut_off_is_a_note(tmp_path):
    (tmp_path / "surf-fig3.jsonl").write_text('{"key": "12', encoding="utf-8")
    where = ["--render-only", "--out", tmp_path / "out", "--results", tmp_path]
    (line,) = done("reproduce", "surf-fig3", *where).err.splitlines()
    assert line.startswith("Note: The last line of")
    assert done("reproduce", "surf-fig3", "--quiet", *where).err == ""


def test_what_fails_is_one_line_and_the_rest_goes_on(small, tmp_path, monkeypatch):
    def broken(*arguments, **more):
        raise RuntimeError("no memory left")

    monkeypatch.setattr("evalign_study.trainers.tabular.fit_many", broken)
    claim = {"text": "It learns", "better": "Boosting", "above": 0.0, "column": "F1"}
    more = {"other": SMALL["small"] | {"title": "Another", "lines": {}, "claims": [claim]}}
    monkeypatch.setattr(tables, "_tables", lambda: tables.read(SMALL | more))
    out = tmp_path / "out"
    result = invoke("reproduce", "all", "--quick", "--out", out)
    assert result.code == 2
    *_, line = result.err.splitlines()
    assert line.startswith("evalign-study: small: ")
    assert line.endswith("The last error: RuntimeError: no memory left")
    assert "Another (other)" in result.out
    # What did not fail is written down.
    for name in ("small", "other"):
        text = (out / "quick" / f"{name}.md").read_text(encoding="utf-8")
        assert "| Boosting (added) | 2 |" in text


def test_render_only_trains_nothing(tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    results.mkdir()
    result = done("reproduce", "surf-fig3", "--render-only", "--out", out, "--results", results)
    assert "As in the paper: 0 of 0 claims confirmed, 4 not run." in result.out
    assert "Not run." in (out / "surf-fig3.md").read_text(encoding="utf-8")
    assert not list(results.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Name a table, or all. `evalign-study reproduce --list` shows them."),
        (["east-tabel1"], "Got 'east-tabel1'. Did you mean 'east-table1'?"),
        (["recip"], ", recipe, all. Got 'recip'. Did you mean 'recipe'?"),
        (
            ["recipe", "--render-only", "--results", "nowhere"],
            "folder of the records. Got 'nowhere'",
        ),
        (["btg-table4", "--dataset", "adult"], "dataset of btg-table4 must be one of mammography."),
        (["all", "--dataset", "adult"], "--dataset is for one table: name it in place of all."),
        (["btg-table4", "--out", __file__], "--out must be a folder. Got"),
        (["btg-table4", "--results", __file__], "--results must be a folder. Got"),
        (["btg-table4", "--trials", "0"], "'--trials': Input should be greater than or equal to 1"),
        (["btg-table4", "--backend", "mpi"], "backend of reproduce must be \"dask\". Got 'mpi'."),
    ],
)
def test_bad_input_is_one_line(arguments, text):
    assert text in refused("reproduce", *arguments)


def test_absent_data_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALIGN_DATA", str(tmp_path))
    where = ["--out", tmp_path / "out", "--results", tmp_path / "results"]
    line = refused("reproduce", "btg-table3", *where)
    assert "cocktailparty_frames is not in EVALIGN_DATA" in line


def test_a_page_without_its_marks_is_refused_before_anything_runs(tmp_path):
    page = tmp_path / "page.md"
    where = ["--out", tmp_path / "out", "--results", tmp_path / "results", "--page", page]
    assert "page.md" in refused("reproduce", "surf-fig3", *where)
    page.write_text("# Page\n", encoding="utf-8")
    wanted = "page of reproduce must hold <!-- surf-fig3 -->"
    assert wanted in refused("reproduce", "surf-fig3", *where)
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


@pytest.mark.parametrize("part", [["--dataset", "adult"], ["--trials", "3"], ["--quick"]])
def test_a_page_holds_whole_tables(part, tmp_path):
    line = refused("reproduce", "east-table1", *part, "--page", tmp_path / "page.md")
    assert "--page is for whole tables: leave --dataset, --trials and --quick out." in line
