"""The page as text: complete, safe for any names, and not too large."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from evalign.report import render, scores
from tests.report.made import contents, findings, rendered, tried

NASTY = ["</script><script>alert(1)</script>", "<b>\"&amp;'", "<!--<script>"]


class Page(HTMLParser):
    """The elements, the text outside scripts, and the embedded data."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self.scripts, self.inside = [], "", [], ""
        self.feed(html)
        self.close()
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def weighted_cost():
    rng = np.random.default_rng(0)
    groups = rng.integers(20, size=400)
    cost = "expected_cost[[0, 1, 1], [1, 0, 1], [2, 2, 0]]"
    return contents(metric=cost, weight=rng.random(400), groups=groups)


def diverged():
    made = contents()
    records = [record | {"loss": float("nan"), "best": False} for record in made.aligned.history]
    return replace(made, aligned=replace(made.aligned, history=records))


def absent():
    made = contents(4)
    return replace(made, y=np.where(made.y == 2, 0, made.y))


VARIANTS = {
    "two": contents(2),
    "three": contents(),
    "no baseline": contents(baseline=False),
    "no temperature": contents(temperature=None),
    "many": contents(120, 2000),
    "weighted cost in groups": weighted_cost(),
    "diverged": diverged(),
    "absent class": absent(),
    "absent positive": replace(contents(2), y=np.zeros(400, int)),
}


def plots(page):
    return {svg["id"] for svg in page.all("svg") if svg.get("class") == "plot"}


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_page(name):
    made = VARIANTS[name]
    html = rendered(made)
    page = Page(html)
    assert plots(page)
    assert all(svg["aria-label"] for svg in page.all("svg") if svg.get("class") == "plot")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert all("scope" in th for th in page.all("th"))
    # Nothing is fetched: no address in the page's elements.
    assert not [
        attributes for _, attributes in page.elements if {"src", "href"} & attributes.keys()
    ]
    assert len(page.all("script")) == 2
    assert "nan" not in page.text.lower()
    assert "$" not in page.text


def test_the_scores_are_those_given():
    made = contents(2)
    result = scores(made)
    result["methods"][0]["value"] = 0.98765
    assert "0.988" in Page(render(made, result)).text
    assert "0.988" not in Page(render(made, scores(made))).text


def test_size_is_bounded():
    """Below a megabyte, whatever there are many of."""
    assert len(rendered(contents(2, 20_000))) < 150_000
    assert len(rendered(VARIANTS["many"])) < 600_000
    names = [f"{'a long name ' * 20}{code}" for code in range(30)]
    long = replace(contents(30, 3000), classes=names, findings=findings(30, columns=3000))
    assert len(rendered(long)) < 1_000_000
    many = contents(400, 3000)
    assert len(rendered(replace(many, findings=findings(400), tried=tried()))) < 1_000_000


def test_what_is_there():
    two, three = (Page(rendered(VARIANTS[name])) for name in ("two", "three"))
    assert two.all("select") == []
    assert "positive class class 1" in two.text
    assert len(three.all("option")) == 3
    figures = {"intervals", "hard-aligned", "hard-cross_entropy", "soft-aligned", "reliability"}
    figures |= {"precision-recall", "training-metric", "loss-aligned", "loss-cross_entropy"}
    assert plots(three) == figures | {"temperature"}
    alone = Page(rendered(VARIANTS["no baseline"]))
    assert plots(alone) == plots(three) - {"hard-cross_entropy", "loss-cross_entropy"}


def test_the_matrix_is_told_to_who_cannot_see_it():
    made = contents()
    counts = confusion_matrix(made.y, made.aligned.predicted)
    np.fill_diagonal(counts, 0)
    true, given = np.unravel_index(counts.argmax(), counts.shape)
    [svg] = [s for s in Page(rendered(made)).all("svg") if s.get("id") == "hard-aligned"]
    most = f"true class {true}, predicted class {given}: {counts.max()};"
    assert f" Most errors: {most}" in svg["aria-label"]
    perfect = replace(made, aligned=replace(made.aligned, predicted=made.y))
    assert "decision rule. No errors." in rendered(perfect)


