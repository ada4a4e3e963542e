"""docs/reference/cli.md lists every command and option, in the words of `--help`."""

from typer.main import get_command

from evalign.cli import commands
from evalign.cli.app import app
from tests.docs.test_examples import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
EVERYWHERE = {"json", "quiet", "help"}


def options(command):
    """Write the table of a command's options, if it has any."""
    for option in command.params:
        if option.param_type_name == "option" and option.opts[-1].strip("-") not in EVERYWHERE:
            names = "`, `".join([*option.opts, *option.secondary_opts])
            meaning, _, default = option.help.rstrip(".").partition(" (default: ")
            if option.required:
                default = "required"
            elif isinstance(option.default, str | int) and not isinstance(option.default, bool):
                default = str(option.default)
            yield f"| `{names}` | {meaning} | {default.removesuffix(')')} |"


def reference():
    """Write the part of the page that lists the commands."""
    for name, command in get_command(app).commands.items():
        own = [x.metavar for x in command.params if x.param_type_name == "argument"]
        yield f"## {' '.join(['evalign', name, *own])}\n"
        yield f"{getattr(commands, name).__doc__.splitlines()[0]}\n"
        rows = list(options(command))
        head = ["| option | meaning | default |", "| --- | --- | --- |"] if rows else []
        yield "\n".join([*head, *rows, ""])


def test_the_page_lists_every_option():
    """If not, run: python -m tests.docs.test_cli_reference."""
    assert "\n".join(reference()) in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition("## evalign ")[0]
    PAGE.write_text(head + "\n".join(reference()), encoding="utf-8")
