"""From scores to labels: argmax, threshold, the gain matrix of the linearised metric.

From low to high: `goal` (the metric of many matrices at once) and `inputs` (what rows may look
like), `nearby` (a rule's neighbours), `cuts` (two classes) and `gains` (more) and `calibrate`,
`tuned` (with labels), `rule` and `fit` (the public face). May import `core`.
"""

from evalign.decisions.fit import fit_decision
from evalign.decisions.rule import Decision, DecisionRule

__all__ = ["Decision", "DecisionRule", "fit_decision"]
