"""From runs to records.

`methods` makes losses and networks by name. `tabular` trains tables of features as the papers do,
`recipe` as the estimator does, both in stacks (`many`, `stacked`, `stacks`); `images`, `frames` and
`classical` train as the papers do, `tailed` trains images as the estimator does; `side_by_side`
trains images in threads that share a GPU, and is called by hand. `goals` trains for goals beyond
one number, with the losses of `goal_methods` and of another library (`libauc_losses`).
`picks` keeps the best epochs, `decisions` turns their logits into labels and scores: most records
go through it. `choice` says which trainer a run has. May import `data`, `networks` and `records`.
"""
