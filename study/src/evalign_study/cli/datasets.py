"""`evalign-study datasets`: list the data sets, where they are, and whether files are intact."""

from typing import Annotated, Any

from rich.table import Table
from typer import Option

from evalign.cli.errors import UsageError, refused
from evalign.cli.options import Json, Quiet
from evalign.cli.terminal import terminal
from evalign_study import data


def datasets(
    check: Annotated[
        bool, Option("--check", help="Compare the files with their checksums.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the data sets of the papers, and where they are.

    The column "rarest" is the share of the smallest class. "Even" is Shannon's equitability, which
    is 1 for classes of equal size. "Found" is "local" for a data set in the folder that the
    variable EVALIGN_DATA names, and "cache" for one that was downloaded before. The others are
    downloaded at first use, where there is a public source. A source is "unverified" if its
    publisher gives no checksum.

    Examples:

        evalign-study datasets --check
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken, refused():
        found = {name: data.locate(data.card(name)) for name in data.names()}
        broken = {name: data.damaged(place) for name, place in found.items()} if check else {}
        rows = {name: _row(data.card(name), found[name]) for name in found}
        for name, files in broken.items():
            rows[name]["damaged"] = [str(path) for path in files]
        spoken.result({"datasets": rows}, _shown(rows))
    paths = sorted({str(path) for files in broken.values() for path in files})
    if paths:
        raise UsageError(f"Damaged: {', '.join(paths)}. Copy or download again.")


def _row(card: data.Card, found: data.Location) -> dict[str, Any]:
    source = "verified" if card.verified else "unverified" if card.public else "none"
    return {
        "title": card.title,
        "rows": card.rows,
        "shape": card.shape,
        "classes": len(card.counts),
        "counts": card.counts,
        "rarest": card.rarest,
        "equitability": card.equitability,
        "licence": card.licence,
        "citation": card.citation,
        "home": card.home,
        "files": card.files,
        "public": card.public,
        "source": source,
        "found": found.where,
    }


def _shown(rows: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("rows", "a row", "classes", "rarest", "even"):
        table.add_column(name, justify="right")
    for name in ("found", "source"):
        table.add_column(name)
    for name, row in rows.items():
        shape = "×".join(map(str, row["shape"])) or "text"
        numbers = str(row["classes"]), f"{row['rarest']:.2%}", f"{row['equitability']:.3f}"
        where = "damaged" if row.get("damaged") else row["found"]
        table.add_row(name, f"{row['rows']:,}", shape, *numbers, where, row["source"])
    return table
