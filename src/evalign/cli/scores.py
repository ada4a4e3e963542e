"""The columns of a table that hold a model's probabilities or logits, for `evalign decide`."""

import numpy as np
import pandas as pd

from evalign.cli.dataset import check_name
from evalign.cli.errors import UsageError, listed
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
        for column in columns.values():
            check_name(source, "--classes", column)
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
    values = np.stack([numbers_in(table[name]) for name in columns], 1)
    inside = values if logits else values.clip(0, 1)
    wrong = ~(np.isfinite(values) & (np.abs(values - inside) <= ROUNDING))
    if wrong.any():
        row, place = np.argwhere(wrong)[0]
        name = columns[place]
        allowed = "finite numbers" if logits else "probabilities, from 0 to 1"
        got = f"Got {str(table[name].iloc[row])!r} in row {first_row + row}."
        cure = "" if logits else " If these are logits, use --logits."
        raise UsageError(f"Column {name!r} of {source} must hold {allowed}. {got}{cure}")
    if len(columns) == 1:
        inside = np.concatenate([np.zeros_like(inside) if logits else 1 - inside, inside], 1)
    sums = inside.sum(1)
    if not logits and (off := np.abs(sums - 1) > FROM_ONE).any():
        row = int(np.argmax(off))
        what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
        got = f"Got {sums[row]:.4g} in row {first_row + row}"
        raise UsageError(f"{what}. {got}. Name all classes, and no others, with --classes.")
    return inside
