"""Run the Python blocks and `evalign` commands of README.md and docs/, and src/'s docstrings.

A block spelled `output` holds what the blocks before it print.
"""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from evalign_study.cli import main as study
from sybil import Sybil
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from evalign.cli import compare as comparison
from evalign.cli import fit as fitting
from evalign.cli import main
from tests import tolerances

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OWN_FILES = [README, ROOT / "docs" / "cli" / "howto.md"]  # they speak of the reader's own files
PAGES = [README, *sorted(ROOT.glob("docs/**/*.md"))]
MODULES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("study/src/**/*.py")])
EXAMPLES = [x for x in PAGES + MODULES if re.search("```|>>>", x.read_text(encoding="utf-8"))]

PROGRAMS = {"evalign": main, "evalign-study": study}
DECIMAL = re.compile(r"-?\d+\.\d+")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_commands(example):
    """Run the lines that call evalign; the others (git, pip, make) would change this machine."""
    for line in example.parsed.splitlines():
        name, *arguments = shlex.split(line, comments=True) or [""]
        if name in PROGRAMS:
            with pytest.raises(SystemExit) as end:
                PROGRAMS[name](arguments)
            assert end.value.code == 0, line
    example.namespace["capsys"].readouterr()  # what a command says is not a page's output


def check_output(example):
    """Compare with what was printed since the last such block, decimals with a tolerance."""
    texts = example.parsed, example.namespace["capsys"].readouterr().out
    shown, printed = (DECIMAL.sub("#", text).split() for text in texts)
    assert shown == printed
    shown, printed = ([float(x) for x in DECIMAL.findall(text)] for text in texts)
    assert shown == pytest.approx(printed, abs=tolerances.PRINTED)


PAGE = Sybil(
    [
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        CodeBlockParser("bash", run_commands),
        CodeBlockParser("output", check_output),
    ]
)
DOCSTRING = Sybil([DocTestParser(FLAGS), PythonCodeBlockParser()])


def name(path):
    return path.relative_to(ROOT).as_posix()


# One test per file, because the blocks of a page build on each other.
@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_examples_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A command with --time would go on as long as it may.
    monkeypatch.setattr(fitting, "REPORT_TIME", 3600.0)
    monkeypatch.setattr(fitting, "LEAST_TIME", 0.3)
    monkeypatch.setattr(comparison, "DEFAULT", ("linear",))  # all are compared in tests/cli
    monkeypatch.setattr(comparison, "RECIPES", {"aligned": None})
    if path in OWN_FILES:
        rows = [f"{x % 7 + x / 200},{'yes' if x % 7 > 4 else 'no'}" for x in range(120)]
        for file in ("data.csv", "new.csv"):
            Path(file).write_text("\n".join(["x,label", *rows]))
        yes = [x % 11 / 11 for x in range(120)]
        scores = [f"{p},{1 - p},{'yes' if x % 7 < 7 * p else 'no'}" for x, p in enumerate(yes)]
        Path("scores.csv").write_text("\n".join(["yes,no,label", *scores]))
    document = (PAGE if path.suffix == ".md" else DOCSTRING).parse(path)
    document.namespace["capsys"] = capsys
    for example in document:
        example.evaluate()


def test_installation_is_told_in_one_way():
    told = [page.read_text(encoding="utf-8") for page in (README, ROOT / "docs" / "index.md")]
    readme, index = (
        re.search(r"^## Install\n(.*?)\n*(^## |\Z)", x, re.DOTALL | re.M)[1] for x in told
    )
    assert readme == index


def test_readme_has_an_example_and_its_links_lead_somewhere():
    assert list(PAGE.parse(README))
    links = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).is_file()] == []


# The parser finds a Python block by the bare word, so a block spelt otherwise would not run.
def test_python_blocks_are_spelled_python():
    for path in PAGES + MODULES:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"(?im)^[ \t]*(?:`{3,}|~{3,})(?!python$)[ \t{.]*py.*$", text) == [], path
