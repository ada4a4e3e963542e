"""Where sums over rows come from beyond one batch.

`running` is an average over batches, `ranks` sums over the processes of a distributed job, and
`exact` over micro-batches in two passes. May import `core`.
"""

from evalign.statistics.exact import ExactAccumulation, exact_backward
from evalign.statistics.ranks import Ranks, RankSum
from evalign.statistics.running import RunningConfusion

__all__ = ["ExactAccumulation", "RankSum", "Ranks", "RunningConfusion", "exact_backward"]
