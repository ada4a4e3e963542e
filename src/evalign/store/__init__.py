"""One way to write anything fitted, whole or not at all, and to read it back checked.

`files` writes files, folders and JSON documents, `archive` objects with their arrays as a file, and
`models` knows which models of scikit-learn can be saved. No pickle is written or read. What is
opened may come from anyone: it gives a `StoreError`, or an object that is safe to use.
It may import `core` only. Later stages `register` the types that they save.
"""
