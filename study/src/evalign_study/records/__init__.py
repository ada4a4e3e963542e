"""Runs, their records, and the files of records.

`run` defines one trained model and how its labels are scored, `made` makes its record, and
`results` is a file of records. This folder may import only the library.
"""
