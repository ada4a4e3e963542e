"""The printed figures, and the errors for a file whose parts contradict each other."""

import pytest
from evalign_study.data import card
from evalign_study.papers.tables import RELATIONS, names, table

# Figures that contradict the sentence they are printed with, each noted beside its table.
CONTRADICTED = {
    ("east-table1", "Caltech-256", "Acc*", "CE", "Acc"),
    ("east-table1", "Caltech-256", "MCC*", "CE", "MCC"),
    ("east-table1", "Kaggle", "MCC*", "CE", "MCC"),
    ("east-table1", "CocktailParty", "MCC*", "CE", "MCC"),
    ("btg-table1", "Adult", "F1*", "BCE", "Accuracy"),
    ("east-table1", "Mammography", "F1*", "CE", "F1"),
    ("east-table3", "CocktailParty", "RF", "Acc*", "Acc"),
    ("east-table3", "Kaggle", "RF", "Acc*", "Acc"),
    ("east-table4", "Caltech-256, Dog", "Dog P* (β = 0.25)", "CE", "Precision"),
    ("btg-table1", "Mammography", "F1*", "BCE", "Accuracy"),
    ("btg-table1", "Mammography", "Accuracy*", "BCE", "Accuracy"),
    ("east-table5", "CIFAR-10", "Dog R* (β = 5)", "Dog P* (β = 0.25)", "Precision (Frog)"),
    ("east-table5", "CIFAR-10", "Dog R* (β = 5)", "Dog P* (β = 0.25)", "Recall (Frog)"),
    ("east-table5", "Caltech-256", "Dog R* (β = 5)", "Dog P* (β = 0.25)", "Recall (Frog)"),
}


def printed(name, label):
    (panel,) = (panel for panel in table(name).panels if panel.label == label)
    return {key: cell.text for key, cell in panel.printed.items()}


def test_every_table_and_figure_is_there():
    papers = {"east": range(1, 8), "mcfbeta": range(1, 3), "btg": range(1, 5)}
    expected = [f"{paper}-table{n}" for paper, numbers in papers.items() for n in numbers]
    expected += [f"surf-fig{n}" for n in range(2, 8)]
    ablations = ("threshold", "annealing", "membership", "batch", "imbalance")
    assert names() == expected + [f"ablation-{what}" for what in ablations]


@pytest.mark.parametrize(
    ("name", "panel", "line", "column", "text"),
    [
        ("east-table1", "CIFAR-10", "MCC*", "MCC", "0.735 ± 0.01"),
        ("east-table1", "Caltech-256", "MCC*", "Acc", "0.026 ± 0.00"),
        ("east-table1", "CocktailParty", "Dice", "MCC", "−0.025 ± 0.05"),
        ("east-table1", "Adult", "F1*", "F1", "0.364 ± 0.10"),
        ("east-table1", "Kaggle", "CE", "MCC", "0.856 ± 0.01"),
        ("east-table2", "CIFAR-10", "CCS", "Accuracy", "0.111 ± 0.00"),
        ("east-table3", "Adult", "CCS", "Acc", "0.553 ± 0.01"),
        ("east-table4", "Caltech-256, Frog", "CE", "Precision", "0.022 ± 0.06"),
        ("east-table6", "CIFAR-10", "β = 10.0", "Recall", "0.712 ± 0.04"),
        ("mcfbeta-table2", "Kaggle", "CE", "F1", "0.294 ± 0.01"),
        ("btg-table1", "Kaggle", "Accuracy*", "AUROC", "0.78 ± 0.15"),
        ("btg-table2", "CIFAR-10-Frog", "BCE", "F1", "0.59 ± 0.04"),
        ("btg-table4", "Mammography", "F3*", "Recall", "0.81 ± 0.03"),
    ],
)
def test_known_cells(name, panel, line, column, text):
    assert printed(name, panel)[line, column] == text


# The papers print some figures twice, so that a slip in one of them shows.
@pytest.mark.parametrize("line", ["F1*", "Acc*"])
@pytest.mark.parametrize("other", ["east-table2", "east-table3"])
def test_figures_printed_twice(line, other):
    for panel in table(other).panels:
        first = printed("east-table1", panel.label)
        pairs = {"Macro F1": "F1", "F1": "F1", "Accuracy": "Acc", "Acc": "Acc"}
        for (label, column), text in printed(other, panel.label).items():
            if label == line:
                assert text == first[line, pairs[column]]


def test_figures_of_cross_entropy_printed_twice():
    first, again = printed("east-table4", "CIFAR-10, Dog"), printed("east-table7", "CIFAR-10")
    for (_, column), text in again.items():
        short = column.removesuffix(" (Dog)")
        if ("CE", column) in again:
            assert again["CE", column] == first["CE", short], text
    assert printed("mcfbeta-table1", "CIFAR-10")["CE", "Macro F1"] == first["CE", "Macro F1"]


def test_claims_are_those_of_the_figures():
    """A printed difference has the sign that the sentence gives it, except for known slips."""
    found = set()
    for name in names():
        for claim in table(name).claims:
            for panel in table(name).panels:
                pair = [panel.printed.get((x, claim.column)) for x in (claim.better, claim.than)]
                if panel.label in claim.on and all(pair):
                    least, most = RELATIONS[claim.relation]
                    if not least < round(pair[0].mean - pair[1].mean, 6) < most:
                        found.add((name, panel.label, claim.better, claim.than, claim.column))
    assert found == CONTRADICTED


def noted(name, text):
    notes = [*table(name).notes, *(note for panel in table(name).panels for note in panel.notes)]
    return any(text in note for note in notes)


def test_figures_of_ours_in_notes_follow_from_the_cards():
    apart, together = card("cocktailparty_frames").counts
    every = 2 * together / (2 * together + apart)
    assert noted("btg-table3", f"every pair positive already scores {every:.2f}".replace("0.", "."))
    # F1 = 2 tp / (2 tp + mistakes), and there are no fewer positives than tp.
    least = 0.83 * (1 - 0.77) / (2 * (1 - 0.83))
    assert noted("btg-table3", f"F1 .83 with accuracy .77 takes at least {least:.0%} positives")
    equitability = f"{card('caltech256_clip').equitability:.3f}".replace("0.", ".")
    assert noted("east-table1", f"the rows here have {equitability}")
    assert noted("ablation-imbalance", "at 1:1000 the test part has about seven")
    assert round(card("adult").counts[0] / 1000 * 0.2) == 7


def test_every_column_can_be_measured_and_selected():
    from evalign_study.records.run import BINARY, MULTICLASS

    for name in names():
        for panel in table(name).panels:
            for column in panel.columns:
                known = BINARY if panel.classes == 2 else MULTICLASS
                assert column.curve or column.criterion in known, (name, column)
