"""Run the papers' experiments again, and our own: a package beside the library.

Read `protocols` first: a file for each paper, from the rows to the record. Around it, from the
bottom up: `tables` are files of settings, `planning` makes their runs, `fast` trains many at once,
`running` what is missing; `standing` judges, `paging` writes. They use evalign by its public names.

The other folders, from the bottom up; each may import those listed before it:

- `data`: data sets, their cards and files; `networks`: the papers' networks; `records`: what a run
  is, and the files that keep its results.
- `trainers`: from a run to its record.
- `pipeline`: what a table is, and how any table is run and written.
- `papers`: the tables of the papers; `suite`: the table of our own recipe.
- `catalog`: all tables by name; `cli`: the command `evalign-study`.

To add a table, see `pipeline.table`.
"""
