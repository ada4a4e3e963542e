"""The page as text: complete, safe for any names, and not too large."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from evalign.report import render, scores
from tests.report.made import contents, rendered, tried

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


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_page(name):
    made = VARIANTS[name]
    html = rendered(made)
    page = Page(html)
    places = [div["id"] for div in page.all("div") if div.get("class") == "plot"]
    assert sorted(places) == sorted(page.data["figures"])
    assert all(div["aria-label"] for div in page.all("div") if div.get("role") == "img")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert all("scope" in th for th in page.all("th"))
    # Nothing is fetched: no address in the page's own elements, and plotly once.
    assert not [
        attributes for _, attributes in page.elements if {"src", "href"} & attributes.keys()
    ]
    assert html.count(get_plotlyjs()) == 1
    assert "nan" not in page.text.lower()
    assert "$" not in page.text


def test_the_scores_are_those_given():
    made = contents(2)
    result = scores(made)
    result["methods"][0]["value"] = 0.98765
    assert "0.988" in Page(render(made, result)).text
    assert "0.988" not in Page(render(made, scores(made))).text


def test_size_is_bounded():
    plotly = len(get_plotlyjs())
    assert len(rendered(contents(2, 20_000))) < plotly + 150_000
    assert len(rendered(VARIANTS["many"])) < plotly + 1_500_000


def test_what_is_there():
    two, three = (Page(rendered(VARIANTS[name])) for name in ("two", "three"))
    assert two.all("select") == []
    assert "positive class class 1" in two.text
    assert len(three.all("option")) == 3
    figures = {"intervals", "hard-aligned", "hard-cross_entropy", "soft-aligned", "reliability"}
    figures |= {"precision-recall", "training-metric", "loss-aligned", "loss-cross_entropy"}
    assert set(three.data["figures"]) == figures | {"temperature"}
    alone = Page(rendered(VARIANTS["no baseline"]))
    absent = {"intervals", "hard-cross_entropy", "loss-cross_entropy"}
    assert set(alone.data["figures"]) == set(three.data["figures"]) - absent
    assert "No usual model was trained" in alone.text


def test_the_candidates():
    made = contents(tried=tried())
    result = scores(made)
    assert result["tried"]["verdict"].endswith(
        "Against trees with argmax: blend is better by 0.200 (95% interval 0.150 to 0.250)."
    )
    page = Page(render(made, result))
    assert result["tried"]["verdict"] in page.text
    assert "trees0.700.6000.550 to 0.6500.5000.450 to 0.5500.1000.050 to 0.150" in page.text
    assert "<i>0.30" in page.text
    assert "blend1.000.7000.650 to 0.7500.6000.550 to 0.650" in page.text
    assert "network was left out: it took <b>." in page.text
    assert "Candidates" not in Page(rendered(contents())).text


@pytest.mark.parametrize(
    "changes", [{"rows": []}, {"gain": {"against": 3}}, {"left_out": {"network": 3}}]
)
def test_candidates_that_are_none(changes):
    with pytest.raises((ValueError, KeyError)):
        replace(tried(), **changes)


def test_words_for_what_is_missing_or_special():
    def text(name):
        return Page(rendered(VARIANTS[name])).text

    assert "trained without a temperature: no soft matrix" in text("no temperature")
    assert "No test row is of class class 1." in text("absent positive")
    assert "the 100 of 120 classes with most errors" in text("many")
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
    assert tags.count("script") == 3
    assert "b" not in tags
    assert added == -5  # one card of one entry for two
    assert all(name in page.text for name in NASTY)
    assert [curve["name"] for curve in page.data["curves"]] == NASTY


def test_numbers_as_names_stay_names():
    page = Page(rendered(replace(contents(), classes=["10", "2024-01-01", "1e3"])))
    axis = page.data["figures"]["hard-aligned"]["layout"]["xaxis"]
    assert axis["type"] == "category"
    assert axis["ticktext"] == ["10", "2024-01-01", "1e3"]
