"""Where a Confusion comes from beyond one batch: `running`, an average over batches.

May import `core`.
"""

from evalign.statistics.running import RunningConfusion

__all__ = ["RunningConfusion"]
