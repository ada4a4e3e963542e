"""The table of decisions: rivals' rules and ours on the same probabilities.

`plan` lists the runs, `standings` computes gains and verdicts, `table` writes them. May import
`pipeline` and all below it, and `suite` for its data sets.
"""
