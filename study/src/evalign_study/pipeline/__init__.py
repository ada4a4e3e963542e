"""One way for every table: its runs, their records, what is said of them, and where it is written.

`table` says what a table is, and how to add one. `running` trains what is not recorded, by
`execute`; `writing` makes files and fills pages of what a table finds, in the words of `formats`.
`intervals` has the numbers that all tables are judged by. May import `trainers` and what those may.
"""
