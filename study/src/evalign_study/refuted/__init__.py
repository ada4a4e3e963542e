"""Losses that the library does not have, so that the tables of their records can be run again.

`counted` takes its offsets from class counts, as `AlignedLoss` did before it followed the
classifier. The table of goals found the others no better than cross-entropy with the same decision
rule: `constrained` trains under a bound, `curves` optimises a partial area and a recall at a
precision.
"""
