"""The suite of our own recipe, which compares it with the losses of today.

`plan` lists its runs, `standings` compares them, `recipe` is the table and its text. This folder
may import `pipeline` and what `pipeline` may import, but not `papers`.
"""
