"""The columns of a table that hold a model's probabilities or logits, for `evalign decide`."""

import numpy as np
import pandas as pd

from evalign.cli.errors import UsageError
from evalign.core.text import listed
from evalign.decisions.inputs import FROM_ONE
from evalign.tables.classes import Labels
from evalign.tables.files import TableFile, numbers_in

PREFIX = "probability_"  # of the columns that `evalign predict` writes
ROUNDING = 4 * float(np.finfo(np.float32).eps)


def class_columns(
    source: TableFile, labels: Labels, classes: str | None, roles: list[str]
) -> dict[str, str]:
    """The column of each class by the name of the class; of two, the positive one is enough.

    A column is named after its class, or `probability_<class>`. A single column under any other
    name, besides the roles, is that of the positive class of two.
    """
    names, given = labels.names, [name for name in source.names if name not in roles]
    if classes is not None:
        known = [name.strip() for name in classes.split(",")]
        columns = {name: PREFIX + name if PREFIX + name in given else name for name in known}
        source.need(columns.values(), "--classes")
    else:
        bare = {name: name for name in given if name in names}
        prefixed = {name.removeprefix(PREFIX): name for name in given if name.startswith(PREFIX)}
        columns = bare if set(bare) == set(names) else prefixed or bare
        if not columns and len(names) == 2 and len(given) == 1:
            columns = {names[1]: given[0]}
    missing = [name for name in names if name not in columns]
    if missing and (len(names) > 2 or list(columns) != names[1:]):
        what = "must have a column with the probability of each class, named after the class"
        also = "" if len(names) > 2 else " (or one, of the positive class)"
        cure = "Rename the columns, or name the positive class with --positive."
        raise UsageError(f"{source} {what}{also}. It has none for {listed(missing)}. {cure}")
    return columns


def class_scores(
    table: pd.DataFrame, source: TableFile, columns: list[str], *, logits: bool, first_row: int = 1
) -> np.ndarray:
    """Probabilities or logits (N, C) of the columns; a single column is that of the second class.

    Probabilities that float32 rounded above 1 become 1.
    """
    allowed, low, high = "finite numbers", -np.inf, np.inf
    if not logits:
        allowed = "probabilities, from 0 to 1 (for logits, pass --logits)"
        low, high = -ROUNDING, 1 + ROUNDING
    parts = [numbers_in(table, name, source, allowed, low, high, first_row) for name in columns]
    values = np.stack(parts, 1) if logits else np.stack(parts, 1).clip(0, 1)
    if len(columns) == 1:
        values = np.concatenate([np.zeros_like(values) if logits else 1 - values, values], 1)
    sums = values.sum(1)
    if not logits and (off := np.abs(sums - 1) > FROM_ONE).any():
        row = int(np.argmax(off))
        what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
        got = f"Got {sums[row]:.4g} in row {first_row + row}"
        raise UsageError(f"{what}. {got}. Name all classes, and no others, with --classes.")
    return values
