"""The mathematics, as pure functions of tensors.

From low to high: `text`, `checks`, `numerics`, `heaviside` and `batch`, `membership`, `confusion`,
`metrics`, `theory`. `estimates` and `resampling` give intervals. May import torch, but not its
Modules or process groups.
"""