def test_the_answer_comes_first():
    made = contents()
    result = scores(made)
    page = Page(render(made, result))
    assert page.text.split("evalign report", 1)[1].strip().startswith(result["answer"]["sentence"])
    assert " ".join(result["answer"]["next"]) in page.text


def test_the_rule_in_words():
    made = replace(contents(2), findings=findings(2))
    text = Page(rendered(made)).text
    for name in ("aligned", "cross-entropy"):
        rule = "class 1 from a probability of 0.31 on, else class 0."
        assert f"The rule of {name}: {rule}" in text
    three = Page(rendered(replace(contents(), findings=findings()))).text
    assert "where all of the rest is that of class 0, the most frequent class" in three
    assert "class 10.310.31class 20.020.02" in three.replace("\n", "")


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (None, "The rule of aligned: never class 1, always class 0."),
        (0.0, "The rule of aligned: always class 1."),
        (0.0123, "class 1 from a probability of 0.0123 on"),
        (0.99876, "class 1 from a probability of 0.9988 on"),
    ],
)
def test_rules_at_the_ends(cut, words):
    found = replace(findings(2, models=1), cuts=[[None, cut]])
    assert words in Page(rendered(contents(2, baseline=False, findings=found))).text


def test_what_was_warned_of_and_the_columns():
    page = Page(rendered(replace(contents(), findings=findings(columns=20))))
    assert "Note: Two files are <i>the same</i>." in page.text
    assert "column 0 <b>0.190" in page.text
    assert "columns" in plots(page)
    # Those whose shuffling does not hurt are not drawn.
    assert "column 4 <b>" in page.text
    assert "column 5 <b>" not in page.text
    assert "15 others matter less, or not at all." in page.text
    useless = replace(findings(), columns=[{"column": "x", "value": 0.0, "low": -1, "high": 1}])
    page = Page(rendered(replace(contents(), findings=useless)))
    assert "Shuffling a column does not make f1_macro worse." in page.text
    assert "columns" not in plots(page)


def test_what_would_say_nothing_is_not_drawn():
    """The same labels or probabilities twice, a constant temperature, a training of one epoch."""
    made = contents()
    same = Page(rendered(replace(made, baseline=replace(made.aligned, name="cross_entropy"))))
    assert "cross-entropy gives the same labels" in same.text
    assert not plots(same) & {"hard-cross_entropy"}
    assert "intervals" in plots(same)  # argmax still differs
    assert len(same.data["curves"][0]["models"]) == 1
    constant = [record | {"temperature": 0.2} for record in made.aligned.history]
    model = replace(made.aligned, history=constant)
    assert "temperature" not in plots(Page(rendered(replace(made, aligned=model))))
    one = replace(made.aligned, history=constant[:1])
    page = Page(rendered(replace(made, aligned=one, baseline=None)))
    assert not plots(page) & {"training-metric", "loss-aligned"}
    argmax = replace(one, predicted=one.probabilities.argmax(1))
    page = Page(rendered(replace(made, aligned=argmax, baseline=None)))
    assert "intervals" not in plots(page)
    flat = replace(one, probabilities=np.full((400, 3), 1 / 3))
    assert "reliability" not in plots(Page(rendered(replace(made, aligned=flat, baseline=None))))


def test_classes_with_few_rows_are_marked():
    made = contents(4, 400)
    y = np.where((made.y == 2) & (np.cumsum(made.y == 2) > 3), 0, made.y)
    made = replace(made, y=y)
    result = scores(made)
    text = Page(render(made, result)).text
    assert "Classes with fewer than 10 test rows: class 2 (3)." in text
    value = result["scarce"]["values"]["aligned"]
    assert f"Without them f1_macro is {value:.3f} by aligned" in text
    assert text.count("class 2few test rows") == 2
    assert "few test rows" not in Page(rendered(contents(4))).text
    # The curve of three rows is not the one to begin with.
    chosen = [option for option in Page(render(made, result)).all("option") if "selected" in option]
    rarest = min((code for code in (0, 1, 3)), key=lambda code: (y == code).sum())
    options = Page(render(made, result)).all("option")
    assert options.index(chosen[0]) == rarest


