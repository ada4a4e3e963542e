"""The tables and figures of the papers, run again and compared with what was printed.

`tables` reads what was printed (`tables.toml`). `search` is the papers' grid, and `plan` lists the
runs. `evidence` finds their values, `verdicts` judges claims, `render` and `figures` present the
results, and `paper` is the table. This folder may import `pipeline` and what `pipeline` may import,
but not `suite`.
"""
