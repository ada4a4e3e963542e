"""The papers' search for a setting."""

from collections import Counter

from evalign_study.papers.search import chosen, grid
from evalign_study.records.run import Run

BASE = Run(dataset="mammography", variant="paper", method="cross_entropy", batch_size=64)


def test_grid_is_that_of_the_paper():
    plain, annealed = (
        grid("creditcard", "paper", method, epochs=7) for method in ("cross_entropy", "east_mcc")
    )
    runs = plain + annealed
    assert len({run.key for run in runs}) == len(runs) == 7 * 3 * 2 * (1 + 2)
    assert {run.batch_size for run in runs} == {128, 256, 512, 1024, 2048, 4096, 8192}
    assert {run.rate for run in plain} == {None}
    assert Counter(run.rate for run in annealed) == {0.8: 42, 0.9: 42}
    assert {(run.seed, run.epochs, run.patience) for run in runs} == {(0, 7, 50)}


def recorded(run, loss, f1, **more):
    picks = {
        name: {"epoch": 1, "validation_loss": loss, "validation": {"f1": f1}}
        for name in ("loss", "f1")
    }
    return {"key": run.key, "run": vars(run), "picks": picks, **more}


def test_a_criterion_chooses():
    low, high, wrong = (BASE.but(learning_rate=rate) for rate in (0.1, 0.2, 0.3))
    lost = recorded(wrong, None, 0.99, diverged=True)
    records = [recorded(low, 0.1, 0.5), recorded(high, 0.2, 0.6), lost]
    assert chosen(records, "loss") == low
    assert chosen(records, "f1") == high
    assert chosen([lost], "loss") == chosen([lost], "f1") == wrong
