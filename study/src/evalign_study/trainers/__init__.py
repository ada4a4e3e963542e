"""From runs to records.

`methods` makes losses and networks by name. `tabular` trains tables of features as the papers do,
`recipe` as the estimator does, both in stacks (`many`, `stacked`, `stacks`); `images`, `frames` and
`classical` train as the papers do, `tailed` trains images as the estimator does. `picks` keeps the
best epochs, and `decisions` turns their logits into labels and scores, for every record. `choice`
says which trainer a run has. This folder may import `data`, `networks` and `records`.
"""
