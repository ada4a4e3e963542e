r"""Whether argmax should stay where the cross-fitted gain of a rule is not positive.

    EVALIGN_DATA=FOLDER python study/benchmarks/rule_or_argmax.py \
        --out study/benchmarks/results/rule_or_argmax.json

The criterion, written down before the first run: a rule without a constraint is left out where its
cross-fitted gain is not positive, if that does not lower the mean test score over all cells (table,
number of rows, split, classifier, metric). If it lowers the mean, the rule is always used.

The tables and classifiers are some of those of the table `decisions`, with its out-of-fold
probabilities of five folds. Each cell has the test score

    argmax   of the most probable class,
    rule     of the tuned rule, fitted to all training rows, and by it or argmax
    mean     where the mean of its gains on the folds, each by a rule of the others, is positive,
    pooled   where its gain on the rows of all folds together is positive.

Both lower the mean, from 0.643 to 0.638 and 0.639, and most for few rows: the gain on rows held out
is so uncertain that it leaves out rules that help. So the rule is always used.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evalign_study.decided.plan import runs
from evalign_study.trainers.deciding import FOLDS, Probabilities, probabilities
from evalign_study.trainers.methods import GOALS, Problem
from threadpoolctl import threadpool_limits

from evalign import fit_decision
from evalign.core.metrics import resolve
from evalign.estimators.evidence import score_of

SETS = ("cardiotocography", "yeast", "mammography", "annthyroid", "winequality_white", "satimage")
MODELS = ("logistic_regression", "random_forest", "extra_trees")
ROWS, SPLITS = (250, 1000), range(2)


def cells() -> Iterator[dict[str, Any]]:
    """Score every cell."""
    for split in SPLITS:
        for rows, name in product(ROWS, SETS):
            for run in runs([name], splits=[split], models=MODELS, rows=rows):
                found = probabilities(run)
                goals = Problem(torch.ones(found.known.shape[1]), run.dataset)
                for metric in dict.fromkeys(goals.metric(name) for name in GOALS.values()):
                    about = {"table": run.dataset, "rows": rows, "split": run.split_seed}
                    about |= {"classifier": run.method, "metric": metric}
                    yield about | scored(found, metric)


def scored(found: Probabilities, metric: str) -> dict[str, float]:
    """The test scores of one cell, and the two gains."""
    y, crossed, plain = found.y, np.empty_like(found.y), found.known.argmax(1)
    classes = found.known.shape[1]

    def score(labels: np.ndarray, true: np.ndarray) -> float:
        return score_of(resolve(metric), labels, true, None, classes)

    gains = []
    for number in range(FOLDS):
        out = found.fold == number
        crossed[out] = rule(found, ~out, metric)(probabilities=found.known[out])
        gains.append(score(crossed[out], y[out]) - score(plain[out], y[out]))
    pooled = score(crossed, y) - score(plain, y)
    by_rule = rule(found, np.ones(len(y), bool), metric)(probabilities=found.test)
    with_rule = score(by_rule, found.y_test)
    argmax = score(found.test.argmax(1), found.y_test)
    mean = float(np.mean(gains))
    return {
        "argmax": argmax,
        "rule": with_rule,
        "mean": with_rule if mean > 0 else argmax,
        "pooled": with_rule if pooled > 0 else argmax,
        "gain_mean": mean,
        "gain_pooled": pooled,
    }


def rule(found: Probabilities, rows: np.ndarray, metric: str) -> Any:
    return fit_decision(y=found.y[rows], probabilities=found.known[rows], metric=metric)


def summary(made: list[dict[str, Any]]) -> Iterator[str]:
    """Mean scores, all and by the number of rows, and what the cells without the rule lost."""
    for rows in (None, *ROWS):
        some = [cell for cell in made if rows in (None, cell["rows"])]
        means = {
            way: np.mean([c[way] for c in some]) for way in ("argmax", "rule", "mean", "pooled")
        }
        yield f"{rows or 'all'} rows: " + ", ".join(f"{k} {v:.4f}" for k, v in means.items())
        for way in ("mean", "pooled"):
            lost = [c["rule"] - c["argmax"] for c in some if c[f"gain_{way}"] <= 0]
            often = f"{len(lost)} of {len(some)}"
            yield f"  {way}: not used in {often}, lost {np.mean(lost):+.4f} there"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out, start = parser.parse_args().out, time.process_time()
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = []
        for cell in cells():
            made.append(cell)
            seconds = time.process_time() - start
            out.write_text(json.dumps({"seconds": seconds, "cells": made}))
    print(*summary(made), sep="\n")


if __name__ == "__main__":
    main()
