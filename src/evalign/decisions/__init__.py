"""From scores to labels: argmax, thresholds, and gain matrices of the linearised metric.

From low to high: `module` (the formula, and a module of it), `objective` (metric and constraints of
many confusions at once) and `inputs` (the accepted forms of rows), `confusions` and `local_search`,
`threshold` (two classes) and `gain_search` (more), `calibration`, `tuned` (with labels), `p_values`
and `promise` (for new data), `multilabel`, `expected` (by probabilities), `saved_rule`, `rule`,
`fit_rows` and `fit` (the public face). May import `core`, and `store` to write a rule.
"""

from evalign.decisions.fit import DecisionFitter, fit_decision
from evalign.decisions.rule import Decision, DecisionRule

__all__ = ["Decision", "DecisionFitter", "DecisionRule", "fit_decision"]
