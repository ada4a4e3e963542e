"""Training engines: `lightning` and `huggingface`, each a thin layer with its own extra.

`import evalign` does not load them. May import `training` and below.
"""
