"""The page of a paper's table: our records beside what was printed."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from evalign.report.words import number
from evalign_study.papers.evidence import Evidence, Selection, View
from evalign_study.papers.figures import figures
from evalign_study.papers.tables import MARGIN, Claim, Column, Line, Panel, Printed, PrintedTable
from evalign_study.papers.verdicts import (
    CONFIRMED,
    NOT_COMPARABLE,
    NOT_CONFIRMED,
    NOT_RUN,
    REVERSE,
    Verdict,
    verdicts,
    views,
)
from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Points, Rest, Text
from evalign_study.pipeline.intervals import NO_INTERVAL, interval
from evalign_study.pipeline.table import QUICK, Findings, Sheet, origins
from evalign_study.records.made import Record

Judged = Sequence[tuple[Claim, Panel, dict[str, Verdict]]]

VARIANTS = {"paper": "as in the papers", "sound": "sound"}
SELECTIONS: dict[Selection, str] = {
    "papers": "Epoch and setting with the lowest validation loss, as in the papers:",
    "strict": "Epoch and setting with the best metric on the validation rows:",
}
MEDIAN = "Median of the repetitions, as in the paper (the lowest to the highest):"


MARKS = {CONFIRMED: "✓", NOT_CONFIRMED: "○", REVERSE: "✗", NOT_COMPARABLE: "?", NOT_RUN: "not run"}
LEGEND = "✓ confirmed, ○ not confirmed, ✗ the reverse holds, ? not comparable; and the difference:"


class Entry(NamedTuple):
    """One of our numbers, and the printed one beside it."""

    line: Line
    column: Column
    view: View
    printed: Printed | None
    values: Sequence[float]


def findings(evidence: Evidence) -> Findings:
    """Collect all results of a table: text, figures, every number and every verdict."""
    judged = list(verdicts(evidence))
    return Findings(
        title=evidence.table.title,
        parts=list(parts(evidence, judged)),
        figures=figures(evidence),
        sheets={"": _sheet(_numbers(evidence)), "-claims": _sheet(_claims(evidence, judged))},
        lines=headlines(seen for _, _, seen in judged),
        data=[
            {"claim": claim.text, "data set": panel.label}
            | {way: _plain(verdict) for way, verdict in seen.items()}
            for claim, panel, seen in judged
        ],
    )


def parts(evidence: Evidence, judged: Judged) -> Iterator[Part]:
    """Write the text of a table."""
    table, used = evidence.table, evidence.used()
    yield Heading(table.title)
    if not used:
        yield Text("Not run.")
        return
    if evidence.plan.quick:
        yield Text(QUICK)
    yield Text(" ".join(headlines(seen for _, _, seen in judged)))
    yield _summary(table, judged)
    yield Rest()
    rows = []
    for claim, panel, seen in judged:
        what = f"{claim.text} ({claim.better} against {claim.than or claim.above}, {claim.column})"
        first, second = (panel.printed.get((x, claim.column)) for x in (claim.better, claim.than))
        printed = _signed(first.mean - second.mean) if first and second else NOTHING
        rows.append([what, panel.label, printed, *map(_verdict, seen.values())])
    caption = "Differences and their 95% interval, paired over trials; similar is within "
    head = ["claim", "data set", "printed", *views(table, table.panels[0])]
    yield Grid(f"{caption}{MARGIN}:", head, rows)
    notes = [*table.notes, *(note for panel in table.panels for note in panel.notes)]
    for panel in table.panels:
        if panel.incomparable:
            notes.append(f"{panel.label}, not comparable: {panel.incomparable}.")
    if notes:
        yield Points(list(dict.fromkeys(notes)))
    for panel in table.panels:
        for variant in panel.variants:
            several = len(panel.variants) > 1
            title = f"{panel.label}, {VARIANTS[variant]}" if several else panel.label
            yield Heading(title, below=True)
            yield from list(_grids(evidence, panel, variant)) or [Text("Not run.")]
    yield Text(_origin(table, used))


def _summary(table: PrintedTable, judged: Judged) -> Grid:
    """Show each claim in a line, with its verdict on every data set."""
    claims: dict[str, list[tuple[Panel, dict[str, Verdict]]]] = {}
    for claim, panel, seen in judged:
        claims.setdefault(claim.text, []).append((panel, seen))
    ways = list(views(table, table.panels[0]))
    rows = [
        [
            text,
            *("; ".join(f"{panel.label} {_mark(seen[way])}" for panel, seen in on) for way in ways),
        ]
        for text, on in claims.items()
    ]
    return Grid(LEGEND, ["claim", *ways], rows)


def _mark(verdict: Verdict) -> str:
    word, reason, found = verdict
    if REVERSE in reason:
        word = REVERSE
    difference = "" if found is None else f" {_signed(found.mean)}"
    return f"{MARKS[word]}{difference}"


def headlines(judged: Iterable[dict[str, Verdict]]) -> list[str]:
    """Count the confirmed claims, in each view of them."""
    words: dict[str, list[str]] = {}
    for seen in judged:
        for way, verdict in seen.items():
            words.setdefault(way, []).append(verdict.word)
    texts = []
    for way, found in words.items():
        open_ = {word: found.count(word) for word in (NOT_COMPARABLE, NOT_RUN) if word in found}
        tested = len(found) - sum(open_.values())
        text = f"{way.capitalize()}: {found.count(CONFIRMED)} of {tested} claims confirmed"
        texts.append(", ".join([text, *(f"{n} {word}" for word, n in open_.items())]) + ".")
    return texts


def entries(
    evidence: Evidence, panel: Panel, variant: str, selection: Selection
) -> Iterator[list[Entry]]:
    """Yield the numbers of a panel, as a list for each line."""
    for line in panel.lines:
        row = []
        for column in panel.columns:
            printed = panel.printed.get((line.label, column.label))
            for decision in evidence.table.decisions if column.decided else [""]:
                view = View(variant, selection, decision)
                values = evidence.values(panel, line.label, column, view)
                known = [value for value in values.values() if value is not None]
                row.append(Entry(line, column, view, printed, known))
        yield row


def _selections(table: PrintedTable) -> list[Selection]:
    """List the selections of epochs. A figure shows all epochs, so one is enough."""
    return ["papers"] if table.drawn else list(SELECTIONS)


def _grids(evidence: Evidence, panel: Panel, variant: str) -> Iterator[Grid]:
    """Make a table for each selection that has trials. Only the CSV has all decisions."""
    drawn = evidence.table.drawn
    for selection in _selections(evidence.table):
        decision = evidence.table.decisions[0] if selection == "papers" else "argmax"
        rows = [
            [entry for entry in row if entry.view.decision in ("", decision, "tuned")]
            for row in entries(evidence, panel, variant, selection)
        ]
        if any(entry.values for row in rows for entry in row):
            # The printed numbers go with the papers' selection only.
            printed = {column for _, column in panel.printed if selection == "papers"}
            lines = [_cells(row, printed, _median if drawn else _mean) for row in rows]
            caption = MEDIAN if drawn else SELECTIONS[selection]
            yield Grid(caption, list(lines[0]), [list(line.values()) for line in lines])


def _cells(
    row: Sequence[Entry], printed: set[str], show: Callable[[Sequence[float]], str]
) -> dict[str, str]:
    """Write the cells of a line under their headings."""
    line = row[0].line
    trials = sorted({len(entry.values) for entry in row if entry.values})
    count = "–".join(dict.fromkeys(map(str, trials[:1] + trials[-1:])))
    cells = {"": f"{line.label} (added)" if line.added else line.label, "trials": count or NOTHING}
    for entry in row:
        label = entry.column.label
        if label in printed:
            cells[f"{label}, printed"] = entry.printed.text if entry.printed else NOTHING
        shown = show(entry.values) if entry.values else NOTHING
        cells[", ".join(filter(None, [label, entry.view.decision]))] = shown
    return cells


def _median(values: Sequence[float]) -> str:
    whole = all(isinstance(value, int) for value in values)  # numbers of epochs
    show = "{:g}".format if whole else number
    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def _mean(values: Sequence[float]) -> str:
    found = interval(values)
    reach = "" if found.trials == 1 else f" ± {number(found.high - found.mean)}"
    return f"{number(found.mean)}{reach}"


def _verdict(verdict: Verdict) -> str:
    word, reason, found = verdict
    if found is None:
        return f"{word}: {reason}" if reason else word
    text = f"{word}: {_signed(found.mean)} ({_signed(found.low)} to {_signed(found.high)})"
    return f"{text}, {reason}" if reason and word != NOT_COMPARABLE else text


def _signed(x: float) -> str:
    text = number(x)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def _plain(verdict: Verdict) -> dict[str, Any]:
    difference = verdict.difference and verdict.difference._asdict()
    return {"verdict": verdict.word, "reason": verdict.reason, "difference": difference}


def _origin(table: PrintedTable, used: Sequence[Record]) -> str:
    """Say how many runs there were, how they ended, and what they were made with."""
    capped = [record["run"]["epochs"] for record in used if record["capped"]]
    caps = f" ({', '.join(map(str, sorted(set(capped))))})" if capped else ""
    diverged = sum(bool(record.get("diverged")) for record in used)
    splits = {record["run"]["split_seed"] for record in used}
    all_of = partial(origins, used)
    trials = "Repetitions" if table.drawn else "± is half the 95% interval over trials, which"
    several = len({record["made"]["commit"] for record in used}) > 1
    days = sorted(record["made"]["at"][:10] for record in used)
    return (
        f"{len(used):,} runs, of which {len(capped):,} reached the cap on epochs{caps} and "
        f"{diverged:,} diverged. {trials} differ in the seed of the training "
        f"{'and in' if len(splits) > 1 else 'but not in'} the split. "
        f"{all_of('{device} ({precision})')}; Python {all_of('{python}')}, "
        f"torch {all_of('{torch}')}, scikit-learn {all_of('{sklearn}')}, "
        f"evalign {all_of('{evalign}')}, "
        f"{'several versions of the code, commits' if several else 'commit'} {all_of('{commit}')}; "
        f"{' to '.join(dict.fromkeys([days[0], days[-1]]))}."
    )


def _sheet(rows: Iterable[dict[str, Any]]) -> Sheet:
    listed = list(rows)
    head = list(listed[0]) if listed else []
    return Sheet(head, [list(row.values()) for row in listed])


def _numbers(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for panel in evidence.table.panels:
        for variant in panel.variants:
            for selection in _selections(evidence.table):
                for row in entries(evidence, panel, variant, selection):
                    for entry in row:
                        line, printed, values = entry.line, entry.printed, entry.values
                        yield {
                            "data set": panel.label,
                            **entry.view._asdict(),
                            "line": line.label,
                            "method": line.method,
                            "added": line.added,
                            "column": entry.column.label,
                            "metric": entry.column.metric,
                            "printed mean": printed.mean if printed else None,
                            "printed std": printed.std if printed else None,
                            "median": statistics.median(values) if values else None,
                            "lowest": min(values, default=None),
                            "highest": max(values, default=None),
                            **(interval(values) if values else NO_INTERVAL)._asdict(),
                        }


def _claims(evidence: Evidence, judged: Judged) -> Iterator[dict[str, Any]]:
    for claim, panel, seen in judged:
        for way, (word, reason, difference) in seen.items():
            yield {
                "claim": claim.text,
                "better": claim.better,
                "than": claim.than or claim.above,
                "column": claim.column,
                "relation": claim.relation,
                "data set": panel.label,
                "seen": way,
                **views(evidence.table, panel)[way]._asdict(),
                "verdict": word,
                "reason": reason,
                **(difference or NO_INTERVAL)._asdict(),
            }
