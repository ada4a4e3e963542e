"""What is known of each data set before a file is opened."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from evalign.core.checks import nearest, require
from evalign.core.theory import shannon_equitability


@dataclass(frozen=True)
class Card:
    """A data set.

    Args:
        name: what `load` calls it.
        title: what it is about.
        rows: how many there are.
        shape: of a row in the file, or what it is scaled to; empty for a text.
        classes: in the order of their codes; empty where only the file names them.
        counts: labels of each class: one per row, but 15 per frame of CocktailParty.
        licence: its terms.
        citation: whom to cite.
        home: where it is described.
        files: those of a local folder, each with its checksum as "algorithm:value".
        public: addresses of the originals, likewise; "" where the checksum is not known.
        content: sha256 of rows and labels, where an original has no checksum.
        format: the reader of the files.
        public_format: the reader of the originals, where it is another.
        read: how pandas reads an original table.
        label: the column with the label.
        drop: columns that are not features.
        base: the card that this one takes over and changes.
        positives: the classes of that one which are the positive one here.
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
        """1 for classes of one size, near 0 where one dominates."""
        return shannon_equitability(self.counts)

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
    """Look up what is known of a data set.

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
