"""What the documentation says of the image trainings that were not cut."""

import runpy
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from evalign_study.papers import tables
from evalign_study.papers.evidence import Evidence
from evalign_study.papers.plan import Plan
from evalign_study.papers.verdicts import CONFIRMED, NOT_CONFIRMED, verdicts
from evalign_study.pipeline.intervals import interval
from evalign_study.records.results import SUFFIX, Results
from evalign_study.records.run import LOSS, Run

ROOT = Path(__file__).parents[3]
ENDS = ROOT / "study" / "results" / f"image-ends{SUFFIX}"
SEEDS = (1, 2, 3)
STRICT = "f1_macro"
FASHION, AIRPLANE = "fashion_mnist_tshirt", "cifar10_airplane"
BALANCED = "balanced_cross_entropy"
DATASETS = {"Fashion-MNIST": FASHION, "CIFAR-10, airplane": AIRPLANE}  # as the tables name them
REPETITIONS = (1, 2, 3, 4, 5)  # of SurF on Fashion-MNIST
ALL_POSITIVE = 2 / 11  # the F1 of calling every row positive, where a tenth is
# The rows of the table: a method, and the one that stands for it at 60 epochs and in the paper.
LINES = {
    r"F1\*": ("east_f1", "east_f1"),
    r"F1\*, constant temperature": ("mcfbeta_f1", "mcfbeta_f1"),
    r"Acc\*": ("east_accuracy", "east_accuracy"),
    r"MCC\*": ("east_mcc", "east_mcc"),
    "CE": ("cross_entropy", "cross_entropy"),
    "Dice": ("dice", "dice"),
    "Aligned (added)": ("aligned_f1", "anchored_f1"),
}
SURF = {
    "BCE, class-balanced": BALANCED,
    "MAE": "mae",
    **{f"Surrogate, β = {beta}": f"surf_{beta}" for beta in ("0.5", "1", "2", "3")},
    **{f"Macro soft, β = {beta}": f"balanced_macro_soft_{beta}" for beta in ("0.5", "1", "2", "3")},
}


def page(name):
    return (ROOT / "docs" / "evidence" / f"{name}.md").read_text(encoding="utf-8")


EAST_PAGE, SURF_PAGE = page("east"), page("surf")


@pytest.fixture(scope="module")
def trained():
    """All runs, with their records."""
    return [(Run(**record["run"]), record) for record in Results(ENDS).records()]


@pytest.fixture(scope="module")
def ends(trained):
    """The records of one loss from the first epoch on, by data set, method and seed."""
    found = [(run, record) for run, record in trained if not run.cross_entropy_first]
    return {(run.dataset, run.method, run.seed): record for run, record in found}


@pytest.fixture(scope="module")
def entropy_first(trained):
    """Those with ten epochs of cross-entropy before the loss, by data set and method."""
    found = [(run, record) for run, record in trained if run.cross_entropy_first]
    assert {(run.cross_entropy_first, run.seed) for run, _ in found} == {(10, 1)}
    return {(run.dataset, run.method): record for run, record in found}


def of(ends, method):
    return {seed: ends["cifar10", method, seed] for seed in SEEDS}


def value(record, criterion=LOSS, decision="argmax", metric="f1_macro"):
    return record["picks"][criterion]["decisions"][decision]["test"][metric]


def mean(records, *which):
    return f"{interval(value(record, *which) for record in records).mean:.3f}"


def difference(ends, method, other, *which):
    """As the page writes it."""
    ours, theirs = of(ends, method), of(ends, other)
    found = interval(value(ours[seed], *which) - value(theirs[seed], *which) for seed in SEEDS)
    mean, low, high = (f"{x:+.3f}".replace("-", "−") for x in found[:3])
    return f"{mean} ({low} to {high})"


def at_sixty(ends, method, other, committed):
    """The same runs with the shorter cap; none where they are not there."""
    run = Run(**next(iter(of(ends, method).values()))["run"])
    runs = [run.but(method=other, epochs=60, seed=seed) for seed in SEEDS]
    return [committed[run.key] for run in runs if run.key in committed]


