"""Parts of a table on a real Dask cluster of two processes, as in docs/decision/cluster.md."""

import os
import time
from functools import reduce

import numpy as np
import pytest
from distributed import Client

from evalign import DecisionFitter, fit_decision

METRIC = "f1_macro"
PARTS = 6
ROWS_OF_A_PART = 2000


def part_of_table(number):
    """Probabilities of three classes, and the labels of the same rows."""
    rng = np.random.default_rng(number)
    probabilities = rng.dirichlet([6.0, 2.0, 1.0], ROWS_OF_A_PART)
    draws = rng.random((ROWS_OF_A_PART, 1))
    return probabilities, (draws > probabilities.cumsum(1)).sum(1)


def fit_part(number, max_rows):
    """A fitter of one part, and the process that it was fitted in."""
    probabilities, labels = part_of_table(number)
    fitter = DecisionFitter(METRIC, stream=number, max_rows=max_rows)
    fitter.update(probabilities=probabilities, y=labels)
    time.sleep(0.2)  # else one process may take all parts before the other is there
    return fitter, os.getpid()


@pytest.fixture(scope="module")
def client():
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        yield client


def fitted_on(client, max_rows):
    """The fitters of all parts, each fitted by a process of the cluster."""
    results = client.gather(client.map(fit_part, range(PARTS), max_rows=max_rows))
    processes = {process for _, process in results}
    assert len(processes) == 2
    assert os.getpid() not in processes
    return [fitter for fitter, _ in results]


def same(rule, other):
    return (
        np.array_equal(rule.gain, other.gain)
        and np.array_equal(rule.offsets, other.offsets)
        and (rule.factor, rule.score, rule.rows) == (other.factor, other.score, other.rows)
    )


def test_the_rule_is_that_of_the_whole_table(client):
    merged = reduce(DecisionFitter.merge, fitted_on(client, PARTS * ROWS_OF_A_PART))
    parts = [part_of_table(number) for number in range(PARTS)]
    probabilities = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    assert same(
        merged.compute(), fit_decision(y=labels, probabilities=probabilities, metric=METRIC)
    )


def test_a_sample_is_the_same_in_any_order_of_merging(client):
    """No process holds more than a third of the table."""
    max_rows = 2000
    forwards = reduce(DecisionFitter.merge, fitted_on(client, max_rows)).compute()
    backwards = reduce(DecisionFitter.merge, reversed(fitted_on(client, max_rows))).compute()
    assert forwards.rows == max_rows
    assert same(forwards, backwards)


def test_one_stream_counts_once(client):
    first, *_ = fitted_on(client, ROWS_OF_A_PART)
    again, _ = client.submit(fit_part, 0, ROWS_OF_A_PART, pure=False).result()
    with pytest.raises(ValueError, match="stream"):
        first.merge(again)
