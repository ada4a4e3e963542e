"""The table of goals beyond one number: a metric under a bound, and areas under curves.

`plan` lists the runs, `standings` computes gains and checks promises, `table` writes them.
"""
