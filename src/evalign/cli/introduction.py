"""What a command says about its table before it trains."""

import pandas as pd

from evalign.cli.dataset import TrainingTable
from evalign.cli.terminal import Terminal
from evalign.core.text import counted, listed
from evalign.tables.warnings import warn_of_left_out


def introduce(spoken: Terminal, dataset: TrainingTable, *, verbose: bool = False) -> None:
    """Say what the columns and the classes were read as."""
    kinds, names = [column.kind for column in dataset.features.columns], dataset.labels.names
    found = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    spoken.note(f"{counted(dataset.found)}; columns: {found}.")
    warn_of_left_out(dataset.features.left_out)
    if verbose:
        table = pd.DataFrame(dataset.columns.overview)
        table["examples"] = table["examples"].map(", ".join)
        for line in table.to_string(index=False).splitlines():
            spoken.note(line)
    if (used := len(dataset.rows.y)) < dataset.found:
        spoken.note(f"A preview with {used} of the rows. Without --quick it is trained on all.")
    if len(names) == 2:
        share = (dataset.rows.y == 1).mean()
        # F1 and the like are about the positive class, which is usually meant to be the rare one.
        usual = f" It has {share:.0%} of the rows; see --positive." if share > 0.5 else ""
        spoken.note(f"The positive class is {names[1]!r}, the other one {names[0]!r}.{usual}")
    else:
        spoken.note(f"{len(names)} classes: {listed(names)}.")
