"""Sums over more rows than one batch holds.

`running` averages over batches, `ranks` sums over the processes of a distributed job,
`training_sums` does both, and `exact` sums over micro-batches in two passes. May import `core`.
"""

from evalign.aggregation.exact import ExactAccumulation, exact_backward
from evalign.aggregation.ranks import Ranks, RankSum
from evalign.aggregation.running import RunningConfusion
from evalign.aggregation.training_sums import TrainingSums

__all__ = [
    "ExactAccumulation",
    "RankSum",
    "Ranks",
    "RunningConfusion",
    "TrainingSums",
    "exact_backward",
]
