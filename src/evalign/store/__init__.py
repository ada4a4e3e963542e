"""One way to write anything fitted, whole or not at all, and to read it back checked.

`files` writes files, folders and JSON documents, `archive` objects and their arrays as one file,
`models` knows which models of scikit-learn can be saved. No pickle is written or read. A saved
thing may come from anyone: opening it gives a `StoreError` or an object that is safe to use.

It may import `core` only. Later stages `register` what they save.
"""
