"""What is known about each data set before a file is opened."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evalign_study.refusals import nearest, require

VOID = 255  # in the place of a pixel's class, where it has none


@dataclass(frozen=True)
class Card:
    """The description of a data set.

    Args:
        name: the name that `load` takes.
        title: what it is about.
        rows: the number of rows.
        shape: the shape of a row in the file, or that to which it is scaled; empty for a text.
        classes: their names in the order of the codes; empty where only the file names them.
        counts: the number of labels of each class. A row has one label, a frame of CocktailParty
            15.
        licence: the terms of use.
        citation: whom to cite.
        home: where it is described.
        files: the files of a local folder, each with its checksum as "algorithm:value".
        public: the addresses of the originals with their checksums; "" for an unknown checksum.
        content: the sha256 of rows and labels, where an original has no checksum.
        format: the reader of the files.
        public_format: the reader of the originals, where it differs.
        read: how pandas reads an original table.
        label: the column with the label.
        drop: columns that are not features.
        base: the card that this one inherits from.
        positives: the classes of `base` that together are the positive class here.
    """

    name: str
    title: str
    rows: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    licence: str
    citation: str
    home: str
    files: Mapping[str, str]
    format: str
    public: Mapping[str, str] = field(default_factory=dict)
    content: str = ""
    public_format: str = ""
    read: Mapping[str, Any] = field(default_factory=dict)
    label: str = "class"
    drop: tuple[str, ...] = ()
    base: str = ""
    positives: tuple[str, ...] = ()

    @property
    def rarest(self) -> float:
        """The share of the smallest class."""
        return min(self.counts) / sum(self.counts)

    @property
    def equitability(self) -> float:
        """Shannon's equitability: 1 for classes of equal size, near 0 where one dominates."""
        shares = [count / sum(self.counts) for count in self.counts if count]
        return -sum(q * math.log(q) for q in shares) / math.log(len(self.counts))

    @property
    def verified(self) -> bool:
        """Whether all originals have a checksum."""
        return bool(self.public) and all(self.public.values())


def names() -> list[str]:
    """List the data sets.

    Examples:
        >>> names()[:3]
        ['adult', 'mammography', 'creditcard']
    """
    return list(_cards())


def card(name: str) -> Card:
    """Look up the card of a data set.

    Examples:
        >>> fraud = card("creditcard")
        >>> fraud.classes, fraud.counts, round(fraud.equitability, 3)
        (('0', '1'), (284315, 492), 0.018)
    """
    known = _cards()
    allowed, cure = f"be one of {', '.join(known)}", nearest(name, known)
    require(name in known, "load", "name", allowed, repr(name), cure)
    return known[name]


@cache
def _cards() -> dict[str, Card]:
    text = Path(__file__).with_name("cards.toml").read_text(encoding="utf-8")
    written = tomllib.loads(text)
    cards = {}
    for name, own in written.items():
        fields: dict[str, Any] = {**written.get(own.get("base"), {}), **own}
        for key, value in fields.items():
            fields[key] = tuple(value) if isinstance(value, list) else value
        cards[name] = Card(**{"name": name, "rows": sum(fields["counts"])} | fields)
    return cards
