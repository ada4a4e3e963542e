"""Probabilities or logits of classes that a table holds, for `evalign decide`."""

import numpy as np
import pyarrow as pa
import torch

from evalign.cli.cells import as_numbers
from evalign.cli.dataset import check_name
from evalign.cli.errors import UsageError, listed
from evalign.cli.labels import Labels
from evalign.cli.tables import TableFile, is_usable
from evalign.decisions.inputs import FROM_ONE, look_like_probabilities
from evalign.estimator.out_of_fold import Method

PREFIX = "probability_"  # of the columns that `evalign predict` writes
ROUNDED = 4 * float(np.finfo(np.float32).eps)  # text does not tell what its numbers were


def class_columns(
    source: TableFile, labels: Labels, classes: list[str] | None, roles: list[str]
) -> dict[str, str]:
    """The column of each class by its name, or that of the positive one of two alone.

    A class that has a column need not have a row.
    """
    schema, names = source.schema.names, labels.names
    if classes is not None:
        columns = [
            PREFIX + name if name not in schema and PREFIX + name in schema else name
            for name in classes
        ]
        for name in columns:
            check_name(source, "--classes", name)
        found = {name if name in names else name.removeprefix(PREFIX): name for name in columns}
        missing = [name for name in names if name not in found]
        if missing:
            what = f"--classes must name a column for each label of {labels.column!r}"
            raise UsageError(f"{what}. It lacks {listed(missing)}.")
        if len(found) < len(classes):
            raise UsageError(f"--classes must name each column once. Got {listed(classes)}.")
        return found
    given = [name for name in schema if name not in roles]
    plain = {name: name for name in given if name in names}
    written = {name.removeprefix(PREFIX): name for name in given if name.startswith(PREFIX)}
    for found in (plain, written):
        if set(names) <= set(found):
            return found
        if len(names) == 2 and names[1] in found and names[0] not in found:
            return {names[1]: found[names[1]]}
    if len(names) == 2:
        negative, positive = names
        if column := plain.get(negative) or written.get(negative):
            what = f"Column {column!r} is named as {negative!r}, not as the positive class"
            cure = f"If it holds the probability of {negative!r}, pass --positive {negative}."
            raise UsageError(f"{what} {positive!r}. {cure}")
        usable = [name for name in given if is_usable(source.schema.field(name).type)]
        if len(usable) == 1:
            return {positive: usable[0]}
    missing = [name for name in names if name not in plain and name not in written]
    allowed = "a column with the probability of each class, named as the class"
    also = "" if len(names) > 2 else " (or one column, of the positive class)"
    got = f"It has none for {listed(missing or names)}, but {listed(given)}"
    raise UsageError(f"{source} must have {allowed}{also}. {got}. Rename the columns.")


def class_scores(
    table: pa.Table, source: TableFile, columns: list[str], method: Method, first_row: int = 1
) -> np.ndarray:
    """The numbers of the classes' columns (N, C). Refuse what cannot be probabilities."""
    source.need(columns)
    parts = []
    for name in columns:
        values, wrong = as_numbers(table[name])
        missing = wrong | np.isnan(values)
        wrong, allowed = missing, "finite numbers"
        if method == "predict_proba":
            inside = np.clip(values, 0, 1)
            values = np.where(np.abs(values - inside) <= ROUNDED, inside, values)
            wrong, allowed = missing | (values != inside), "probabilities, from 0 to 1"
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"Got {str(table[name][row].as_py())!r} in row {first_row + row}"
            cure = "If these are logits, fit the rule with --logits."
            if missing[row]:
                cure = "Fill it in, write it as 0.25, or remove the row."
            elif np.nanmin(values) >= 0 and np.nanmax(values) <= 100:
                cure = f"If these are percentages, write 25 as 0.25 or as 25%. {cure}"
            raise UsageError(f"Column {name!r} of {source} must hold {allowed}. {got}. {cure}")
        parts.append(values)
    if len(parts) == 1:
        first = 1 - parts[0] if method == "predict_proba" else np.zeros_like(parts[0])
        return np.stack([first, parts[0]], 1)
    values = np.stack(parts, 1)
    if method == "predict_proba":
        total = values.sum(1)
        wrong = np.abs(total - 1) > FROM_ONE
        if wrong.any():
            row = int(np.argmax(wrong))
            what = f"Columns {listed(columns)} of {source} must add up to 1 in each row"
            got = f"Got {total[row]:.4g} in row {first_row + row}"
            cure = "Fit the rule with --classes and the names of all classes, and no others."
            raise UsageError(f"{what}. {got}. {cure}")
    return values


def seem_probabilities(values: np.ndarray, columns: list[str], method: Method) -> bool:
    """Whether the columns of logits seem to be probabilities."""
    given = torch.from_numpy(values[:, -len(columns) :])
    return method == "decision_function" and look_like_probabilities(given, False)