def test_the_candidates():
    made = contents(tried=tried())
    result = scores(made)
    assert result["tried"]["verdict"].endswith(
        "blend is better than trees with argmax by 0.200 (95% interval 0.150 to 0.250)."
    )
    page = Page(render(made, result))
    assert result["tried"]["verdict"] in page.text
    assert "trees0.700.6000.550 to 0.6500.5000.450 to 0.5500.1000.050 to 0.150" in page.text
    assert "<i>0.30" in page.text
    assert "blend1.000.7000.650 to 0.7500.6000.550 to 0.650" in page.text
    assert "network was left out: it took <b>." in page.text
    assert "The last line is chosen anew" in page.text
    assert "Candidates" not in Page(rendered(contents())).text
    few = replace(tried(), gain=tried().gain | {"few_groups": 2})
    assert scores(contents(tried=few))["tried"]["verdict"].endswith(
        "no clear difference between blend and trees with argmax (0.200, 95% interval 0.150 to "
        "0.250, and few groups)."
    )
    made = replace(made, tried=replace(made.tried, rows=made.tried.rows[:1]))
    assert "The last line" not in Page(rendered(made)).text


@pytest.mark.parametrize(
    "changes", [{"rows": []}, {"gain": {"against": 3}}, {"left_out": {"network": 3}}]
)
def test_candidates_that_are_none(changes):
    with pytest.raises((ValueError, KeyError)):
        replace(tried(), **changes)


def test_words_for_what_is_missing_or_special():
    def text(name):
        return Page(rendered(VARIANTS[name])).text

    assert "soft" not in text("no temperature")
    assert "No test row is of class class 1." in text("absent positive")
    assert "Of 120 classes the 30 with most errors." in text("many")
    weighted = text("weighted cost in groups")
    assert "Lower is better: expected_cost[[0, 1, 1], [1, 0, 1], [2, 2, 0]]." in weighted
    assert "400 weighted test rows" in weighted
    assert "resamples of the 20 groups of test rows" in weighted
    assert "Groups are few" in weighted


def test_a_perfect_model_gets_a_word_about_its_interval():
    made = contents(2)
    made = replace(made, aligned=replace(made.aligned, predicted=made.y))
    assert "An interval without width" in Page(rendered(made)).text
    assert "An interval without width" not in Page(rendered(contents(2))).text


def test_nasty_names_are_harmless():
    cards = {NASTY[0]: {NASTY[1]: NASTY[2]}}
    page = Page(rendered(replace(contents(), classes=NASTY, cards=cards)))
    plain = Page(rendered(contents()))
    tags = [tag for tag, _ in page.elements]
    added = len(tags) - len([tag for tag, _ in plain.elements])
    assert tags.count("script") == 2
    assert "b" not in tags
    assert added == -5  # one card of one entry for two
    assert all(name in page.text for name in NASTY)
    assert [curve["name"] for curve in page.data["curves"]] == NASTY


def test_names_that_are_not_unicode():
    """As `os.listdir` gives those of files that are not named in UTF-8."""
    made = contents(2, cards={"Data": {"file": "\udce9"}})
    html = rendered(replace(made, classes=["caf\udce9", "tea"]))
    assert "caf\\udce9" in html.encode().decode()


def test_columns_as_read():
    column = {
        "name": "</td><b>",
        "kind": "number",
        "gaps": 1200,
        "values": 3,
        "examples": ["1", "<i>"],
    }
    page = Page(rendered(contents(columns=[column])))
    assert "</td><b>number1,20031, <i>" in page.text
    assert page.all("details") == [{}]  # folded
    assert not page.all("b")
    many = Page(rendered(contents(columns=[column] * 201))).text
    assert "The first 200 of 201 columns." in many
    assert many.count("1, <i>") == 200
    assert "Columns as read" not in Page(rendered(contents())).text
