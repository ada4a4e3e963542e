"""The records that are kept in the repository."""

import re
import subprocess
from pathlib import Path

from evalign_study.records.made import NOT_IN_HISTORY

ROOT = Path(__file__).parents[3]
FORM = re.compile(
    rf"[0-9a-f]{{7,40}}|([0-9a-f]{{7,40}}(-dirty)?|unknown){re.escape(NOT_IN_HISTORY)}"
)


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)


def test_a_commit_that_cannot_be_checked_out_is_marked(committed):
    """In a copy without the whole history only the form can be checked."""
    commits = {record["made"]["commit"] for record in committed.values()}
    for commit in commits:
        assert FORM.fullmatch(commit), commit
    if git("rev-parse", "--is-shallow-repository").stdout.strip() == "false":
        for commit in commits:
            found = git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
            assert found != commit.endswith(NOT_IN_HISTORY), commit
