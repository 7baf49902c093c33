"""The ``xladoctor`` command: finds the subcommand; what goes wrong ends at ``boundary``."""

from __future__ import annotations

import atexit
import gc
import importlib
import sys
from typing import TYPE_CHECKING

import click

from xladoctor import __version__
from xladoctor.cli import boundary

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Subcommand to "module:attribute"; a module is imported only when its command is used, so that
#: ``lint`` never pays for ``profile``.
_COMMANDS = {
    "lint": "xladoctor.cli.lint:lint",
    "profile": "xladoctor.cli.profile:profile",
    "report": "xladoctor.cli.report:report",
    "graph": "xladoctor.cli.graph:graph",
    "plan": "xladoctor.cli.plan:plan",
    "verify": "xladoctor.cli.verify:verify",
    "compare": "xladoctor.cli.compare:compare",
    "compact": "xladoctor.cli.compact:compact",
    "watch": "xladoctor.cli.watch:watch",
    "query": "xladoctor.cli.query:query",
    "treat": "xladoctor.cli.treat:treat",
    "explain": "xladoctor.cli.explain:explain",
    "rules": "xladoctor.cli.rules:rules",
    "probe": "xladoctor.cli.probe:probe",
    "server": "xladoctor.cli.server:server",
    "env": "xladoctor.cli.env:env",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Read about a code with 'xladoctor explain XLA101'.",
)
@click.version_option(__version__, "-V", "--version", prog_name="xladoctor")
def cli() -> None:
    """Find what makes PyTorch/XLA training slow, wrong or stuck."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; ``sys.argv`` by default.

    Returns:
        The exit code: what the subcommand says, 2 for anything abnormal, 130 after Ctrl-C.
    """
    boundary.see_streams()
    command = sys.argv[1:2] if argv is None else []
    if command == ["lint"] or command == ["server"]:
        from xladoctor.lint import asked

        # Python need not look through trees and models for circles as soon as they are linted.
        gc.set_threshold(asked.OBJECTS, *gc.get_threshold()[1:])
    if command == ["lint"]:
        # At its end Python looks through all there is for circles: a tenth of a short run's time.
        # Other commands load extensions (DuckDB's) that complain of what outlives them.
        atexit.register(gc.freeze)
    try:
        try:
            code = cli.main(args=argv, prog_name="xladoctor", standalone_mode=False)
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        boundary.flush()
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (Exception, SystemExit) as error:  # noqa: BLE001  (this is the boundary)
        if _is_broken_pipe(error):
            # The reader of our output went away (``xladoctor ... | head``); nothing is wrong.
            boundary.leave_stdout()
            return 141
        return _failed(error, argv)
    return code if isinstance(code, int) else 0


def _is_broken_pipe(error: BaseException) -> bool:
    """Rich makes a SystemExit of it."""
    at_exit = isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)
    return at_exit or isinstance(error, BrokenPipeError)


def _failed(error: BaseException, argv: Sequence[str] | None) -> int:
    code = boundary.told(error, argv)
    try:
        boundary.flush()
    except (OSError, ValueError):
        boundary.leave_stdout()
    return code
