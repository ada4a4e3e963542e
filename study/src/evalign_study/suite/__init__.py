"""The suite of our own recipe: ours against the losses of today.

`plan` lists its runs, `standings` compares them, `recipe` is the table and its text. May import
`pipeline` and what that may, but not `papers`.
"""
