"""Every tolerance of the tests, each with its reason."""

# Float64 sums of some dozen terms of size 1, in another order, through divisions by sums of at
# least ½: an error of some hundred units in the last place (1e-14), and room for two more digits
# where a metric divides by a small class.
REFERENCE = 1e-10

# The same computation in another order or layout (float64): rounding only.
SAME = 1e-12

# Finite differences along one random direction, a tenth of the time of one for each logit. They are
# right to 1e-9 or so; so narrow, they tell a logit's slope that is 1% off at least as often.
GRADCHECK = {"fast_mode": True, "atol": 1e-8, "rtol": 1e-5}

# EAST Thm 5.3 at T = 1e-9: a membership, and so an entry of the scaled matrix, is off by at most
# 2 (d − 1) T, 2e-8 for ten classes, and a metric by some ten times that; the promise is 1e-6.
LIMIT = 1e-6

# The slope of a membership in T, taken at T = 1e-7: the next order is below (2 d + 4) T = 2e-6.
RATE = 1e-5

# An exponent from two temperatures at most 1e-5: the next order of the expansion, some ten times
# √T or T, over the logarithm of their ratio.
EXPONENT = 0.01

# A hard metric against scikit-learn's: both are quotients of exact float64 counts.
HARD = 1e-12

# A hard metric against torchmetrics', which computes in float32 (unit in the last place 6e-8).
TORCHMETRICS = 1e-6

# A handful of float64 operations, each right to one unit in the last place (2.2e-16).
FEW_ULPS = 1e-14

# T = 1e-9 makes a ramp whose slope is 1e9 / 2.5: rounding of p and τ (1e-16) grows by as much.
HEAVISIDE = 1e-7

# One positive in a million, in counts of 1e8 scaled by 1e-6 to 1e9: a scaled count is rounded to
# 1e-16 of itself, and a difference of counts may be a millionth of them.
RARE = 1e-9

# Standard errors that a simulated mean may be off: chance does so once in two million checks, and
# with fixed seeds never or always.
FALSE_ALARM = 5.0

# Float32 sums of 64 memberships through another compiler: some ten units in the last place.
FLOAT32 = 1e-5

# A slope from two values 1e-9 or more apart: rounding (1e-16) over the step, and its next order.
SECANT = 1e-6

# Float32 sums of some dozen terms of size 1, in another order: a few units in the last place.
FLOAT32_SUM = 1e-6

# The step at T near 0.4: an outer segment is a sliver of 1e-6·min(τ, 1 − τ), up which H climbs by
# 0.4. The rounding of p or 1 − p, 1e-16, moves H by 4e-11 / min(τ, 1 − τ), where τ is 1e-3 or more.
SLIVER = 1e-7

# A central difference of step 1e-6 in float64: 1e-12 of curvature, 1e-10 of rounding.
DIFFERENCE = 1e-8

# Float32 probabilities are right to 1e-7, and 1 − p of a sure row to a few per mille of itself;
# the sums are in float64.
FLOAT32_GRADIENT = 1e-3

# A network of two layers in bfloat16, which holds three digits, and gradients of size 0.1.
BFLOAT16_STEP = 1e-2

# Some hundred AdamW steps in float64, stacked or alone: batched products round in another order.
STACKED = 1e-8

# A network for images after thirty AdamW steps in float64, relative: weights that differ by 1e-15
# at the start make a loss that differs by 1e-13, one step less in each epoch one of 1e-4 or more.
CAPTURED = 1e-9

# Rows that differ in the last place of float32, and some dozen training steps from there.
TRAINED = 1e-3

# Numbers on the report's page are rounded to three decimals.
SHOWN = 0.00051

# Means and deviations of some hundred rows in float32.
FLOAT32_MOMENTS = 1e-5

# The logarithm of a quotient of slopes, each a central difference of step 1e-6 of a metric with
# classes of a share of 0.02: (1e-6 / 0.02)² = 2.5e-9 of curvature, 1e-10 of rounding.
SLOPES = 1e-8

# Scores that a page of the documentation prints: processors round differently, and a network or a
# forest trained from there answers a few of some hundred rows otherwise.
PRINTED = 0.02

# The others have 1e-5 to 1e-13 of the mass: rounding of a membership (6e-8) over the root of the
# largest of these, and that of float64 (1e-16) over the smallest.
SATURATED = 1e-3

# A central difference of a metric whose step is 1e-5 of the rows, where the smallest class has a
# hundredth of them: curvature of (1e-5 · 100)² = 1e-6 of the slope, over six.
DIFFERENCES = 1e-6