@pytest.mark.parametrize("label", LINES)
def test_the_table_shows_the_records(label, ends, committed):
    method, other = LINES[label]
    found = list(of(ends, method).values())
    before = at_sixty(ends, method, other, committed)
    printed = tables.table("east-table1").panels[0].printed.get((label.replace("\\", ""), "F1"))
    cells = [
        label,
        ", ".join(str(record["epochs"]) for record in found),
        mean(found),
        mean(found, STRICT, "tuned"),
        mean(found, LOSS, "argmax", "accuracy"),
        mean(before) if before else "–",
        printed.text.split()[0] if printed else "–",
    ]
    assert f"| {' | '.join(cells)} |\n" in EAST_PAGE


def test_all_ended_by_themselves(trained):
    """By their patience, those of CIFAR-10."""
    for run, record in trained:
        assert not record["capped"]
        assert not record["diverged"]
        if run.dataset == "cifar10":
            assert record["epochs"] - record["picks"][LOSS]["epoch"] == run.patience
    hours = sum(record["seconds"] for _, record in trained) / 3600
    assert f"the {len(trained)} trainings took {hours:.1f} hours on one" in EAST_PAGE


def test_what_the_text_says_of_the_table(ends, committed):
    strictly = (STRICT, "tuned")
    f1, entropy = (list(of(ends, name).values()) for name in ("east_f1", "cross_entropy"))
    sixty = mean(at_sixty(ends, "east_f1", "east_f1", committed))
    epochs = [record["epochs"] for record in f1]
    best, tuned = (mean(entropy, STRICT, decision) for decision in ("argmax", "tuned"))
    for text in (
        f"{difference(ends, 'east_f1', 'cross_entropy')} against cross-entropy as in the paper",
        f"and {difference(ends, 'east_f1', 'cross_entropy', *strictly)} strictly",
        f"against Dice it is {difference(ends, 'east_f1', 'dice')}",
        f"{difference(ends, 'mcfbeta_f1', 'east_f1')} against the cooled one",
        rf"{min(epochs)} to {max(epochs)} epochs the mean of F1\* grows from {sixty} to {mean(f1)}",
        f"Cross-entropy reaches {mean(entropy)} as in the paper, and {best} if its epoch",
        f"; a tuned decision adds {float(tuned) - float(best):.3f}.",
        f"Cross-entropy has {mean(entropy)}, Dice {mean(of(ends, 'dice').values())}.",
    ):
        assert text in EAST_PAGE
    assert f"it reaches {mean(of(ends, 'dice').values())} when implemented" in page("papers")
    behind = difference(ends, "east_f1", "cross_entropy", *strictly)
    assert behind.startswith("−0.049 ")  # "0.05 behind on CIFAR-10"


def test_every_row_has_a_gradient(ends):
    """The page says that none of any batch of EAST's had one of exactly 0."""
    records = [record for (dataset, *_), record in ends.items() if dataset == "cifar10"]
    points = [point for record in records for point in record["curve"]]
    assert len(points) == sum(record["epochs"] for record in records)
    assert all(point["zero_gradients"] == 0 for point in points)


def surf_of(ends, dataset, method):
    """SurF's trainings with a loss, in the order of their seeds."""
    found = sorted((key, record) for key, record in ends.items() if key[:2] == (dataset, method))
    return [record for _, record in found]


def scores(record):
    """F1 of the validation rows, epoch by epoch."""
    return [point["validation_f1"] for point in record["curve"]]


def at_one_class(record):
    """How many epochs, from the first on, called every validation row the same."""
    found = scores(record)
    stuck = [abs(f1 - ALL_POSITIVE) < 1e-3 or f1 == 0 for f1 in found]
    left = stuck.index(False) if False in stuck else len(stuck)
    assert not any(stuck[left:])  # who has left stays away
    return left


def at_the_end(record):
    return statistics.median(scores(record)[-10:])


def middle(values):
    """The median, as the page writes it."""
    return f"{statistics.median(values):g}"


