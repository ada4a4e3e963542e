"""Every tolerance of the tests, each with its reason."""

import torch

# Float64 sums of some dozen terms of size 1, in another order, through divisions by sums of at
# least ½: an error of some hundred units in the last place (1e-14), and room for two more digits
# where a metric divides by a small class.
REFERENCE = 1e-10

# The same computation in another order or layout (float64): rounding only.
SAME = 1e-12

# A sum of n ≤ 24 memberships, each right to one unit in the last place, over its own size.
PERFECT = {torch.float64: 1e-14, torch.float32: 1e-5}

# EAST Thm 5.3 at T = 1e-9: a membership is off by at most 2 (d − 1) T, 2e-8 for ten classes, a
# matrix of 200 rows by some 1e-6 at worst; the promise is 1e-6.
LIMIT = 1e-6

# The slope of a membership in T, taken at T = 1e-7: the next order is below (2 d + 4) T = 2e-6.
RATE = 1e-5

# An exponent from two temperatures at most 1e-5: the next order of the expansion, some ten times
# √T or T, over the logarithm of their ratio.
EXPONENT = 0.01
