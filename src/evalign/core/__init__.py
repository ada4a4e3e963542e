"""The mathematics, as pure functions of arrays: of NumPy, or tensors of PyTorch.

From low to high: `errors`, `text`, `stairs` (to the upper floor), `arrays`, `checks`, `task`,
`input_warnings` and `values`, `class_report` and `confusion`, `metrics`, `constraints`. `estimates`
and `resampling` compute confidence intervals. Imports NumPy, and SciPy where it is called for.
"""
