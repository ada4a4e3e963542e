"""Records beside what was printed: what is said of a table, and the files it is said in."""

import csv
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalign.core.checks import require
from evalign.report.summary import number
from evalign_study.papers.evidence import Evidence, Selection, View
from evalign_study.papers.figures import figures
from evalign_study.papers.formats import Grid, Heading, Part, Points, Text, html, markdown
from evalign_study.papers.tables import MARGIN, Column, Line, Panel, Printed, Table
from evalign_study.papers.verdicts import (
    CONFIRMED,
    NOT_COMPARABLE,
    NOT_RUN,
    Interval,
    Verdict,
    interval,
    verdicts,
    views,
)
from evalign_study.records.results import Record

VARIANTS = {"paper": "as in the papers", "sound": "sound"}
SELECTIONS: dict[Selection, str] = {
    "papers": "Epoch and setting with the lowest validation loss, as in the papers:",
    "strict": "Epoch and setting with the best metric on the validation rows:",
}
MEDIAN = "Median of the repetitions, as in the paper (the lowest to the highest):"
NOTHING = "–"
NO_INTERVAL = Interval(math.nan, math.nan, math.nan, 0)


class Entry(NamedTuple):
    """A number of ours, and the printed one it stands beside."""

    line: Line
    column: Column
    view: View
    printed: Printed | None
    values: Sequence[float]


def write(evidence: Evidence, folder: Path) -> list[Path]:
    """NAME.md, NAME.html, NAME.csv with every number, and NAME-claims.csv with every verdict."""
    name, said = evidence.table.name, list(parts(evidence))
    folder.mkdir(parents=True, exist_ok=True)
    page = html(evidence.table.title, said, figures(evidence))
    for file, text in ((f"{name}.md", markdown(said)), (f"{name}.html", page)):
        (folder / file).write_text(text, encoding="utf-8")
    tables = {f"{name}.csv": _numbers(evidence), f"{name}-claims.csv": _claims(evidence)}
    for file, rows in tables.items():
        with (folder / file).open("w", encoding="utf-8", newline="") as out:
            first = next(rows)
            writer = csv.DictWriter(out, list(first), lineterminator="\n")
            writer.writeheader()
            writer.writerows([first, *rows])
    return [folder / file for file in (f"{name}.md", f"{name}.html", *tables)]


def fill(page: str, name: str, text: str) -> str:
    """A Markdown page with the text between the marks of a table.

    Examples:
        >>> fill("A <!-- t --> B <!-- end of t --> C", "t", "new")
        'A <!-- t -->\\n\\nnew\\n<!-- end of t --> C'
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, marked, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    require(bool(marked and closed), "reproduce", "page", f"hold {start} and {end}", "neither")
    return f"{before}{start}\n\n{text}\n{end}{after}"


def parts(evidence: Evidence) -> Iterator[Part]:
    """All that is said of a table."""
    table, used = evidence.table, evidence.used()
    yield Heading(table.title)
    if not used:
        yield Text("Not run.")
        return
    if evidence.plan.quick:
        yield Text("A quick look, to see that it runs: its numbers mean nothing.")
    judged = list(verdicts(evidence))
    yield from (Text(text) for text in headlines(seen for _, _, seen in judged))
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


def headlines(judged: Iterable[dict[str, Verdict]]) -> list[str]:
    """How many claims are confirmed, in each way to look at them."""
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
    """The numbers of a panel, a list for each line."""
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


def _selections(table: Table) -> list[Selection]:
    """A figure is of all epochs, and selects none."""
    return ["papers"] if table.drawn else list(SELECTIONS)


def _grids(evidence: Evidence, panel: Panel, variant: str) -> Iterator[Grid]:
    """For each selection a table, if there are trials. All decisions are in the CSV."""
    drawn = evidence.table.drawn
    for selection in _selections(evidence.table):
        decision = evidence.table.decisions[0] if selection == "papers" else "argmax"
        rows = [
            [entry for entry in row if entry.view.decision in ("", decision, "tuned")]
            for row in entries(evidence, panel, variant, selection)
        ]
        if any(entry.values for row in rows for entry in row):
            # What is printed was selected as in the papers.
            printed = {column for _, column in panel.printed if selection == "papers"}
            lines = [_cells(row, printed, _median if drawn else _mean) for row in rows]
            caption = MEDIAN if drawn else SELECTIONS[selection]
            yield Grid(caption, list(lines[0]), [list(line.values()) for line in lines])


def _cells(
    row: Sequence[Entry], printed: set[str], show: Callable[[Sequence[float]], str]
) -> dict[str, str]:
    """The cells of a line under their headings."""
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
    whole = all(isinstance(value, int) for value in values)  # epochs are
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


def _origin(table: Table, used: Sequence[Record]) -> str:
    """How many runs, how they ended, and what they were made with."""
    capped = [record["run"]["epochs"] for record in used if record["capped"]]
    caps = f" ({', '.join(map(str, sorted(set(capped))))})" if capped else ""
    diverged = sum(bool(record.get("diverged")) for record in used)
    splits = {record["run"]["split_seed"] for record in used}
    made = [record["made"] for record in used]

    def all_of(text: str) -> str:
        return ", ".join(sorted({text.format_map(of) for of in made}))

    trials = "Repetitions" if table.drawn else "± is half the 95% interval over trials, which"
    several = len({of["commit"] for of in made}) > 1
    days = sorted(of["at"][:10] for of in made)
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


def _claims(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for claim, panel, seen in verdicts(evidence):
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
