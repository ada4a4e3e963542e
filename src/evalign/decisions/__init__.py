"""From scores to labels: argmax, threshold, the gain matrix of the linearised metric.

From low to high: `goal` (the metric of many matrices at once) and `inputs` (what rows may look
like), `nearby` (a rule's neighbours), `cuts` (two classes) and `gains` (more) and `calibrate`,
`tuned` (with labels), `certainty` and `promise` (for new rows), `multilabel` (many labels a row),
`expected` (without labels) and `shift` (other class shares), `state` (what is saved), `rule`, `fit`
and `stream` (the public face). May import `core`.
"""

from evalign.decisions.fit import fit_decision
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.stream import DecisionFitter

__all__ = ["Decision", "DecisionFitter", "DecisionRule", "fit_decision"]
