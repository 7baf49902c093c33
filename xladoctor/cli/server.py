"""``xladoctor server``: the language server, for editors."""

from __future__ import annotations

import sys

import click

from xladoctor.errors import MissingExtra


@click.command(
    short_help="The language server, for editors.",
    epilog="How to set up VS Code, Neovim and PyCharm: docs/editors.md.",
)
def server() -> int:
    """Speak the Language Server Protocol on standard input and output.

    Diagnostics while typing, the rule's page on hover, fixes and suppressions as quick fixes, in
    Python files and notebooks; settings are those of 'xladoctor lint'.
    """
    try:
        from xladoctor.server.serve import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise MissingExtra("editors", "pygls", "server") from None
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not stand between the messages
    return serve(stdin, stdout)
