"""Show that the tables of the pages kept their numbers: `python same_numbers.py REVISION`.

Each Markdown table at the revision is compared with its successor in the working tree, the table
with the most rows in common under the same heading or with the same header row. Tables, rows and
columns that are gone or new are listed; a changed number exits with 1. Code and links do not count.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from subprocess import check_output
from typing import NamedTuple

PAGES = ("README.md", "study/README.md", "docs")
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+−-]?\d+)?%?")
NOT_COUNTED = re.compile(r"`[^`]*`|\]\([^)]*\)")
Row = tuple[str, ...]


class Table(NamedTuple):
    place: str  # file and heading
    head: str
    rows: Counter[Row]


def tables(file: str, text: str) -> list[Table]:
    """Read a page's tables: the heading above, the header row, and the numbers of each row."""
    found, place, block = [], file, []
    for line in [*re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S).splitlines(), ""]:
        if line.lstrip().startswith("|"):
            block.append(NOT_COUNTED.sub("", line))
        elif block:
            rows = Counter(filter(None, (tuple(NUMBER.findall(row)) for row in block[2:])))
            found.append(Table(place, block[0], rows))
            block = []
        place = f"{file}, {line.strip('# ')}" if line.startswith("#") else place
    return found


def compare(before: list[Table], now: list[Table]) -> list[str]:
    """Describe every difference."""
    possible = [
        ((old.rows & new.rows).total(), old[:2] == new[:2], -i, -j)
        for i, old in enumerate(before)
        for j, new in enumerate(now)
        if old.place == new.place or (old.head == new.head and old.rows & new.rows)
    ]
    paired: dict[int, int] = {}
    for _, _, i, j in sorted(possible, reverse=True):
        if -i not in paired and -j not in paired.values():
            paired[-i] = -j
    texts = [f"Gone: {t.place}: {t.head}" for i, t in enumerate(before) if i not in paired]
    texts += [f"New: {t.place}: {t.head}" for j, t in enumerate(now) if j not in paired.values()]
    for old, new in ((before[i], now[j]) for i, j in sorted(paired.items())):
        gone, more = old.rows - new.rows, new.rows - old.rows
        changed = any(_alone(row, more) for row in gone) and any(_alone(row, gone) for row in more)
        if gone or more:
            kind = "Numbers changed" if changed else "Rows or columns gone or new"
            texts.append(f"{kind}: {new.place}: {new.head}\n  before {[*gone]}\n  now {[*more]}")
    return texts


def _alone(row: Row, others: Counter[Row]) -> bool:
    """Tell that no other row is this one with more or fewer columns."""
    both_ways = [pair for other in others for pair in ((row, iter(other)), (other, iter(row)))]
    return not any(all(number in rest for number in short) for short, rest in both_ways)


if __name__ == "__main__":
    listing = ["git", "ls-tree", "-r", "--name-only", sys.argv[1], "--", *PAGES]
    names = [name for name in check_output(listing, text=True).split() if name.endswith(".md")]
    files = [str(path) for path in (*map(Path, PAGES[:2]), *sorted(Path("docs").rglob("*.md")))]
    shown = [check_output(["git", "show", f"{sys.argv[1]}:{name}"], text=True) for name in names]
    before = [table for page in zip(names, shown, strict=True) for table in tables(*page)]
    now = [table for file in files for table in tables(file, Path(file).read_text())]
    texts = compare(before, now)
    print(*texts, f"{len(before)} tables before, {len(now)} now.", sep="\n")
    sys.exit(any(text.startswith("Numbers changed") for text in texts))
