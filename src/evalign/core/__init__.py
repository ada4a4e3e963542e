"""The mathematics, as pure functions of tensors.

From low to high: `text`, `checks` (errors), `input_warnings`, `numerics`, `heaviside`, `rows`
(what may come in), `batch` (one form of it) and `indices` (of predicted labels), `membership`,
`confusion`, `groups`, `metrics`, `constraints`, `curves` (over thresholds), `theory`. `estimates`
and `resampling` give intervals. May import torch, but not its Modules or process groups.
"""
