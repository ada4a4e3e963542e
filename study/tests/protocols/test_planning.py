"""From the file of a table to its runs: the paper's grid, its trials, and what a flag changes."""

import pytest
from evalign_study import planning
from evalign_study.planning import Known, cells, table
from evalign_study.standing import printed_of, runs_of

EAST1 = table("east-table1")


def only(plan=EAST1, **asked):
    (cell,) = cells(plan, **asked)
    return cell


def made(run, loss=0.5, **changes):
    """A record that nobody has trained."""
    pick = {"epoch": 3, "validation_loss": loss, "validation": {"f1": 1 - loss}}
    pick["decisions"] = {"argmax": {"matrix": [[0, 0, 5], [1, 1, 5]]}}
    record = {"key": run.key, "run": vars(run), "picks": dict.fromkeys(("loss", "f1"), pick)}
    return record | {"epochs": 9, "cap": run.epochs, "capped": False} | changes


@pytest.mark.parametrize(
    ("panel", "line", "number"),
    [
        ("cifar10", "CE", 4 * 3 * 2),
        ("cifar10", "F1*", 4 * 3 * 2 * 2),
        ("adult", "Dice", 5 * 3 * 2),
        ("creditcard", "F1*", 5 * 3 * 2 * 2),
        ("creditcard", "MCC*", 7 * 3 * 2 * 2),
    ],
)
def test_the_grid_is_the_papers(panel, line, number):
    runs = only(panels=[panel], lines=[line]).grid()
    assert len({run.key for run in runs}) == number
    assert {run.dropout for run in runs} == {0.25, 0.5}
    assert {run.learning_rate for run in runs} == {0.01, 0.001, 0.0001}
    assert {run.patience for run in runs} == {50}
    assert {run.rate for run in runs} == ({0.8, 0.9} if line.endswith("*") else {1.0})


def test_trials_have_the_setting_of_the_lowest_validation_loss():
    cell = only(panels=["adult"], lines=["F1*"])
    grid = cell.grid()
    assert cell.trials(Known(map(made, grid[:-1]))) == []  # the best of a part would be a guess
    records = [made(run, 0.1 if i == 7 else 0.5) for i, run in enumerate(grid)]
    trials = cell.trials(Known(records))
    assert [run.seed for run in trials] == list(range(1, 11))
    assert {run.but(seed=0, decisions=("argmax",)) for run in trials} == {grid[7]}


def test_a_grid_may_be_searched_otherwise_than_its_choice_is_trained():
    cell = only(panels=["cifar10"], lines=["F1*"])
    assert {run.reading for run in cell.grid()} == {"shared patience"}
    trials = cell.trials(Known(map(made, cell.grid())))
    assert {run.reading for run in trials} == {"each temperature"}
    # Without a temperature both are one, and the run of the grid is the first trial.
    cell = only(panels=["cifar10"], lines=["CE"])
    known = Known(map(made, cell.grid()))
    assert known.find(cell.trials(known)[0])


def test_strict_trials_have_splits_of_their_own_and_go_by_the_metric():
    cell = only(panels=["adult"], lines=["F1*"], variants=["strict"])
    records = [made(run, 0.9) for run in cell.grid()]
    records[4]["picks"]["f1"] = {**records[4]["picks"]["f1"], "validation": {"f1": 1.0}}
    trials = cell.trials(Known(records))
    assert [run.split_seed for run in trials] == [run.seed for run in trials]
    assert {run.split for run in trials} == {"groups"}
    assert trials[0].learning_rate == cell.grid()[4].learning_rate


def test_a_flag_changes_one_thing():
    cell = only(panels=["adult"], lines=["CE"], changes={"patience": 20, "network": "resnet18"})
    assert {(run.patience, run.network) for run in cell.grid()} == {(20, "resnet18")}
    fixed = only(panels=["adult"], lines=["CE"], changes={"batch_size": 64})
    assert len(fixed.grid()) == 6
    assert {run.batch_size for run in fixed.grid()} == {64}
    printed = {run.key for run in only(panels=["adult"], lines=["CE"]).grid()}
    assert not printed & {run.key for run in [*cell.grid(), *fixed.grid()]}


def test_a_table_that_is_not_whole_or_capped_is_not_comparable():
    cell = only(panels=["adult"], lines=["CE"])
    assert runs_of(cell, Known([])).obstacle == "not run"
    grid = [made(run) for run in cell.grid()]
    known = Known(grid)
    assert runs_of(cell, known).obstacle == "30 of 40 runs are there"
    trials = [made(run) for run in cell.trials(known)]
    assert runs_of(cell, Known(grid + trials)).obstacle == ""
    trials[0]["capped"] = True
    assert runs_of(cell, Known(grid + trials)).obstacle == "1 of 40 runs reached their cap"


@pytest.mark.parametrize("name", planning.names())
def test_every_table_is_whole(name):
    plan, printed = table(name), printed_of(name)
    found = list(cells(plan, variants=list(plan["variants"])))
    assert found
    assert list(cells(plan, quick=True))
    for panel, figures in printed.get("panels", {}).items():
        lines = {cell.line for cell in found if cell.panel == panel}
        columns = figures.get("columns", printed.get("columns"))
        named = figures.keys() - {"columns", "incomparable"}
        assert named <= lines
        assert all(len(figures[line].split("|")) == len(columns) for line in named)
    for claim in printed.get("claims", ()):
        assert {claim["better"], claim.get("than", claim["better"])} <= plan["lines"].keys()


def test_a_file_of_ones_own_is_a_table(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\nprotocol = "east"\n[settings]\n[seeds]\ngrid = 0\ntrials = [1, 2]\n'
        '[grid]\nlearning_rate = [0.1]\n[lines]\n"CE" = { loss = "cross_entropy" }\n'
        '[variants]\npaper = {}\n[panels.adult]\nlabel = "Adult"\nsettings = { dataset = "adult" }'
    )
    assert only(table(path)).grid()[0].learning_rate == 0.1
