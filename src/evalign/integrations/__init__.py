"""Training engines: `lightning` and `huggingface`, each a thin layer with its own extra.

`import evalign` does not load them. May import `training` and below.
"""

from evalign.core import stairs

stairs.torch_of("evalign.integrations")
