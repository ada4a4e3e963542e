"""The page in a real browser, without a network: figures, slider, phone, paper."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from sklearn.metrics import confusion_matrix

from tests import tolerances
from tests.ground.report.made import FIGURES, contents, findings, rendered, tried

NASTY = ["<script>document.title = 'bad'</script>", "</script><b>bold</b>", "&lt;i&gt;"]
# Per figure, whether each of its shapes (bars, lines, markers, cells) has a size on the screen.
DRAWN = """
return Object.fromEntries([...document.querySelectorAll('svg.plot')].map(plot => {
  const shapes = [...plot.querySelectorAll('.line, .bar, .dot, .ring, .cell')];
  const seen = shapes.map(s => s.getBoundingClientRect()).filter(b => b.width + b.height > 0.5);
  return [plot.id, [seen.length, shapes.length]];
}));
"""
# Pairs of texts that lie on each other, and texts that are cut by the screen or by their table.
# What a table with a scroll bar of its own holds is not all on the screen.
WRONG = """
const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const boxes = [];
while (walker.nextNode()) {
  const node = walker.currentNode, range = document.createRange();
  if (!node.data.trim() || node.parentElement.closest('title, option, .tall')) continue;
  range.selectNodeContents(node);
  for (const b of range.getClientRects()) boxes.push([node.data.trim(), b]);
}
const cut = boxes.filter(([, b]) => b.left < 0 || b.right > innerWidth + 0.5).map(([t]) => t);
for (const table of document.querySelectorAll('.scroll')) {
  if (table.scrollWidth > table.clientWidth) cut.push(table.textContent.slice(0, 60));
}
const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const collide = [];
boxes.forEach(([text, a], i) => boxes.slice(0, i).forEach(([other, b]) => {
  if (over(a, b)) collide.push([other, text]);
}));
return [boxes.length, cut, collide];
"""


@pytest.fixture
def show(browser, tmp_path):
    """Open the report in a window of the given width; afterwards nothing may have gone wrong."""

    def open_(made, *, width=1200):
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
        path = tmp_path / "report.html"
        path.write_text(rendered(made), encoding="utf-8")
        browser.get(path.as_uri())
        loaded = "return document.readyState === 'complete'"  # `get` does not always wait for it
        WebDriverWait(browser, 60).until(lambda b: b.execute_script(loaded))
        return browser

    yield open_
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource')") == []


def readout(browser):
    names = ["threshold", "precision", "recall", "f1", "tp", "fp", "fn", "tn"]
    texts = (browser.find_element(By.ID, f"at-{name}").text for name in names)
    return {name: float(text.replace(",", "")) for name, text in zip(names, texts, strict=True)}


def move(browser, place):
    """Move the slider to a place, as a hand would: the value, then the event."""
    slider = browser.find_element(By.ID, "threshold")
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, slider, place)


def check_readout(browser, made, code):
    """Compare the readout and the ring with plain counts; return the threshold."""
    curve = 0 if len(made.classes) == 2 else code  # two classes have one curve
    script = "return data.curves[arguments[0]].models[0].threshold[slider.value]"
    script = "const slider = document.getElementById('threshold'); " + script
    threshold = browser.execute_script(script, curve)  # with all digits
    said, true = made.aligned.probabilities[:, code] >= threshold, made.y == code
    (tn, fp), (fn, tp) = confusion_matrix(true, said)
    precision, recall, f1 = tp / (tp + fp), tp / (tp + fn), 2 * tp / (2 * tp + fp + fn)
    expected = {"threshold": threshold, "tp": tp, "fp": fp, "fn": fn, "tn": tn}
    expected |= {"precision": precision, "recall": recall, "f1": f1}
    assert readout(browser) == pytest.approx(expected, abs=tolerances.SHOWN)
    assert place(browser, "ring") == pytest.approx([recall, precision])
    return threshold


def place(browser, name):
    """Return the recall and the precision where a mark of the chart is."""
    text = browser.find_element(By.ID, name).get_attribute("transform")
    recall, precision = map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", text).groups())
    return [recall, -precision]


def check_layout(browser, width, figures):
    drawn = browser.execute_script(DRAWN)
    assert drawn.keys() == figures
    assert all(seen == shapes > 0 for seen, shapes in drawn.values()), drawn
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    texts, cut, collide = browser.execute_script(WRONG)
    assert texts > 100
    assert (cut, collide) == ([], [])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("classes", [2, 7, 120])
def test_every_figure_is_drawn_and_nothing_is_cut_or_collides(show, classes, width):
    column = {"name": "how_long_it_took", "kind": "category", "gaps": 12_345, "values": 678_901}
    column["examples"] = ["a day and a night", "x" * 40, "3"]
    made = contents(classes, 400 if classes < 10 else 2000, tried=tried(), columns=[column] * 3)
    browser = show(replace(made, findings=findings()), width=width)
    browser.find_element(By.TAG_NAME, "summary").click()
    check_layout(browser, width, FIGURES | {"columns"})


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_and_large_numbers(show, width):
    made = contents(5, 800, weight=np.linspace(900, 9000, 800), groups=np.arange(800) // 4)
    names = ["WWWWMMMM" * 9, "the longest of all names, with a comma", "名前" * 20, "a", "1e-10"]
    rows = [{"column": "W" * 300, "value": 1234.5, "low": -1.0, "high": 2345.6}]
    found = replace(findings(), columns=rows, notes=["m" * 300])
    metric = "expected_cost" + str((5e4 * (1 - np.eye(5))).tolist())
    cards = {"Run": {"key" * 10: "value" * 100}}
    made = replace(made, classes=names, findings=found, metric=metric, cards=cards)
    check_layout(show(made, width=width), width, FIGURES | {"columns"})


def test_slider_of_two_classes(show):
    made = contents(2, 3000)
    browser = show(made)
    assert browser.find_elements(By.ID, "class") == []
    first = readout(browser)  # the rule's own place
    said = made.aligned.predicted == 1
    assert first["tp"] == (said & (made.y == 1)).sum()
    assert first["fp"] == (said & (made.y == 0)).sum()
    last = int(browser.find_element(By.ID, "threshold").get_attribute("max"))
    seen = []
    for to in (0, last // 3, last):
        move(browser, to)
        seen.append(check_readout(browser, made, 1))
    assert seen == sorted(set(seen))
    browser.find_element(By.ID, "threshold").send_keys(Keys.ARROW_LEFT)
    assert seen[1] < check_readout(browser, made, 1) < seen[2]


def test_class_selector(show):
    made = contents(4)
    browser = show(made)
    choice = Select(browser.find_element(By.ID, "class"))
    rarest = int(np.bincount(made.y).argmin())
    assert choice.first_selected_option.text == made.classes[rarest]
    check_readout(browser, made, rarest)
    choice.select_by_index(2)
    assert browser.find_element(By.ID, "at-class").text == made.classes[2]
    check_readout(browser, made, 2)
    move(browser, 10)
    check_readout(browser, made, 2)
    said, true = made.aligned.predicted == 2, made.y == 2
    hits = (said & true).sum()
    assert place(browser, "rule-0") == pytest.approx([hits / true.sum(), hits / said.sum()])


def test_nasty_names_are_shown_as_they_are(show):
    browser = show(replace(contents(), classes=NASTY))
    assert "bad" not in browser.title
    assert browser.find_elements(By.TAG_NAME, "b") == []
    assert [option.text for option in Select(browser.find_element(By.ID, "class")).options] == NASTY


def test_paper(show):
    """Without the slider, with its numbers, black on white."""
    browser = show(contents())
    options = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", options)["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    assert browser.find_element(By.ID, "threshold").is_displayed()
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    media = {"media": "print", "features": dark}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert not browser.find_element(By.ID, "threshold").is_displayed()
    assert readout(browser)["threshold"] > 0
    page = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(page) == "rgb(255, 255, 255)"
