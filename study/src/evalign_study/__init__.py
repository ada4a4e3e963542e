"""The papers' experiments, run again, and our own: a package beside the library.

The folders, from the bottom up, each of which may import those below it:

- `data`: data sets, their cards and files; `networks`: the papers' networks; `records`: what a run
  is, and the files of what became of it.
- `trainers`: from a run to its record.
- `pipeline`: what a table is, and how any table is run and written.
- `papers`: the tables of the papers; `suite`: that of our own recipe.
- `catalog`: all tables by name; `cli`: the command `evalign-study`.

To add a table, see `pipeline.table`.
"""
