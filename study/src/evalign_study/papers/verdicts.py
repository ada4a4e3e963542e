"""Verdicts on the claims, from pairs of trials with the same seed and the same split.

A claim says where the difference of two lines lies (`tables.RELATIONS`). It is *confirmed* where
the 95% interval of the mean difference, by Student's t over the trials, lies wholly there; the
reverse holds where the interval lies wholly outside. Verdicts are not adjusted for their number:
each is about one printed sentence, all are shown, and the verdict and the interval beside it must
not disagree. So, where two lines do not differ, one verdict in forty is a confirmation by chance.
"""

from collections.abc import Iterator
from typing import NamedTuple

from evalign_study.papers.evidence import Evidence, View
from evalign_study.papers.tables import RELATIONS, Claim, Panel, PrintedTable
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.trainers.decisions import MOST_TUNED

CONFIRMED, NOT_CONFIRMED = "confirmed", "not confirmed"
NOT_COMPARABLE, NOT_RUN = "not comparable", "not run"
REVERSE = "the reverse holds"


class Verdict(NamedTuple):
    """The verdict of the trials on a claim, on one panel.

    Args:
        word: one of the four verdicts.
        reason: a remark beside it: why it is not comparable, or how few trials there were.
        difference: the difference of the claim's lines; None without trials.
    """

    word: str
    reason: str
    difference: Interval | None


def judge(evidence: Evidence, claim: Claim, panel: Panel, view: View) -> Verdict:
    """Judge a claim on one panel, in one view."""
    column = panel.column(claim.column)
    assert column is not None
    first = evidence.values(panel, claim.better, column, view)
    second = (
        evidence.values(panel, claim.than, column, view)
        if claim.than
        else dict.fromkeys(first, claim.above)
    )
    both = [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]
    # A line that never converges needs more epochs than it had.
    if column.metric.startswith("epochs:"):
        more = panel.first["epochs"] + 1
        both = [(x or more, y or more) if x or y else (x, y) for x, y in both]
    pairs = [x - y for x, y in both if x is not None and y is not None]
    if len(pairs) < 2:
        if len(both) > len(pairs):
            what = f"decision {view.decision!r}" if column.decided else "such value"
            who = f"all but one of {len(both)} trials" if pairs else "the trials"
            return Verdict(NOT_COMPARABLE, f"{who} have no {what}", None)
        return Verdict(NOT_RUN, "one trial" if pairs else "", None)
    difference = interval(pairs)
    few = f"{len(pairs)} of {len(both)} trials" if len(pairs) < len(both) else ""
    if panel.incomparable:
        return Verdict(NOT_COMPARABLE, panel.incomparable, difference)
    least, most = RELATIONS[claim.relation]
    if least < difference.low and difference.high < most:
        return Verdict(CONFIRMED, few, difference)
    outside = difference.high < least or most < difference.low
    reason = ", ".join(filter(None, [REVERSE if outside else "", few]))
    return Verdict(NOT_CONFIRMED, reason, difference)


def views(table: PrintedTable, panel: Panel) -> dict[str, View]:
    """List the views of a claim: as in the paper, and strictly. A figure has only one.

    With very many classes no decision is tuned.
    """
    decision = table.decisions[0]
    seen = {"as in the paper": View(panel.variants[0], "papers", decision)}
    if not table.drawn:
        strict = table.strict if panel.classes <= MOST_TUNED else "argmax"
        seen["strictly"] = View(panel.variants[-1], "strict", strict)
    return seen


def verdicts(evidence: Evidence) -> Iterator[tuple[Claim, Panel, dict[str, Verdict]]]:
    """Judge all claims of a table, on all their panels."""
    for claim in evidence.table.claims:
        for panel in evidence.table.panels:
            if panel.label in claim.on:
                seen = views(evidence.table, panel)
                yield claim, panel, {k: judge(evidence, claim, panel, v) for k, v in seen.items()}
