"""From scores to labels: argmax, threshold, the gain matrix of the linearised metric.

From low to high: `goal` (the metric of many matrices at once), `cuts` (two classes) and `gains`
(more) and `calibrate`, `tuned` (with labels), `rule` (the public face). May import `core`.
"""

from evalign.decisions.rule import Decision, DecisionRule, fit_decision

__all__ = ["Decision", "DecisionRule", "fit_decision"]