def medians(records, *epochs):
    """F1 of the validation rows after these epochs and at the end."""
    values = [[scores(record)[epoch - 1] for record in records] for epoch in epochs]
    values.append([at_the_end(record) for record in records])
    return [f"{statistics.median(found):.3f}" for found in values]


def table_under(head):
    return SURF_PAGE.partition(head)[2].partition("\n\n")[0].splitlines()[2:]


@pytest.mark.parametrize("dataset", DATASETS)
def test_surf(dataset, ends):
    name = DATASETS[dataset]
    rows = []
    for label, method in SURF.items():
        records = surf_of(ends, name, method)
        assert {record["epochs"] for record in records} == {120}
        rows.append([label, middle(map(at_one_class, records)), *medians(records, 20)])
    shown = table_under(f"| {dataset} | at one class |")
    assert shown == [f"| {' | '.join(row)} |" for row in rows]


def test_all_that_was_wanted_is_there(trained):
    benchmark = runpy.run_path(str(ROOT / "study" / "benchmarks" / "image_ends.py"))
    wanted = {part: {run.key for run in benchmark["runs_of"](part)} for part in benchmark["PARTS"]}
    assert {run.key for run, _ in trained} == set().union(*wanted.values())
    counts = " and ".join(str(len(wanted[part])) for part in ("fashion", "airplane"))
    assert f"That makes {counts} trainings." in SURF_PAGE


def test_the_verdict_of_surf(ends, entropy_first):
    airplane = [record for (dataset, *_), record in ends.items() if dataset == AIRPLANE]
    stays = [x for x in map(at_one_class, airplane) if x >= 20]
    assert f"{stays.count(120)} of {len(stays)} trainings that begin at one class" in SURF_PAGE
    begins = [
        statistics.mean(map(at_one_class, surf_of(ends, FASHION, f"surf_{beta}")))
        for beta in ("0.5", "3")
    ]
    assert round(begins[1] - begins[0], -1) == 90
    below = [at_the_end(x) < scores(x)[9] for x in entropy_first.values()]
    assert (len(below), sum(below)) == (10, 9)
    for dataset in (FASHION, AIRPLANE):  # class-balanced cross-entropy leads in every repetition
        best = [at_the_end(record) for record in surf_of(ends, dataset, BALANCED)]
        for method in SURF.values():
            others = [at_the_end(record) for record in surf_of(ends, dataset, method)]
            assert all(x <= y for x, y in zip(others, best, strict=False))


def test_the_claims_at_both_lengths(committed):
    """Of the first 20 epochs of three repetitions, and of all 120 of all there are."""

    def judged(figure, epochs, trials):
        panels = tuple(
            replace(panel, recipe={**panel.first, "epochs": epochs}) for panel in figure.panels
        )
        return verdicts(Evidence(Plan(replace(figure, panels=panels), trials), committed))

    others, more = 0, []
    for number in range(2, 8):
        figure = tables.table(f"surf-fig{number}")
        for (claim, _, early), (_, _, late) in zip(
            judged(figure, 20, 3), judged(figure, 120, 5), strict=True
        ):
            found = [seen["as in the paper"] for seen in (early, late)]
            others += not {verdict.word for verdict in found} & {CONFIRMED, NOT_CONFIRMED}
            if found[1].word == CONFIRMED != found[0].word:
                more.append(claim.text)
    assert others == 8
    assert len(more) == 4
    assert all("linearly correlated" in text for text in more)
    assert "four more claims are confirmed" in SURF_PAGE
    assert "eight have no verdict at either length" in SURF_PAGE


def test_the_tables_of_entropy_first(ends, entropy_first):
    for dataset, name in DATASETS.items():
        rows = []
        for label, method in SURF.items():
            if record := entropy_first.get((name, method)):
                alone = f"{at_the_end(ends[name, method, 1]):.3f}"
                rows.append([label, alone, *medians([record], 10, 11)])
        shown = table_under(f"| {dataset} | the end, from the start |")
        assert shown == [f"| {' | '.join(row)} |" for row in rows]
