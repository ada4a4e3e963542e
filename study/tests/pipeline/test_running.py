"""From a table to its records and back, on small data."""

from evalign_study import catalog, data
from evalign_study.pipeline.running import run
from evalign_study.pipeline.writing import write
from evalign_study.records.results import recorded


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
