"""The protocols' runs, many at once: only speed, tested to give what the plain loop gives.

`rows` stacks networks for tables; `working` trains runs in several processes, within a time;
`python -m evalign_study.fast` does it for a slice of a table. May import the protocols,
`planning` and `running`.
"""
