"""The tables of tasks beyond one label a row: a class for each pixel, and many labels a row.

`plan` lists the runs, `standings` computes gains and verdicts, `table` writes them.
May import `pipeline` and all below it, and `suite` for its statistics.
"""
