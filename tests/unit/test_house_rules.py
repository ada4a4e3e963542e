"""What a reader of the source may count on: files of one topic, and one class for one name."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("study/src/**/*.py")])
LONGEST = 350  # lines
# The experiment of a paper is one file, read from top to bottom, with names of its own.
PROTOCOLS = ROOT / "study" / "src" / "evalign_study" / "protocols"
TOPICS = [file for file in SOURCES if PROTOCOLS not in file.parents]


def test_no_file_is_long():
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in TOPICS}
    long = {file.relative_to(ROOT).as_posix() for file, n in lines.items() if n > LONGEST}
    assert len(lines) > 100  # both packages were found
    assert not long


def test_no_two_classes_have_one_name():
    """The rule covers both packages together. Private classes are exempt."""
    classes = Counter(
        statement.name
        for file in TOPICS
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_")
    )
    assert classes["Confusion"] == 1
    assert not {name for name, count in classes.items() if count > 1}
