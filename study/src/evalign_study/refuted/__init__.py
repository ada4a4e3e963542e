"""Losses that the table of goals found no better than cross-entropy with the same decision rule.

`constrained` trains under a bound, `curves` optimises a partial area and a recall at a precision.
They are here so that the table can be run again; the library does not have them.
"""
