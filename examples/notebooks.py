"""Turn the gallery's pages into notebooks and run them: `make notebooks`.

    python examples/notebooks.py            # all pages, into examples/notebooks/
    python examples/notebooks.py threshold  # one page
    python examples/notebooks.py --write    # also update the pages' figures and printed numbers

It needs nbclient and ipykernel (`pip install -e '.[notebooks]'`).
"""

import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
NOTEBOOKS = Path(__file__).with_name("notebooks")
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)(\[[^\]]*\])\((?!\w+:)([^)]+)\)")  # to another page, not an image


def cells(text: str) -> list[NotebookNode]:
    """Split a page into code cells and the text between them, without its printed output."""
    words, *blocks = BLOCK.split(text)
    found = [v4.new_markdown_cell(words)]
    for kind, code, words in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        if kind == "python":
            found.append(v4.new_code_cell(code.strip()))
        if words.strip():
            words = LINK.sub(r"\1(../../docs/gallery/\2)", words.strip())
            found.append(v4.new_markdown_cell(words))
    return found


def printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def write(page: Path, notebook: NotebookNode) -> None:
    """Write the notebook's printed output and figures into the page."""
    code = iter(cell for cell in notebook.cells if cell.cell_type == "code")
    since: list[str] = []  # printed since the last output block

    def renew(block: re.Match[str]) -> str:
        if block[1] == "python":
            since.append(printed(next(code)))
            return block[0]
        text = "".join(since)
        since.clear()
        return f"```output\n{text}```\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(renew, text), encoding="utf-8")
    for picture in re.findall(r"!\[.*?\]\((.+?)\)", text):
        shutil.copy(NOTEBOOKS / picture, GALLERY / picture)


def main(arguments: list[str]) -> None:
    NOTEBOOKS.mkdir(exist_ok=True)
    asked = [name for name in arguments if name != "--write"]
    for page in sorted(GALLERY.glob("*.md")):
        if page.stem == "index" or (asked and page.stem not in asked):
            continue
        notebook = v4.new_notebook(cells=cells(page.read_text(encoding="utf-8")))
        NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
        nbformat.write(notebook, NOTEBOOKS / f"{page.stem}.ipynb")
        if "--write" in arguments:
            write(page, notebook)
        print(page.stem)


if __name__ == "__main__":
    main(sys.argv[1:])
