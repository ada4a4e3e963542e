"""The tables and figures of the papers, run again and held against what was printed.

`tables` reads what was printed (`tables.toml`). `search` is the papers' grid, and `plan` lists the
runs. `evidence` finds their values, `verdicts` judges claims, `render` and `figures` say what was
found, `paper` is the table. May import `pipeline` and what that may, but not `suite`.
"""
