"""Tolerances that depend on the dtype of tensors, each with its reason."""

import torch

# A sum of n ≤ 24 memberships, each right to one unit in the last place, over its own size.
PERFECT = {torch.float64: 1e-14, torch.float32: 1e-5}

# One value of size 1, computed by two formulas that agree at a kink.
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-6}

# Rows summed in parts, on several ranks or in micro-batches: the order of the sums differs. Weights
# and activations round in the network's own precision; gradients here are of size 0.1.
RANKS = {torch.float64: 1e-12, torch.float32: 1e-6}

# A kernel beside the reference, over the mass of all rows: some ten units in the last place, as
# sums are taken in other orders and, in blocks of a few thousand rows, in the precision of the
# logits. What the reference itself loses in that precision is measured and allowed for.
KERNEL = {torch.float64: 1e-13, torch.float32: 1e-6}
