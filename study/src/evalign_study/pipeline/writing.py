"""Write the findings of a table to files, and to its place on a page."""

import csv
from pathlib import Path

from evalign_study.pipeline.formats import html, markdown
from evalign_study.pipeline.table import Findings
from evalign_study.refusals import require


def write(name: str, findings: Findings, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.html, and the sheets as NAME.csv or NAME-END.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    page = html(findings.title, findings.parts, findings.figures)
    texts = {folder / f"{name}.md": markdown(findings.parts), folder / f"{name}.html": page}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    sheets = {folder / f"{name}{end}.csv": sheet for end, sheet in findings.sheets.items()}
    for path, sheet in sheets.items():
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([sheet.head, *sheet.rows])
    return [*texts, *sheets]


def has_place(page: str, name: str) -> bool:
    """Tell whether a Markdown page has the marks of a table."""
    start, end = _marks(name)
    return end in page.partition(start)[2]


def fill(page: str, name: str, text: str) -> str:
    """Put a text between the marks of a table on a Markdown page.

    Examples:
        >>> fill("A <!-- t --> B <!-- end of t --> C", "t", "new")
        'A <!-- t -->\\n\\nnew\\n<!-- end of t --> C'
    """
    start, end = _marks(name)
    allowed = f"hold {start} and {end}"
    require(has_place(page, name), "render", "page", allowed, "neither")
    before, _, rest = page.partition(start)
    return f"{before}{start}\n\n{text}\n{end}{rest.partition(end)[2]}"


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- end of {name} -->"
