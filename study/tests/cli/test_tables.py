"""`evalign-study list`, `run` and `render`."""

import json

import pytest
from evalign_study.decided.table import DecisionsTable
from evalign_study.goals.table import GoalsTable
from evalign_study.modelled.table import ModelsTable
from evalign_study.papers import tables
from evalign_study.suite import plan
from evalign_study.suite.recipe import RecipeTable
from evalign_study.tasks.table import TaskTable

from study.tests.commands import done, invoke, refused
from study.tests.pipeline.made_table import SMALL

OURS = ("recipe", "decisions", "models", "dense", "multilabel", "goals")


@pytest.fixture
def no_recipe(monkeypatch):
    """Leave our own tables out, as they have tests of their own."""
    for table in (RecipeTable, DecisionsTable, ModelsTable, TaskTable):
        monkeypatch.setattr(table, "runs", lambda table: [])
    monkeypatch.setattr(GoalsTable, "runs", lambda table, records: [])


def test_list():
    result = done("list")
    lines = result.out.splitlines()
    named = lines[: lines.index("")]
    assert [line.split()[0] for line in named] == [*tables.names(), *OURS, "east-readings"]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("east-table7: ") and "of 92 runs of its" in line for line in lines)
    found = json.loads(done("list", "--json").out)["tables"]
    assert found["btg-table4"]["datasets"] == ["mammography"]
    assert len(found["btg-table4"]["claims"]) == 6
    assert found["recipe"]["datasets"][:2] == list(plan.SETS[:2])


def test_quick_look_end_to_end(small, no_recipe, tmp_path):
    out = tmp_path / "out"
    options = ["--quick", "--out", out, "--results", tmp_path / "results"]
    result = done("run", "all", *options)
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == "A small table (small)"
    assert lines[-5:-3] == ["Goals beyond one number (goals)", "Not run."]  # the last of all
    assert lines[-2:] == [
        "A quick look: these numbers mean nothing.",
        f"Written to {out / 'quick'}.",
    ]
    assert "small, stage 2" in result.err
    assert not (tmp_path / "results").exists()  # a quick look keeps its records to itself
    files = {path.name for path in (out / "quick").iterdir()}
    small = {f"small{end}" for end in (".md", ".html", ".csv", "-claims.csv", ".jsonl.gz")}
    ours = {f"{name}.{end}" for name in OURS for end in ("md", "html", "csv")}
    assert files == small | ours

    again = done("run", "small", *options, "--json")
    claim, _ = json.loads(again.out)["tables"]["small"]
    assert (claim["claim"], claim["data set"]) == ("Better", "Mammography")
    assert claim["as in the paper"]["difference"]["trials"] == 2


def test_a_page_is_filled_with_the_tables_it_has_marks_for(tmp_path):
    page = tmp_path / "page.md"
    marks = [f"<!-- {name} -->\n<!-- end of {name} -->" for name in ("surf-fig3", "recipe")]
    page.write_text("\n".join(marks), encoding="utf-8")
    done("render", "--page", page, "--out", tmp_path / "out", "--results", tmp_path)
    assert page.read_text(encoding="utf-8").count("Not run.") == 2


def test_what_fails_is_one_line_and_the_rest_goes_on(small, no_recipe, tmp_path, monkeypatch):
    def broken(*arguments, **more):
        raise RuntimeError("no memory left")

    monkeypatch.setattr("evalign_study.trainers.tabular.fit_many", broken)
    claim = {"text": "It learns", "better": "Forest", "above": 0.0, "column": "F1"}
    more = {"other": SMALL["small"] | {"title": "Another", "lines": {}, "claims": [claim]}}
    monkeypatch.setattr(tables, "_tables", lambda: tables.read(SMALL | more))
    out = tmp_path / "out"
    result = invoke("run", "all", "--quick", "--out", out)
    assert result.code == 2
    *_, line = result.err.splitlines()
    assert line.startswith("evalign-study: small: ")
    assert line.endswith("The last error: RuntimeError: no memory left")
    assert "Another (other)" in result.out
    # The runs that did not fail are recorded and written.
    for name in ("small", "other"):
        text = (out / "quick" / f"{name}.md").read_text(encoding="utf-8")
        assert "| Forest (added) | 2 |" in text


def test_render_trains_nothing(tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    results.mkdir()
    result = done("render", "surf-fig3", "--out", out, "--results", results)
    assert "As in the paper: 0 of 0 claims confirmed, 4 not run." in result.out
    assert "Not run." in (out / "surf-fig3.md").read_text(encoding="utf-8")
    assert not list(results.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "east-tabel1"], "Got 'east-tabel1'. Did you mean 'east-table1'?"),
        (
            ["render", "recip"],
            ", models, dense, multilabel, goals, all. Got 'recip'. Did you mean 'recipe'?",
        ),
        (["render", "--results", "nowhere"], "folder of the records. Got 'nowhere'"),
        (
            ["run", "btg-table4", "--dataset", "adult"],
            "dataset of btg-table4 must be one of mammography.",
        ),
        (["run", "all", "--dataset", "adult"], "are for one table: name it in place of all."),
        (["run", "btg-table4", "--out", __file__], "--out must be a folder. Got"),
        (["run", "btg-table4", "--backend", "mpi"], "backend of run must be \"dask\". Got 'mpi'."),
    ],
)
def test_bad_input_is_one_line(arguments, text):
    assert text in refused(*arguments)


def test_a_page_without_marks_is_refused_before_anything_is_written(tmp_path):
    page, results = tmp_path / "page.md", tmp_path / "results"
    results.mkdir()
    where = ["--out", tmp_path / "out", "--results", results, "--page", page]
    assert "page.md" in refused("render", "surf-fig3", *where)
    page.write_text("# Page\n", encoding="utf-8")
    wanted = "page of render must hold <!-- surf-fig3 -->"
    assert wanted in refused("render", "surf-fig3", *where)
    assert "page of render must hold" in refused("render", *where)
    assert not (tmp_path / "out").exists()
