"""The site in a real browser, from files and without a network: pages, search, phone."""

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.docs.test_examples import ROOT

# Of all pages those with the widest equations, tables and lines of code.
PAGES = ["index", "loss/index", "reference/losses", "evidence/training"]
CUT = """
const scrolls = node => node.closest('.md-typeset__scrollwrap, .equation');
return [...document.querySelectorAll('.md-content *')]
  .filter(node => node.getBoundingClientRect().right > innerWidth + 1 && !scrolls(node))
  .concat([...document.querySelectorAll('pre code')].filter(n => n.scrollWidth > n.clientWidth + 1))
  .map(node => node.outerHTML);
"""
COPIES = ".md-code__button"  # the code of a block
ELSEWHERE = """
return [...document.querySelectorAll('script[src], link[rel=stylesheet], img')]
  .map(node => node.src || node.href).filter(address => !/^(file|data):/.test(address));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """These pages as mkdocs.yml has them; links to the others are left open."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            site_dir=str(folder),
            exclude_docs="\n".join(["*.md", *(f"!{name}.md" for name in PAGES)]),
            nav=None,
            validation={"links": {"not_found": "ignore"}},
        )
        build(config)
    return folder


def resize(browser, width):
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_or_fetched_from_elsewhere(site, browser, width):
    resize(browser, width)
    for name in PAGES:
        browser.get((site / f"{name}.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, name
        assert browser.execute_script(CUT) == [], name
        assert browser.execute_script(ELSEWHERE) == [], name
        blocks, buttons = (browser.find_elements(By.CSS_SELECTOR, x) for x in ("pre", COPIES))
        assert bool(blocks) == bool(buttons), name
    assert browser.get_log("browser") == []


def test_search_finds_a_page_that_opens(site, browser):
    resize(browser, 1280)
    browser.get((site / "index.html").as_uri())
    browser.find_element(By.CLASS_NAME, "md-search__input").send_keys("heaviside")
    found = WebDriverWait(browser, 30).until(
        lambda b: b.find_elements(By.CLASS_NAME, "md-search-result__link")
    )
    browser.get(found[0].get_attribute("href"))
    assert browser.find_element(By.TAG_NAME, "h1").text == "Reference: losses"
    assert browser.get_log("browser") == []
