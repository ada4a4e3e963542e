"""The page in a real browser, without a network: figures, slider, phone, paper."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests import tolerances
from tests.report.made import contents, rendered

NASTY = ["<script>document.title = 'bad'</script>", "</script><b>bold</b>", "&lt;i&gt;"]
# Per figure, whether each of its shapes (bars, lines, markers, cells) has a size on the screen.
DRAWN = """
return Object.fromEntries([...document.querySelectorAll('.plot')].map(plot => {
  const kinds = '.trace path.js-line, .trace .point, .heatmaplayer image';
  const shapes = [...plot.querySelectorAll(kinds)];
  const seen = shapes.map(s => s.getBoundingClientRect()).filter(b => b.width + b.height > 1);
  return [plot.id, plot.classList.contains('js-plotly-plot') ? [seen.length, shapes.length] : null];
}));
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
    fetched = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []


def readout(browser):
    names = ["threshold", "precision", "recall", "f1", "tp", "fp", "fn", "tn"]
    texts = (browser.find_element(By.ID, f"at-{name}").text for name in names)
    return {name: float(text.replace(",", "")) for name, text in zip(names, texts, strict=True)}


def move(browser, place):
    """Move the slider to a place, as a hand would: the value, then the event."""
    slider = browser.find_element(By.ID, "threshold")
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, slider, place)


def exact_threshold(browser, code):
    """Return the threshold of the slider, with all digits."""
    place = int(browser.find_element(By.ID, "threshold").get_attribute("value"))
    script = "return data.curves[arguments[0]].models[0].threshold[arguments[1]]"
    return browser.execute_script(script, code, place)


def by_numpy(made, code, threshold):
    said, true = made.aligned.probabilities[:, code] >= threshold, made.y == code
    tp, fp = (said & true).sum(), (said & ~true).sum()
    fn, tn = (~said & true).sum(), (~said & ~true).sum()
    return {
        "threshold": threshold,
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "tp": tp,
        "fp": fp,
        "fn": fn,
        "tn": tn,
    }


def check_readout(browser, made, code):
    expected = by_numpy(made, code, exact_threshold(browser, code))
    shown = readout(browser)
    assert shown == pytest.approx(expected, abs=tolerances.SHOWN)
    # The ring on the curve goes along.
    ring = (
        "const p = document.getElementById('precision-recall').data.at(-1); return [p.x[0], p.y[0]]"
    )
    assert browser.execute_script(ring) == pytest.approx(
        [expected["recall"], expected["precision"]]
    )
    return shown


@pytest.mark.parametrize(("classes", "width"), [(2, 1200), (3, 375), (40, 1200), (120, 375)])
def test_every_figure_is_drawn_and_fits(show, classes, width):
    browser = show(contents(classes, 400 if classes < 10 else 2000), width=width)
    drawn = browser.execute_script(DRAWN)
    assert len(drawn) == 10
    assert all(counts and counts[0] == counts[1] > 0 for counts in drawn.values()), drawn
    body = browser.execute_script("return document.documentElement.scrollWidth")
    assert body <= width
    figures = "return [...document.querySelectorAll('.main-svg')]"
    ends = browser.execute_script(f"{figures}.map(svg => svg.getBoundingClientRect().right)")
    assert max(ends) <= width


def test_every_figure_is_drawn_without_baseline(show):
    browser = show(contents(baseline=False, temperature=None))
    drawn = browser.execute_script(DRAWN)
    assert len(drawn) == 6
    assert all(counts and counts[0] == counts[1] > 0 for counts in drawn.values()), drawn


def test_figures_follow_the_window(show):
    browser = show(contents(), width=1200)
    screen = {"width": 500, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    script = (
        "return Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth))"
    )
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(script) <= 500)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 500


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
    for place in (0, last // 3, last):
        move(browser, place)
        # The browser knows one curve only.
        expected = by_numpy(made, 1, exact_threshold(browser, 0))
        assert readout(browser) == pytest.approx(expected, abs=tolerances.SHOWN)
        seen.append(expected["threshold"])
    assert seen == sorted(set(seen))

    browser.find_element(By.ID, "threshold").send_keys(Keys.ARROW_LEFT)
    below = exact_threshold(browser, 0)
    assert seen[1] < below < seen[2]
    assert readout(browser) == pytest.approx(by_numpy(made, 1, below), abs=tolerances.SHOWN)


def test_class_selector(show):
    made = contents(4)
    browser = show(made)
    choice = Select(browser.find_element(By.ID, "class"))
    rarest = int(np.bincount(made.y).argmin())
    assert choice.first_selected_option.text == made.classes[rarest]
    check_readout(browser, made, rarest)
    for code in (0, 2):
        choice.select_by_index(code)
        assert browser.find_element(By.ID, "at-class").text == made.classes[code]
        check_readout(browser, made, code)
        move(browser, 10)
        check_readout(browser, made, code)
        rule = browser.execute_script(
            "const p = document.getElementById('precision-recall').data[1]; return [p.x[0], p.y[0]]"
        )
        said, true = made.aligned.predicted == code, made.y == code
        hits = (said & true).sum()
        assert rule == pytest.approx([hits / true.sum(), hits / said.sum()])


def test_nasty_names_are_shown_as_they_are(show):
    made = replace(contents(), classes=NASTY)
    browser = show(made)
    assert "bad" not in browser.title
    assert browser.find_elements(By.TAG_NAME, "b") == []
    assert [option.text for option in Select(browser.find_element(By.ID, "class")).options] == NASTY
    labels = "return [...document.querySelectorAll('#hard-aligned .ytick')].map(t => t.textContent)"
    shown = browser.execute_script(labels)
    assert len(shown) == 3
    for text, name in zip(shown, NASTY, strict=True):
        assert text == name if len(name) <= 14 else name.startswith(text.removesuffix("…"))


def test_text_stands_out_in_both_schemes(show):
    browser = show(contents())
    script = """
        const colour = (place, what) => getComputedStyle(document.querySelector(place))[what];
        return [colour('body', 'backgroundColor'), colour('h1', 'color'), colour('td', 'color'),
                colour('.xtick text', 'fill'), colour('.heatmaplayer text', 'fill')];
    """
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        colours = (re.findall(r"\d+", text)[:3] for text in browser.execute_script(script))
        page, *inks = (np.mean([int(part) for part in colour]) for colour in colours)
        assert (page < 128) == (scheme == "dark")
        assert all(abs(ink - page) > 150 for ink in inks)


def test_paper(show):
    browser = show(contents())
    width = "return document.querySelector('#precision-recall svg').clientWidth"
    wide = browser.execute_script(width)
    widths = "window.printed = [...document.querySelectorAll('.plot')].map(p => p.layout.width)"
    browser.execute_script(f"addEventListener('beforeprint', () => {{ {widths} }})")
    options = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", options)["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    assert len(pdf) > 50_000
    printed = browser.execute_script("return window.printed")
    assert len(printed) == 10
    assert all(0 < width <= 680 for width in printed)
    # Afterwards the screen is as before.
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(width) == wide)


def test_on_paper_the_slider_goes_and_its_numbers_stay(show):
    browser = show(contents())
    assert browser.find_element(By.ID, "threshold").is_displayed()
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    media = {"media": "print", "features": dark}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert not browser.find_element(By.ID, "threshold").is_displayed()
    assert readout(browser)["threshold"] > 0
    page = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(page) == "rgb(255, 255, 255)"
