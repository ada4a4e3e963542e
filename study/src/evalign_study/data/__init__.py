"""The data sets of the papers, and further ones: cards, checked files, arrays.

`cards` describes them (in `cards.toml`), `sources` finds or fetches their files and checks them,
`readers` reads the content of files, and `loading` turns it into arrays. This folder may import
only the library.
"""

from evalign_study.data.cards import VOID, Card, card, names
from evalign_study.data.loading import Dataset, UnverifiedWarning, load
from evalign_study.data.sources import DataError, Location, damaged, locate

__all__ = [
    "VOID",
    "Card",
    "DataError",
    "Dataset",
    "Location",
    "UnverifiedWarning",
    "card",
    "damaged",
    "load",
    "locate",
    "names",
]
