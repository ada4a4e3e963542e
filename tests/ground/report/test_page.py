"""The page as text: complete, safe for any names, and not too large."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from evalign.report import scores
from tests.ground.report.made import FIGURES, contents, findings, labelled, rendered, tried

NASTY = ["</script><script>alert(1)</script>", "<b>\"&amp;'", "<!--<script>"]
COST = "expected_cost[[0, 1, 1], [1, 0, 1], [2, 2, 0]]"


class Page(HTMLParser):
    """The elements, the text outside scripts, and the embedded data."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self.scripts, self.inside = [], "", [], ""
        self.feed(html)
        self.close()
        self.text = " ".join(self.text.split())
        self.data = json.loads(self.scripts[0])
        self.plots = {svg["id"]: svg for svg in self.all("svg") if svg.get("class") == "plot"}

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""
        if tag in ("td", "th", "small", "li", "p"):
            self.text += " "

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page(made):
    return Page(rendered(made))


RNG = np.random.default_rng(0)
WEIGHTED = contents(metric=COST, weight=RNG.random(400), groups=RNG.integers(20, size=400))
USELESS = [{"column": "x", "value": 0.0, "low": -1, "high": 1}]


def changed(made, **changes):
    """Change the aligned model, which is then the only one."""
    return replace(made, aligned=replace(made.aligned, **changes), baseline=None)


