"""What the documentation says of the image trainings that were not cut."""

import runpy
import statistics
from pathlib import Path

import pytest
from evalign_study.papers import tables
from evalign_study.pipeline.intervals import interval
from evalign_study.records.results import SUFFIX, Results
from evalign_study.records.run import LOSS, Run

ROOT = Path(__file__).parents[3]
ENDS = ROOT / "study" / "results" / f"image-ends{SUFFIX}"
SEEDS = (1, 2, 3)
STRICT = "f1_macro"
FASHION = "fashion_mnist_tshirt"
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
    "BCE, class-balanced": "balanced_cross_entropy",
    "MAE": "mae",
    **{f"Surrogate, β = {beta}": f"surf_{beta}" for beta in ("0.5", "1", "2", "3")},
    **{f"Macro soft, β = {beta}": f"balanced_macro_soft_{beta}" for beta in ("0.5", "1", "2", "3")},
}


@pytest.fixture(scope="module")
def section():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    return page.partition("## The image tables at their end\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def ends():
    """All records, by data set, method and seed."""
    found = [(Run(**record["run"]), record) for record in Results(ENDS).records()]
    return {(run.dataset, run.method, run.seed): record for run, record in found}


def of(ends, method):
    found = {seed: ends.get(("cifar10", method, seed)) for seed in SEEDS}
    return {seed: record for seed, record in found.items() if record}


def value(record, criterion=LOSS, decision="argmax", metric="f1_macro"):
    return record["picks"][criterion]["decisions"][decision]["test"][metric]


def mean(records, *which):
    return f"{interval(value(record, *which) for record in records).mean:.3f}"


def difference(ends, method, other, *which):
    """As the page writes it, over the trials that both have."""
    ours, theirs = of(ends, method), of(ends, other)
    found = interval(
        value(ours[seed], *which) - value(theirs[seed], *which)
        for seed in SEEDS
        if seed in ours and seed in theirs
    )
    mean, low, high = (f"{x:+.3f}".replace("-", "−") for x in found[:3])
    return f"{mean} ({low} to {high})"


def at_sixty(ends, method, other, committed):
    """The same runs with the shorter cap; none where they are not there."""
    run = Run(**next(iter(of(ends, method).values()))["run"])
    runs = [run.but(method=other, epochs=60, seed=seed) for seed in SEEDS]
    return [committed[run.key] for run in runs if run.key in committed]


@pytest.mark.parametrize("label", LINES)
def test_the_table_shows_the_records(label, section, ends, committed):
    method, other = LINES[label]
    found = list(of(ends, method).values())
    before = at_sixty(ends, method, other, committed)
    printed = tables.table("east-table1").panels[0].printed.get((label.replace("\\", ""), "F1"))

    def each(metric):
        return ", ".join(f"{value(record, metric=metric):.3f}" for record in found)

    cells = [
        label,
        ", ".join(str(record["epochs"]) for record in found),
        each("f1_macro"),
        mean(found),
        mean(found, STRICT, "tuned"),
        each("accuracy"),
        mean(found, LOSS, "argmax", "accuracy"),
        mean(before) if before else "–",
        printed.text.split()[0] if printed else "–",
    ]
    assert f"| {' | '.join(cells)} |\n" in section


def test_all_ended_by_themselves(section, ends):
    """By their patience, those of CIFAR-10."""
    for (dataset, *_), record in ends.items():
        assert not record["capped"]
        assert not record["diverged"]
        if dataset == "cifar10":
            assert record["epochs"] - record["picks"][LOSS]["epoch"] == record["run"]["patience"]
    hours = sum(record["seconds"] for record in ends.values()) / 3600
    assert f"the {len(ends)} trainings took {hours:.1f} hours on one" in section


def test_differences(section, ends):
    strictly, accuracy = (STRICT, "tuned"), ("accuracy", "tuned", "accuracy")
    paper = difference(ends, "east_accuracy", "cross_entropy", LOSS, "argmax", "accuracy")
    mcc = ("matthews_corrcoef", "tuned", "matthews_corrcoef")
    paper_mcc = difference(ends, "east_mcc", "cross_entropy", LOSS, "argmax", mcc[0])
    for text in (
        f"{difference(ends, 'east_f1', 'cross_entropy')} against cross-entropy as in the paper",
        f"and {difference(ends, 'east_f1', 'cross_entropy', *strictly)} strictly",
        f"against Dice it is {difference(ends, 'east_f1', 'dice')}",
        f"Acc\\* in accuracy: {paper} against cross-entropy as in the paper",
        f"{difference(ends, 'east_accuracy', 'cross_entropy', *accuracy)} strictly",
        f"MCC\\* in MCC: {paper_mcc} against cross-entropy as in the paper",
        f"{difference(ends, 'east_mcc', 'cross_entropy', *mcc)} strictly",
        f"{difference(ends, 'mcfbeta_f1', 'east_f1')} against the cooled one",
    ):
        assert text in section


def test_what_the_text_says_of_the_table(section, ends, committed):
    f1, entropy = (list(of(ends, name).values()) for name in ("east_f1", "cross_entropy"))
    before = [mean(at_sixty(ends, x, x, committed)) for x in ("east_f1", "cross_entropy")]
    epochs = [record["epochs"] for record in f1]
    grows = (
        f"In {min(epochs)} to {max(epochs)} epochs its mean grows from {before[0]} to {mean(f1)}"
    )
    assert f"{grows}, where 0.765 is printed" in section
    assert f"{before[1]} and {mean(entropy)} are the same setting" in section
    latest = max(record["picks"][LOSS]["epoch"] for record in entropy)
    found = [value(record) for record in entropy]
    apart = f"{max(found) - min(found):.2f}"
    assert f"one of the first {latest} epochs, where its trials differ by {apart}" in section


def test_east_is_complete(ends):
    assert all(of(ends, method).keys() == {*SEEDS} for method, _ in LINES.values())


def test_every_row_has_a_gradient(ends):
    """The page says that none of any batch of EAST's had one of exactly 0."""
    records = [record for (dataset, *_), record in ends.items() if dataset == "cifar10"]
    points = [point for record in records for point in record["curve"]]
    assert len(points) == sum(record["epochs"] for record in records)
    assert all(point["zero_gradients"] == 0 for point in points)


def surf_of(ends, method):
    """SurF's trainings with a loss, in the order of their seeds."""
    found = sorted((key, record) for key, record in ends.items() if key[:2] == (FASHION, method))
    return [record for _, record in found]


def scores(record):
    """F1 of the validation rows, epoch by epoch."""
    return [point["validation_f1"] for point in record["curve"]]


def at_one_class(record):
    """How many epochs, from the first on, called every validation row the same."""
    found = scores(record)
    stuck = [abs(f1 - ALL_POSITIVE) < 1e-3 or f1 == 0 for f1 in found]
    assert not any(stuck[stuck.index(False) :])  # who has left stays away
    return stuck.index(False)


def surf_line(ends, label):
    records = surf_of(ends, SURF[label])

    def median(values):
        return f"{statistics.median(values):.3f}"

    cells = [
        label,
        str(len(records)),
        ", ".join(str(at_one_class(record)) for record in records),
        median(scores(record)[19] for record in records),
        median(scores(record)[-1] for record in records),
        median(statistics.median(scores(record)[-10:]) for record in records),
        *(
            median(value(record, decision=decision, metric="f1") for record in records)
            for decision in ("argmax", "tuned")
        ),
    ]
    return f"| {' | '.join(cells)} |\n"


@pytest.mark.parametrize("label", SURF)
def test_surf(label, section, ends):
    if records := surf_of(ends, SURF[label]):
        assert {record["epochs"] for record in records} == {120}
        assert surf_line(ends, label) in section
    else:
        assert f"| {label} | 0 |" in section


def test_what_is_missing_of_surf(section, ends):
    figures = sum(len(surf_of(ends, method)) for method in SURF.values())
    assert figures + len(SEEDS) * len(LINES) == len(ends)
    runs_of = runpy.run_path(str(ROOT / "study" / "benchmarks" / "image_ends.py"))["runs_of"]
    wanted, airplane = (len(runs_of(part)) for part in ("fashion", "airplane"))
    missing = f"{wanted - figures} of the {wanted} trainings are missing"
    assert f"{missing}, and on CIFAR-10 all {airplane}." in section


def test_what_the_text_says_of_surf(section, ends):
    last = {
        label: statistics.median(scores(records[0])[-10:])
        for label, method in SURF.items()
        if (records := surf_of(ends, method))
    }
    first, second, *_ = sorted(last, key=last.__getitem__, reverse=True)
    assert (first, second) == ("BCE, class-balanced", "Macro soft, β = 0.5")
    best = max(f1 for label, f1 in last.items() if label.startswith("Surrogate"))
    summary = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert f"one repetition on Fashion-MNIST: {last[first]:.2f} against {best:.2f}." in summary
    ahead = [last["Surrogate, β = 1"] - last[other] for other in ("MAE", "Macro soft, β = 1")]
    assert f"by {min(ahead):.2f} to {max(ahead):.2f} in the median of the last ten" in section
    found = [
        statistics.correlation(
            [-point["train_loss"] for point in record["curve"]],
            [point[f"train_f{beta}"] for point in record["curve"]],
        )
        for beta in ("0.5", "1", "2", "3")
        for record in surf_of(ends, f"surf_{beta}")
    ]
    assert f"(correlations from {min(found):.2f} to {max(found):.2f})" in section
