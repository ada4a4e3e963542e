"""From logits to a soft Confusion, and how rows of logits, targets and weights are read.

From low to high: `checks` and `numerics`, `heaviside` (the step), `rows` (checks of logits, targets
and weights), `batch` (their canonical form), `soft_sets` (memberships), `soft_confusion` and
`slopes`. The first package of the upper floor: imports PyTorch and the ground floor's `core`, but
not torch's modules or process groups.
"""
