"""Which model to use: our network and our ensembles beside boosted trees, on the suite's tables.

The models they are compared with are those of the table of decisions, on the same rows.
"""
