"""What all tables share: how runs are trained and recorded, and how results are written.

`table` says what a table is, and how to add one. `running` trains what is not recorded, by
`execute`; `writing` writes the findings of a table to files and pages, in the formats of `formats`;
`style` is the look of its figures.
`intervals` computes the means and intervals that all tables are judged by. This folder may import
`trainers` and what `trainers` may import.
"""
