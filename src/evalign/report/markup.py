"""Pieces of HTML: sections, tables, legends, and the files of the page."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

# With more rows than this, a table gets a scroll bar of its own.
TALL = 20
# A text, or a text and a smaller one below it.
Cell = str | tuple[str, str]


def section(title: str, *parts: str) -> str:
    return "\n".join(["<section>", f"<h2>{escape(title)}</h2>", *parts, "</section>"])


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def bullets(texts: Iterable[str], kind: str = "") -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul{f' class={kind}' if kind else ''}>{items}</ul>" if items else ""


def legend(names: Iterable[tuple[str, str]]) -> str:
    """The names of the lines of a figure, each with its class in `page.css`."""
    keys = (f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in names)
    return f'<p class="legend">{"".join(keys)}</p>'


def framed(figure: str, title: str = "", caption: str = "") -> str:
    """A figure with a title above and a caption below."""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    foot = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{head}{figure}{foot}</figure>"


def side_by_side(parts: Iterable[str]) -> str:
    """Parts beside each other where there is room."""
    return f'<div class="grid">{"".join(parts)}</div>'


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table whose rows are named by their first cells; it scrolls where it does not fit."""
    columns = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = (
        f'<tr><th scope="row">{_content(row[0])}</th>'
        + "".join(f"<td>{_content(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll{" tall" if len(rows) > TALL else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table{" class=many" if len(head) > 4 else ""}>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{columns}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def asset(name: str) -> str:
    return files("evalign.report").joinpath(name).read_text(encoding="utf-8")


def _content(cell: Cell) -> str:
    text, below = (cell, "") if isinstance(cell, str) else cell
    text = escape(text).replace("_", "_<wbr>")  # where a narrow screen may break a name
    return f"{text}<small>{escape(below)}</small>" if below else text
