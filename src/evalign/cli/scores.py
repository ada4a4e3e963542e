"""Probabilities or logits of classes that a table holds, for `evalign decide`."""

import numpy as np
import pandas as pd

from evalign.cli.errors import UsageError
from evalign.core.text import listed
from evalign.decisions.inputs import FROM_ONE
from evalign.estimator.out_of_fold import Method
from evalign.tables.classes import Labels
from evalign.tables.files import TableFile, numbers_in

PREFIX = "probability_"  # of the columns that `evalign predict` writes
ROUNDING = 4 * float(np.finfo(np.float32).eps)


def class_columns(
    source: TableFile, labels: Labels, classes: list[str] | None, roles: list[str]
) -> dict[str, str]:
    """The column of each class, or of the positive one of two alone, by the name of the class.

    A column is named after its class, or `probability_<class>`. If no column is, and there are two
    classes and one column besides the roles, it is that of the positive class.
    """
    schema, names = source.names, labels.names
    if classes is not None:
        columns = {name: PREFIX + name if PREFIX + name in schema else name for name in classes}
        for column in columns.values():
            source.need([column], "--classes")
    else:
        given = [name for name in schema if name not in roles]
        plain = {name: name for name in given if name in names}
        written = {name.removeprefix(PREFIX): name for name in given if name.startswith(PREFIX)}
        columns = plain if set(plain) == set(names) else written or plain
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
    table: pd.DataFrame, source: TableFile, columns: list[str], method: Method, first_row: int = 1
) -> np.ndarray:
    """The numbers of the classes' columns (N, C). Refuse what cannot be probabilities."""
    source.need(columns)
    of_probabilities, parts = method == "predict_proba", []
    allowed, low, high = "finite numbers", -np.inf, np.inf
    if of_probabilities:
        allowed = "probabilities, from 0 to 1 (for logits, pass --logits)"
        low, high = -ROUNDING, 1 + ROUNDING
    for name in columns:
        values = numbers_in(table, name, source, allowed, low, high, first_row)
        parts.append(np.clip(values, 0, 1) if of_probabilities else values)
    if len(parts) == 1:
        parts.insert(0, 1 - parts[0] if of_probabilities else np.zeros_like(parts[0]))
    values = np.stack(parts, 1)
    wrong = np.abs(values.sum(1) - 1) > FROM_ONE
    if of_probabilities and wrong.any():
        row = int(np.argmax(wrong))
        what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
        got = f"Got {values[row].sum():.4g} in row {first_row + row}"
        raise UsageError(f"{what}. {got}. Name all classes, and no others, with --classes.")
    return values
