"""The mathematics, as pure functions of tensors.

From low to high: `text`, `checks` (errors), `input_warnings`, `numerics`, `heaviside`, `values` and
`rows` (checks of logits, targets and weights), `batch` (their canonical form), `membership`,
`confusion` and its `class_report`, `metrics`, `constraints`. `estimates` and `resampling` compute
confidence intervals. May import torch, but not its Modules or process groups.
"""
