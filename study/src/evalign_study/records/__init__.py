"""What a run is, what is kept of it, and the files that keep it.

`run` says what one trained model is and how its labels are scored, `made` writes a record of it,
`results` is a file of records. May import the library alone.
"""
