"""A small table, and records for it with scores of our choice."""

import tomllib

from evalign_study.papers.evidence import Evidence
from evalign_study.papers.plan import Plan
from evalign_study.papers.tables import read
from evalign_study.records.run import BINARY, LOSS

WRITTEN = tomllib.loads("""
[sets.mammography]
label = "Mammography"
recipe = { batch_size = 128, learning_rate = 0.01, epochs = 5, patience = 2 }
notes = ["Rows repeat."]
[sets.adult]
label = "Adult"
variants = ["paper"]
recipe = { batch_size = 128, learning_rate = 0.01, epochs = 5, patience = 2 }
incomparable = "other rows"

[labels]
focal = "Focal"

[made]
title = "A made table"
columns = [["Acc", "accuracy"], ["Recall", "recall", "accuracy"]]
added = ["focal"]
notes = ["Made up."]
lines = { "F1*" = "mcfbeta_f1", "CE" = "cross_entropy" }
panels = [
    { dataset = "mammography", printed = { "F1*" = "0.70 ± 0.01", "CE" = "0.60 ± 0.02" } },
    { dataset = "adult" },
]
claims = [
    { text = "F1* is better", better = "F1*", than = "CE", column = "Acc" },
    { text = "F1* matches", better = "F1*", than = "CE", column = "Acc", relation = "not lower" },
    { text = "CE recalls", better = "CE", above = 0.5, column = "Recall", on = ["Mammography"] },
]

[drawn]
title = "A made figure"
kind = "scatter"
columns = [["F1", "correlation:1"]]
lines = { "Surrogate" = "surf_1" }
panels = [{ dataset = "mammography", variants = ["paper"] }]
claims = [{ text = "They correlate", better = "Surrogate", above = 0.9, column = "F1" }]

[converged]
title = "Another made figure"
kind = "convergence"
columns = [["F1 (training)", "last:train_f1"], ["epochs", "epochs:train_f1"]]
lines = { "Surrogate" = "surf_1" }
panels = [{ dataset = "mammography", variants = ["paper"] }]
claims = [{ text = "It learns", better = "Surrogate", above = 0.5, column = "F1 (training)" }]

[raced]
title = "A made race"
kind = "convergence"
columns = [["epochs", "epochs:train_f1"]]
lines = { "Surrogate" = "surf_1", "MAE" = "mae", "CE" = "cross_entropy" }
panels = [{ dataset = "mammography", variants = ["paper"] }]
claims = [{ text = "MAE is slow", better = "MAE", than = "Surrogate", column = "epochs" }]
""")
TABLES = read(WRITTEN)
ROWS = 1000  # of the test part


def pick(accuracy, tuned=None):
    """Make a pick of 1,000 rows, half of them positive, whose mistakes are all missed positives."""

    def labels(accuracy):
        missed = round(ROWS * (1 - accuracy))
        cells = [[0, 0, ROWS // 2], [1, 0, missed], [1, 1, ROWS // 2 - missed]]
        return {"test": {}, "matrix": [cell for cell in cells if cell[2]]}

    chosen = {"argmax": labels(accuracy), "tuned": labels(accuracy if tuned is None else tuned)}
    return {
        "epoch": 1,
        "validation_loss": 0.5,
        "validation": {},
        "decisions": chosen,
        "auroc": 0.75,
    }


def record(run, picks, *, capped=False, **more):
    made = {"at": "2026-01-02T03:04:05+00:00", "commit": "abc1234", "device": "A processor"}
    made |= {"precision": "float32", "python": "3.11.7", "torch": "2.13.0", "sklearn": "1.7.2"}
    made["evalign"] = "0.1.0"
    about = {"key": run.key, "run": run.__dict__, "made": made, "epochs": 5, "capped": capped}
    return {**about, "seconds": 1.0, "picks": picks, **more}


def records(plan, accuracies, **more):
    """Make records with these `accuracies`: by line, one for each trial, the same by every
    criterion.
    """
    found = []
    for cell in plan.cells():
        runs = plan.runs(cell, LOSS, {})
        for run, accuracy in zip(runs, accuracies.get(cell.line.label, []), strict=False):
            found.append(record(run, dict.fromkeys([LOSS, *BINARY], pick(accuracy)), **more))
    return found


def by_key(records):
    return {record["key"]: record for record in records}


def evidence(accuracies, name="made", trials=3, **more):
    plan = Plan(TABLES[name], trials)
    return Evidence(plan, by_key(records(plan, accuracies, **more)))


def curves(name, *f1, loss=(3.0, 2.0, 1.0), trials=2):
    """Make the evidence of a figure: the F1 of each line by epoch, the same in all repetitions."""
    plan, found = Plan(TABLES[name], trials), []
    for cell, values in zip(plan.cells(), f1, strict=True):
        for run in plan.runs(cell, LOSS, {}):
            curve = [
                {"epoch": epoch, "train_loss": x, "train_f1": y}
                for epoch, (x, y) in enumerate(zip(loss, values, strict=True), 1)
            ]
            found.append(record(run, {}, curve=curve))
    return Evidence(plan, by_key(found))
