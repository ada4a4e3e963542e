"""The papers' experiments, each from top to bottom in one file, in plain PyTorch.

`east` is EAST, and its first version, MC-Fβ. A protocol has a `Run`, all that a result depends on;
`train`, from a run to its record; and a `VERSION`, to be raised where a change of its code changes
numbers. What protocols share lies below them: `data`, `networks`, `records`. They use evalign by
its public names alone, as a user does.
"""
