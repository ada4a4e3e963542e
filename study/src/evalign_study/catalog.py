"""All tables of the study, by name."""

from evalign_study.decided.table import DecisionsTable
from evalign_study.goals.table import GoalsTable
from evalign_study.modelled.table import ModelsTable
from evalign_study.papers import tables as papers
from evalign_study.papers.paper import PaperTable
from evalign_study.papers.plan import Plan
from evalign_study.pipeline.table import StudyTable
from evalign_study.refusals import nearest, require
from evalign_study.suite.recipe import RecipeTable
from evalign_study.tasks import table as tasks


def tables() -> dict[str, StudyTable]:
    """List all tables: those of the papers, then our own."""
    printed = map(papers.table, papers.names())
    found: list[StudyTable] = [PaperTable(Plan(table, table.trials)) for table in printed]
    ours = [RecipeTable(), DecisionsTable(), ModelsTable(), tasks.dense(), tasks.many_labels()]
    return {table.name: table for table in [*found, *ours, GoalsTable()]}


def named(name: str) -> list[StudyTable]:
    """Look up one table, or list every table for "all"."""
    known = tables()
    if name == "all":
        return list(known.values())
    names = [*known, "all"]
    allowed, cure = f"be one of {', '.join(names)}", nearest(name, names)
    require(name in known, "evalign-study", "table", allowed, repr(name), cure)
    return [known[name]]
