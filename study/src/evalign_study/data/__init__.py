"""The data sets of the papers, and further ones: cards, checked files, arrays.

`cards` knows them (in `cards.toml`), `sources` finds or fetches their files and checks them,
`readers` makes tables of files, `loading` makes arrays of tables. May import `core`. Reading
needs pandas, photographs Pillow, fetching pooch: the extra `study`.
"""

from evalign_study.data.cards import Card, card, names
from evalign_study.data.loading import Dataset, UnverifiedWarning, load
from evalign_study.data.sources import DataError, Found, damaged, locate

__all__ = [
    "Card",
    "DataError",
    "Dataset",
    "Found",
    "UnverifiedWarning",
    "card",
    "damaged",
    "load",
    "locate",
    "names",
]
