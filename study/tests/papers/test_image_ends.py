"""What the documentation says of the image trainings that were not cut."""

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
    assert len(ends) == 23
    hours = sum(record["seconds"] for record in ends.values()) / 3600
    assert f"the 23 trainings took {hours:.1f} hours" in section


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


def test_what_is_missing(section, ends):
    assert all(of(ends, method).keys() == {*SEEDS} for method, _ in LINES.values())
    surf = {key[1:] for key in ends if key[0] == "fashion_mnist_tshirt"}
    assert surf == {("balanced_cross_entropy", 1), ("surf_0.5", 1)}
    assert {key[0] for key in ends} == {"cifar10", "fashion_mnist_tshirt"}
    assert f"{50 - len(surf)} of the 50 trainings" in section


def test_every_row_has_a_gradient(ends):
    """The page says that none of any batch had one of exactly 0."""
    points = [point for record in ends.values() for point in record["curve"]]
    assert len(points) == sum(record["epochs"] for record in ends.values())
    assert all(point["zero_gradients"] == 0 for point in points)


def test_surf(section, ends):
    best = [
        max(point["validation_f1"] for point in ends["fashion_mnist_tshirt", method, 1]["curve"])
        for method in ("balanced_cross_entropy", "surf_0.5")
    ]
    text = f"class-balanced BCE reaches {best[0]:.2f} of F1 on the validation rows"
    assert f"{text}, and the surrogate with β = 0.5 {best[1]:.2f}" in section
