"""Records that were made before the protocols, as far as they still hold.

They have the protocol's rows, network, loss, optimiser and choice of the epoch, and ended by
themselves. A training that a cap ended does not hold, nor one that `AlignedLoss` or an image took
part in. What they cooled shared its patience; how often and when is not recorded.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from evalign_study.protocols import east
from evalign_study.records.journal import Record

LOSSES = {
    "cross_entropy": "cross_entropy",
    "dice": "dice",
    "east_f1": "f1",
    "east_accuracy": "accuracy",
    "east_mcc": "mcc",
    "mcfbeta_f1": "f1",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"features": "paper", "split": "random"},
    "sound": {"features": "sound", "split": "groups"},
}
PLAIN = {"network": "mlp", "imbalance": None, "rows": None, "split_seed": 0}


def former(records: Iterable[Record]) -> Iterator[Record]:
    """Go through the records that still hold, as records of EAST's protocol."""
    for record in records:
        run = run_of(record)
        if run is None:
            continue
        changed = {
            "key": run.key,
            "run": dataclasses.asdict(run),
            "protocol": run.protocol,
            "version": run.version,
            "cap": run.epochs,
            "coolings": None,
            "last_temperature": None,
        }
        yield {**record, **changed}


def run_of(record: Record) -> east.Run | None:
    """The run of a former record; None if it does not hold."""
    old = record["run"]
    plain = all(old.get(name, usual) == usual for name, usual in PLAIN.items())
    known = old["method"] in LOSSES and east.VERSION == 1
    if not (plain and known) or record.get("capped", True) or record.get("diverged"):
        return None
    if old["patience"] not in (50, 100) or not old["batch_size"]:
        return None
    two = "f1" in record["picks"]
    average = "positive class" if two else "all classes"
    if LOSSES[old["method"]] == "f1" and not two:
        average = "present classes"
    trial = "decisions" in record["picks"]["loss"]
    settings: dict[str, Any] = {
        name: old[name]
        for name in ("dataset", "batch_size", "learning_rate", "dropout", "epochs", "seed")
    }
    return east.Run(
        **settings,
        **VARIANTS[old["variant"]],
        loss=LOSSES[old["method"]],
        average=average,
        rate=old["rate"] or 1.0,
        patience=old["patience"],
        reading="shared patience",
        decisions=_decisions(record) if trial else ("argmax",),
    )


def _decisions(record: Record) -> tuple[str, ...]:
    there = record["picks"]["loss"]["decisions"]
    return tuple(name for name in ("argmax", "tuned") if name in there)
