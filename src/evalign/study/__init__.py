"""The papers' experiments, run again: protocol, methods, tables, claims.

`run` says what one trained model is, `methods` what it is trained with, `records` keeps what came
of it. `tabular` (with `prepared`), `images`, `frames` and `classical` train; `picks` keeps the best
epochs. `tables` knows what was printed (`tables.toml`), `plan` which runs that takes, `execute` has
them trained. `evidence` and `verdicts` compare; `render`, `formats` and `figures` write it down;
`reproduce` does one after the other. May import all but `cli`. Needs the extra `study`.
"""
