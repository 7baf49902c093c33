"""Writes docs/commands.md: every command with its help, as the program prints it.

``python docs/reference.py``; ``tests/test_docs.py`` holds the page to what the program prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xladoctor.cli.app import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
_WIDTH = 100


def reference() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "As `xladoctor COMMAND --help` prints them (written by `python docs/reference.py`)."
    yield ""
    yield "Exit codes: 0 nothing found; 1 findings, or a limit was broken; 2 xladoctor could not do"
    yield "its work. `profile` passes on the command's own exit code if it is not 0."
    # With the settings of the program: a command keeps the help option that it is asked for first.
    settings = {**cli.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    top = click.Context(cli, info_name="xladoctor", **settings)
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        assert command is not None
        yield from _command(command, click.Context(command, top, name, max_content_width=_WIDTH))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield ""
    yield f"## {context.command_path}"
    yield ""
    yield "```text"
    yield from (line.rstrip() for line in command.get_help(context).splitlines())
    yield "```"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            inner = click.Context(found, context, name, max_content_width=_WIDTH)
            yield from _command(found, inner)


if __name__ == "__main__":
    PAGE.write_text(reference())
