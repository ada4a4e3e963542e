"""Runs the Python blocks of README.md and docs/, and the examples in the docstrings of src/."""

import doctest
import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted(ROOT.glob("docs/**/*.md"))]
MODULES = sorted(ROOT.glob("src/**/*.py"))

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGE = Sybil([PythonCodeBlockParser(doctest_optionflags=FLAGS)])
DOCSTRING = Sybil([DocTestParser(FLAGS), PythonCodeBlockParser()])


def name(path):
    return path.relative_to(ROOT).as_posix()


# One test per file, because the blocks of a page build on each other.
@pytest.mark.parametrize("path", PAGES + MODULES, ids=name)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in (PAGE if path.suffix == ".md" else DOCSTRING).parse(path):
        example.evaluate()


def test_readme_has_an_example():
    assert list(PAGE.parse(README))


# The parser knows a block of Python by the bare word; another spelling would not be run.
@pytest.mark.parametrize("path", PAGES + MODULES, ids=name)
def test_python_blocks_are_spelled_python(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"(?im)^[ \t]*(?:`{3,}|~{3,})(?!python$)[ \t{.]*py.*$", text) == []
