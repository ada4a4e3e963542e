"""A table's page in a real browser."""

from evalign_study.papers.render import findings
from evalign_study.pipeline.writing import write

from study.tests.papers.made_tables import evidence


def test_claims_of_a_table_of_the_papers_are_shown_whole(browser, tmp_path):
    found = evidence({"F1*": [0.80, 0.81], "CE": [0.70, 0.71]})
    write("made", findings(found), tmp_path)
    browser.get((tmp_path / "made.html").as_uri())
    rows = "[...document.querySelectorAll('tbody th')]"
    cut = browser.execute_script(f"return {rows}.map(th => th.scrollWidth > th.clientWidth)")
    assert len(cut) > 5
    assert not any(cut)
