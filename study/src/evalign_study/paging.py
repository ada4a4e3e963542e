"""The page of a protocol's table: what was run and how, every line, every claim; and its CSV."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalign_study.planning import Cell, Known
from evalign_study.standing import Judgement, Score, judgements, printed_of, scores

VARIANTS = {"paper": "as in the paper", "strict": "strictly"}
HEAD = ["panel", "variant", "line", "column", "printed", "ours", "n", "capped", "runs", "state"]
NOTHING = "–"


def write(
    name: str,
    plan: Mapping[str, Any],
    cells: Sequence[Cell],
    known: Known,
    folder: Path,
    *,
    quick: bool = False,
) -> list[str]:
    """Write NAME.md, NAME.csv and NAME-claims.csv; return what the terminal shows."""
    printed = printed_of(name)
    found = list(scores(cells, known, printed))
    verdicts = list(judgements(found, printed))
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(page(plan, printed, found, verdicts, quick=quick)).replace("*", r"\*")
    (folder / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    _csv(folder / f"{name}.csv", HEAD, map(_row, found))
    head = ["claim", "panel", "variant", "verdict", "reason", "difference", "low", "high", "n"]
    _csv(folder / f"{name}-claims.csv", head, map(_claim, verdicts))
    return [plan["title"], *summary(found, verdicts)]


def page(
    plan: Mapping[str, Any],
    printed: Mapping[str, Any],
    found: Sequence[Score],
    verdicts: Sequence[Judgement],
    *,
    quick: bool,
) -> Iterator[str]:
    """Write the parts of the page."""
    yield f"## {plan['title']}"
    if quick:
        yield "A quick look, to see that it runs: its numbers mean nothing."
    yield _grid(["how it is run", ""], _protocol(plan))
    yield " ".join(summary(found, verdicts))
    if printed.get("notes"):
        yield "\n".join(f"- {note}" for note in printed["notes"])
    if verdicts:
        rows = [[v.text, _label(plan, v.panel), VARIANTS[v.variant], _verdict(v)] for v in verdicts]
        yield _grid(["claim", "data set", "", "difference (95% interval): verdict"], rows)
    for panel in dict.fromkeys(score.panel for score in found):
        yield f"### {_label(plan, panel)}"
        why = printed.get("panels", {}).get(panel, {}).get("incomparable")
        if why:
            yield f"Not comparable: {why}."
        for variant in dict.fromkeys(s.variant for s in found if s.panel == panel):
            those = [s for s in found if (s.panel, s.variant) == (panel, variant)]
            yield f"{VARIANTS[variant].capitalize()}, mean ± standard deviation over trials:"
            yield _lines(those)


def summary(found: Sequence[Score], verdicts: Sequence[Judgement]) -> list[str]:
    """Count runs and verdicts."""
    runs = {(s.panel, s.line, s.variant): s.runs for s in found}.values()
    done, wanted, capped = (sum(getattr(r, x) for r in runs) for x in ("done", "wanted", "capped"))
    told = [f"{done} of {wanted} runs are there, {capped} of them capped."]
    for variant, title in VARIANTS.items():
        those = [v.word for v in verdicts if v.variant == variant]
        if those:
            counts = [f"{those.count(word)} {word}" for word in dict.fromkeys(those)]
            told.append(f"{title.capitalize()}: of {len(those)} claims {', '.join(counts)}.")
    return told


def _protocol(plan: Mapping[str, Any]) -> list[list[str]]:
    seeds = plan["seeds"]
    rows = [[name, str(value)] for name, value in plan["settings"].items()]
    rows += [
        [f"{name}, searched", ", ".join(map(str, x))] for name, x in plan.get("grid", {}).items()
    ]
    return [*rows, ["trials", str(len(seeds["trials"]))]]


def _lines(those: Sequence[Score]) -> str:
    columns = list(dict.fromkeys(score.column for score in those))
    head = ["", *(f"{c}, {kind}" for c in columns for kind in ("printed", "ours"))]
    rows = []
    for line in dict.fromkeys(score.line for score in those):
        own = [score for score in those if score.line == line]
        numbers = [x or NOTHING for score in own for x in (score.printed, score.ours)]
        runs = own[0].runs
        state = runs.obstacle or "comparable"
        rows.append([line, *numbers, str(len(runs.trials)), f"{runs.capped} / {runs.done}", state])
    return _grid([*head, "n", "capped", ""], rows)


def _label(plan: Mapping[str, Any], panel: str) -> str:
    return plan["panels"][panel]["label"]


def _verdict(verdict: Judgement) -> str:
    word = f"{verdict.word} ({verdict.reason})" if verdict.reason else verdict.word
    if verdict.difference is None:
        return word
    mean, low, high, _ = verdict.difference
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f}): {word}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(score: Score) -> list[Any]:
    runs = score.runs
    about = [score.panel, score.variant, score.line, score.column, score.printed, score.ours]
    return [*about, len(runs.trials), runs.capped, f"{runs.done}/{runs.wanted}", runs.obstacle]


def _claim(verdict: Judgement) -> list[Any]:
    about = [verdict.text, verdict.panel, verdict.variant, verdict.word, verdict.reason]
    return [*about, *(verdict.difference or ["", "", "", ""])]


def _csv(path: Path, head: Sequence[str], rows: Any) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
