"""From a table as people have it to the numbers that a model takes.

1. `files`: a CSV, Parquet or Excel file becomes a pandas frame.
2. `values`: the columns of a frame (pandas, polars, Arrow) become typed values.
3. `kinds`: each column is a number, boolean, category or date, or is left out.
4. `columns`: what is learned about a column, such as its levels, and how it becomes numbers.
5. `features`: all columns become one matrix. `Features.matrix` is where a CSV becomes numbers.

`labels` reads the y of an estimator and the label column of a file, `split` divides rows into
parts and folds, and `warnings` holds all warnings about data. Imports only `evalign.core`. Only
`files` needs pandas, which `import evalign` does not load.
"""

from evalign.tables.features import Features, FrameEncoder
from evalign.tables.kinds import overview
from evalign.tables.warnings import DataWarning

__all__ = ["DataWarning", "Features", "FrameEncoder", "overview"]
