"""From a table to its records and back, on small data."""

import pytest
from evalign_study import catalog, data
from evalign_study.data import DataError
from evalign_study.pipeline.execute import ExecutionError
from evalign_study.pipeline.running import run
from evalign_study.pipeline.writing import write
from evalign_study.records.results import Results, recorded
from evalign_study.records.run import Run
from evalign_study.trainers import tabular


def test_end_to_end_and_again(small, tmp_path, monkeypatch):
    """The second time nothing is trained and no data loaded; a further trial adds only itself."""
    told = []
    table = catalog.tables()["small"].part(quick=True)
    run(table, tmp_path, progress=lambda *said: told.append(said))
    # 2 grids of one setting and 2 trials of them, 2 trials of the forest
    assert len(recorded(tmp_path)) == 2 * (1 + 2) + 2
    assert {phase for phase, *_ in told} == {
        "small, stage 1, networks of rows",
        "small, stage 2, networks of rows",
        "small, stage 2, classical methods",
    }
    path = tmp_path / "small.jsonl.gz"
    before = path.read_bytes()
    dropouts = {record["run"]["dropout"] for record in recorded(tmp_path).values()}
    assert dropouts == {0.25, 0.5, 0.0}
    paths = write("small", table.findings(recorded(tmp_path), tmp_path), tmp_path / "out")
    assert paths[0].read_text(encoding="utf-8").count("| F1\\* | 2 |") == 2

    with monkeypatch.context() as without_data:
        without_data.setattr(data, "load", None)
        run(table, tmp_path)
    assert path.read_bytes() == before
    run(catalog.tables()["small"].part(quick=True, trials=3), tmp_path)
    assert path.read_bytes().startswith(before)
    assert len(recorded(tmp_path)) == 2 * (1 + 3) + 3

    # Tables share runs, and a run that any file holds is not trained again.
    path.rename(path.with_name("other.jsonl.gz"))
    run(table, tmp_path)
    assert not path.exists()


def test_a_stack_that_was_cut_off_gives_what_a_whole_one_gives(small, tmp_path):
    """Dropout is drawn for the whole stack, so that runs in another stack have other results."""
    table = catalog.tables()["small"].part(quick=True, trials=3)
    run(table, tmp_path / "whole")
    whole = recorded(tmp_path / "whole")
    kept = [record for record in whole.values() if record["run"]["seed"] < 2]
    Results(tmp_path / "cut" / "small.jsonl.gz").append(kept)
    run(table, tmp_path / "cut")
    found = recorded(tmp_path / "cut")
    assert found.keys() == whole.keys()
    for key, record in found.items():
        assert record["picks"] == whole[key]["picks"]
    # The check can fail: a trial that is trained alone has other dropout.
    dropped = [record for record in whole.values() if record["run"]["dropout"] == 0.5]
    last = max(dropped, key=lambda record: record["run"]["seed"])
    (alone,) = tabular.train([Run(**last["run"])])
    assert alone["picks"] != last["picks"]


def test_what_fails_stops_nothing_else(small, tmp_path, monkeypatch):
    def fail(*arguments, **more):
        raise ArithmeticError("no networks today")

    monkeypatch.setattr(tabular, "fit_many", fail)
    table = catalog.tables()["small"].part(quick=True)
    with pytest.raises(
        ExecutionError, match=r"1 of 1 units failed(?s:.*)no networks today"
    ) as told:
        run(table, tmp_path)
    assert len(told.value.failed) == 1
    found = recorded(tmp_path)
    assert [record["run"]["method"] for record in found.values()] == ["random_forest"] * 2
    paths = write("small", table.findings(found, tmp_path), tmp_path / "out")
    assert "| Forest (added) | 2 |" in paths[0].read_text(encoding="utf-8")


def test_absent_data_is_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALIGN_DATA", str(tmp_path))
    for name, dataset in {
        "btg-table3": "cocktailparty_frames",
        "recipe": "caltech256_clip",
    }.items():
        asked = ["caltech256_clip"] if name == "recipe" else None
        with pytest.raises(DataError, match=dataset):
            run(catalog.tables()[name].part(datasets=asked, quick=False), tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "runs"),
    [("btg-table2", 2 * 2), ("btg-table3", 2 * 2)],  # 2 trials of F1* and BCE
)
def test_images_and_frames_end_to_end(name, runs, real, tmp_path):
    table = catalog.tables()[name].part(quick=True)
    run(table, tmp_path)
    assert len(recorded(tmp_path)) == runs
    text = write(name, table.findings(recorded(tmp_path), tmp_path), tmp_path)[0].read_text()
    assert "| BCE | 2 |" in text
