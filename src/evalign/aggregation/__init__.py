"""Sums over more rows than one batch holds.

`running` averages over batches, `ranks` sums over the processes of a distributed job, and `exact`
sums over micro-batches in two passes. May import `core`.
"""

from evalign.core import stairs

if stairs.has_torch():
    from evalign.aggregation.exact import ExactAccumulation, exact_backward
    from evalign.aggregation.ranks import Ranks, RankSum
    from evalign.aggregation.running import RunningConfusion

__all__ = ["ExactAccumulation", "RankSum", "Ranks", "RunningConfusion", "exact_backward"]


def __getattr__(name: str) -> object:
    raise stairs.no_attribute(__name__, name, __all__)
