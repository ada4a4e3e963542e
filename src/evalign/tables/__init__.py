"""Tables as people have them, and the numbers that a model takes.

```
file ──► frame ──► typed columns ──► kind of each column ──► numbers
files    (pandas,   values            kinds                   columns, features
          polars,
          Arrow, arrays)              labels and classes beside it: labels
```

The command line reads files and hands its frames to the code that reads the X of an estimator, so
that one table gives one set of columns by every door. `warnings` holds all warnings about data.

Imports `evalign.core` alone. Only `files` needs pandas, which `import evalign` does not load.
"""

from evalign.tables.features import Features, FrameEncoder
from evalign.tables.kinds import overview
from evalign.tables.warnings import DataWarning

__all__ = ["DataWarning", "Features", "FrameEncoder", "overview"]
