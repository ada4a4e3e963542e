"""The tables of segmentation and of multilabel classification: several labels for each row.

`plan` lists the runs, `standings` computes gains and verdicts, `table` writes them.
May import `pipeline` and all below it, and `suite` for its statistics.
"""
