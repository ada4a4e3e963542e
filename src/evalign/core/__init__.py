"""The mathematics, as pure functions of tensors.

From low to high: `text`, `checks`, `numerics`, `heaviside` and `batch`, `membership`, `confusion`,
`metrics`, `theory`. May import torch; knows no Module and no process group, and nothing above it.
"""