VARIANTS = {
    "two": (contents(2), "positive class class 1"),
    "three": (contents(), "Diamonds mark the decision rules, which weigh all classes"),
    "no baseline": (contents(baseline=False), "aligned with argmax"),
    "many": (contents(120, 2000), "The 30 of 120 classes with the most errors."),
    "weighted": (WEIGHTED, "400 weighted test rows"),
    "cost": (WEIGHTED, f"Lower is better: {COST}."),
    "groups": (WEIGHTED, "resamples of 20 groups of test rows"),
    "one answer": (changed(contents(), probabilities=np.full((400, 3), 1 / 3)), "Calibration"),
    "absent class": (contents(4, y=np.arange(400) % 3), "class 3 (0)"),
    "absent positive": (contents(2, y=np.zeros(400, int)), "No row is of class class 1."),
    "seen": (contents(seen=True), "This is not a test:"),
    "tried": (contents(tried=tried()), "network was left out: it took <b>."),
    "one tried": (contents(tried=replace(tried(), rows=tried().rows[:1])), "fitted without it. "),
    "useless": (contents(findings=replace(findings(), columns=USELESS)), "Shuffling any one"),
    "unknown": (contents(findings=replace(findings(), columns=[])), "Not computed: it would"),
    # A name as `os.listdir` gives it if it is not UTF-8.
    "not unicode": (replace(contents(2), classes=["tea", "caf\udce9"]), "class caf\\udce9"),
    "rules": (contents(findings=findings()), "rule of cross-entropy: the largest logit plus 1 <b>"),
    "two rules": (contents(2, findings=findings()), "aligned: the largest logit plus 0 <b>."),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_page(name):
    made, text = VARIANTS[name]
    found = page(made)
    found.text.encode()
    assert text in found.text
    assert found.plots
    assert all(svg["aria-label"] for svg in found.plots.values())
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert found.all("html") == [{"lang": "en"}]
    assert len(found.all("h1")) == 1
    assert all("scope" in th for th in found.all("th"))
    # Nothing is fetched.
    assert not [each for _, each in found.elements if {"src", "href"} & each.keys()]
    assert len(found.all("script")) == 2
    assert "nan" not in found.text.lower()
    assert not {"{{", "{%", "None", "undefined"} & set(found.text.split())
    answer = scores(made)["answer"]
    first = " ".join([answer["sentence"], *answer["next"]])
    head = found.text.split("evalign report", 1)[1].split(first)[0]  # one line above the answer
    assert re.fullmatch(
        rf"metric {re.escape(made.metric)}, [\d,]+ (test rows|rows seen.*)", head.strip()
    )


def test_figures():
    """Nothing is drawn that would say nothing or the same twice."""
    made = contents()
    assert page(made).plots.keys() == FIGURES
    alone = FIGURES - {"matrix-cross_entropy"}
    assert page(replace(made, baseline=None)).plots.keys() == alone
    same = page(replace(made, baseline=replace(made.aligned, name="cross_entropy")))
    assert "cross-entropy gives the same labels as aligned." in same.text
    assert same.plots.keys() == alone
    assert len(same.data["curves"][0]["models"]) == 1
    argmax = made.aligned.probabilities.argmax(1)
    same = page(changed(made, predicted=argmax))
    assert same.plots.keys() == {"matrix-aligned", "precision-recall", "reliability"}


def test_size_is_bounded():
    """Below a megabyte, however many classes and columns there are."""
    assert len(rendered(contents(2, 20_000))) < 150_000
    assert len(rendered(VARIANTS["many"][0])) < 600_000
    names = [f"{'a long name ' * 20}{code}" for code in range(30)]
    long = replace(contents(30, 3000), classes=names, findings=findings(columns=3000))
    assert len(rendered(long)) < 1_000_000
    many = contents(400, 3000, findings=findings(), tried=tried())
    assert len(rendered(many)) < 1_000_000


def test_the_description_of_the_matrix_names_errors():
    made = contents()
    counts = confusion_matrix(made.y, made.aligned.predicted)
    np.fill_diagonal(counts, 0)
    true, given = np.unravel_index(counts.argmax(), counts.shape)
    most = f" Most errors: true class {true}, predicted class {given}: {counts.max()};"
    assert most in page(made).plots["matrix-aligned"]["aria-label"]
    perfect = replace(made, aligned=replace(made.aligned, predicted=made.y))
    assert "Confusion matrix of aligned. No errors." in rendered(perfect)


def test_notes_and_importance():
    found = page(contents(findings=findings(columns=20)))
    assert "Note: Two files are <i>the same</i>." in found.text
    assert "column 0 <b>0.190" in found.text
    # Columns whose shuffling does not hurt are not drawn.
    assert "column 4 <b>" in found.text
    assert "column 5 <b>" not in found.text
    assert "15 other columns matter less or not at all." in found.text


def test_scarce_classes_are_marked():
    made = contents(4, 400)
    y = np.where((made.y == 2) & (np.cumsum(made.y == 2) > 3), 0, made.y)
    made = replace(made, y=y)
    found = page(made)
    assert "fewer than 10 test rows, whose scores are rough: class 2 (3)." in found.text
    value = scores(made)["scarce"]["values"]["aligned"]
    assert f"Without them, f1_macro is {value:.3f} for aligned," in found.text
    assert found.text.count("class 2few rows") == 2
    assert "few rows" not in page(contents(4)).text
    # A curve of three rows is not shown first.
    [chosen] = [i for i, option in enumerate(found.all("option")) if "selected" in option]
    assert chosen == min((0, 1, 3), key=lambda code: (y == code).sum())


def test_candidates():
    made = contents(tried=tried())
    found = page(made)
    assert scores(made)["tried"]["verdict"] in found.text
    lines = [
        "trees 0.70 0.6000.550 to 0.650 0.5000.450 to 0.550 0.1000.050 to 0.150",
        "<i> 0.30",
        "blend 1.00 0.7000.650 to 0.750 0.6000.550 to 0.650",
        "The last line repeats the choice in every fold",
    ]
    assert all(line in found.text for line in lines)
    few = replace(tried(), gain=tried().gain | {"few_groups": 2})
    assert scores(contents(tried=few))["tried"]["verdict"].endswith(
        "no clear difference between blend and trees with argmax (0.200, 95% interval 0.150 to "
        "0.250, few groups); blend itself has 0.700 with its rule, 0.600 with argmax."
    )


def test_columns_as_read():
    column = {"name": "</td><b>", "kind": "number", "gaps": 1200, "values": 3}
    column["examples"] = ["1", "<i>"]
    found = page(contents(columns=[column]))
    assert "</td><b> number 1,200 3 1, <i>" in found.text
    assert found.all("details") == [{}]  # folded
    assert not found.all("b")
    many = page(contents(columns=[column] * 201)).text
    assert "The first 200 of 201 columns." in many
    assert many.count("1, <i>") == 200
    assert "Columns as read" not in page(contents()).text


def test_nasty_names_are_harmless():
    cards = {NASTY[0]: {NASTY[1]: NASTY[2]}, "Run": {"seed": "0"}}
    made = contents(findings=findings(), tried=tried(), cards=cards, metric=COST)
    found = page(replace(made, classes=NASTY, aligned=replace(made.aligned, name=NASTY[0])))
    plain = page(replace(made, cards={"Data": {"rows": "400"}, "Run": {"seed": "0"}}))
    tags, expected = ([tag for tag, _ in each.elements if tag != "wbr"] for each in (found, plain))
    assert tags == expected
    for name in NASTY:
        assert name in found.text
    assert [curve["name"] for curve in found.data["curves"]] == NASTY


def test_the_head_names_file_and_metric_and_the_table_the_best_constant():
    made = contents(source="data.csv, target label")
    page, found = rendered(made), scores(made)
    assert "data.csv, target label, metric f1_macro, 400 test rows" in page
    values = [f1_score(made.y, np.full_like(made.y, c), average="macro") for c in range(3)]
    best = int(np.argmax(values))
    assert found["constant"]["class"] == f"class {best}"
    assert found["constant"]["value"] == pytest.approx(values[best])
    ours = f1_score(made.y, made.aligned.predicted, average="macro")
    assert found["constant"]["difference"]["value"] == pytest.approx(ours - values[best])
    assert f"always class {best}</th><td>{values[best]:.3f}</td>" in page


def test_a_model_has_to_beat_one_label_for_all_rows():
    y = np.arange(400) % 5 // 4
    made = contents(2, 400, y=y, metric="f1")
    blind = replace(made, aligned=labelled(made.aligned, np.where(np.arange(400) == 4, 0, 1)))
    found = scores(replace(blind, baseline=labelled(made.baseline, np.zeros(400, int))))
    assert found["constant"]["class"] == made.classes[1]
    assert found["answer"]["verdict"] == "did not help"
    assert "0.333 if every label is class 1" in found["answer"]["sentence"]
