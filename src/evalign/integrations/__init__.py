"""Training engines: `lightning` and `huggingface`, each thin and each with its extra.

Loaded only when asked for: `import evalign` knows neither. May import `training` and below.
"""
