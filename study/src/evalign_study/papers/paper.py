"""A table of a paper as a table of the study."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evalign_study.papers import render
from evalign_study.papers.evidence import Evidence
from evalign_study.papers.plan import QUICK_TRIALS, Plan, on, quick_slice
from evalign_study.pipeline.table import Findings, StudyTable
from evalign_study.records.made import Record
from evalign_study.records.run import Run


class PaperTable(StudyTable):
    """A table of a paper, run again and compared with what was printed.

    Args:
        plan: the runs of the table.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.name, self.title, self.quick = plan.table.name, plan.table.title, plan.quick

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(panel.dataset for panel in self.plan.table.panels))

    @property
    def claims(self) -> list[str]:
        return [claim.text for claim in self.plan.table.claims]

    def part(
        self,
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> "PaperTable":
        printed = on(self.plan.table, datasets)
        if quick:
            printed = quick_slice(printed, smallest=not datasets)
        usual = QUICK_TRIALS if quick else self.plan.trials
        return PaperTable(Plan(printed, trials or usual, quick))

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        """Yield the grids, then the trials of the settings that they chose."""
        yield self.plan.grids()
        yield self.plan.all_runs(records)

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        return render.findings(Evidence(self.plan, records))
