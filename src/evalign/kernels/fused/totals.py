"""The sums of many programs, added up in one order, in float64."""

import triton
import triton.language as tl


@triton.jit
def added(partial, programs, width, c, real, COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr):
    """The sums `c`, of which each program has written `width`."""
    total = tl.zeros([PROGRAMS, COLUMNS], tl.float64)
    for start in range(0, programs, PROGRAMS):
        i = start + tl.arange(0, PROGRAMS)[:, None]
        at = partial + i.to(tl.int64) * width + c[None, :]
        here = (i < programs) & real[None, :]
        total += tl.load(at, mask=here, other=0).to(tl.float64)
    return tl.sum(total, 0)


@triton.jit
def add_up(partial, totals, programs, width, COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr):
    """The sums of all programs, where there are too many for one to add up."""
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = added(partial, programs, width, c, c < width, COLUMNS, PROGRAMS)
    tl.store(totals + c, total, mask=c < width)
