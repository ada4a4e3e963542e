"""The papers' experiments, run again, and our own: protocol, methods, tables, claims.

`run` says what one trained model is, `methods` what it is trained with, `records` keeps what came
of it. `tabular` (with `prepared`), `images`, `frames` and `classical` train; `picks` keeps the best
epochs. `tables` knows what was printed (`tables.toml`), `plan` which runs that takes, `execute` has
them trained. `evidence` and `verdicts` compare; `render`, `formats` and `figures` write it down;
`reproduce` does one after the other.

Our own recipe has a `suite` of tables and `tailed` images; `rulings` scores the networks,
`standings` compares, `recipe` writes it down. With `tabular` the suite shares `stacks`.

May import all but `cli`. Needs the extra `study`.
"""
