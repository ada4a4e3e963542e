"""Run `evalign-study` as a user would."""

from functools import partial

from evalign_study.cli import main

from tests.ground.cli import commands

invoke, done, refused = (
    partial(command, program=main) for command in (commands.invoke, commands.done, commands.refused)
)
