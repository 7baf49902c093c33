"""What ``xladoctor lint`` writes into the user's files, or shows that it would."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xladoctor import visible
from xladoctor.errors import UsageError
from xladoctor.lint.asked import UNUSED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from xladoctor.lint.asked import FileResult


def say(text: str) -> None:
    """A line for the person, beside the findings."""
    click.echo(visible.guarded(visible.line(text)), err=True)


def console_on(stream: Any) -> Console:
    """A console that shows texts as they are, on a stream that no log viewer misreads."""
    from rich.console import Console

    return Console(file=visible.Guarded(stream), highlight=False, emoji=False, markup=False)  # type: ignore[arg-type]


def write(results: Sequence[FileResult], *, to_stdout: bool) -> int:
    """Write what the fixes made; the files that cannot be written do not stop the others."""
    applied = 0
    problems = []
    for result in results:
        if to_stdout:
            sys.stdout.buffer.write(result.fixed or result.before)
        elif result.fixed is not None and result.fixed != result.before:
            problem = _replace(Path(result.filename), result.before, result.fixed)
            if problem is not None:
                problems.append(f"{result.filename}: {problem}")
                continue
        applied += result.applied
    if problems:
        raise UsageError("; ".join(problems))
    return applied


def _replace(path: Path, before: bytes, after: bytes) -> str | None:
    """Write the fixed file; what stood in the way, if anything did."""
    try:
        now = path.read_bytes()
        if now == after:
            return None  # fixed under another name: a link to it was given too
        if now != before:
            return "changed while it was linted, so it was left alone: run the command again"
        from xladoctor.lint import fixes

        fixes.write(path, after)
    except OSError as error:
        return f"the fixes cannot be written: {error.strerror or error}"
    return None


def show_fixes(results: Sequence[FileResult]) -> None:
    """Say what was fixed, file by file."""
    for result in results:
        if not result.made:
            continue
        say(f"{result.filename}:")
        counted = Counter(
            (item.code, item.name, item.fix.message) for item in result.made if item.fix
        )
        for (code, name, message), number in sorted(counted.items()):
            say(f"  {number} x {code} {name}: {message}")


def diff(results: Sequence[FileResult]) -> int:
    """Show what the fixes would change; 1 if there is anything."""
    from rich.text import Text

    from xladoctor.lint import sources

    console = console_on(sys.stdout)
    count = 0
    for result in results:
        if result.fixed is None or result.fixed == result.before:
            continue
        count += result.applied
        for line in sources.difference(result.filename, result.before, result.fixed):
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            console.print(Text(visible.code(line), style), soft_wrap=True)
    say(f"Would fix {count} finding{'' if count == 1 else 's'}." if count else "No fixes.")
    return 1 if count else 0


def add_noqa(results: Sequence[FileResult]) -> int:
    """Write a noqa comment to every line with a finding."""
    from xladoctor.lint import sources

    count = 0
    for result in results:
        # A comment is no remedy for a comment that silences nothing.
        findings = [item for item in result.result.findings if item.code != UNUSED]
        if not findings:
            continue
        if result.filename.endswith(".ipynb") or result.filename == "-":
            say(f"warning: {result.filename}: --add-noqa only writes to .py files")
            continue
        source = sources.from_bytes(result.before, result.filename)
        if source.unreadable or sources.syntax_error(source.text) is not None:
            say(f"warning: {result.filename}: does not parse, no comment was added")
            continue
        from xladoctor.lint import fixes, suppressions

        text = suppressions.add_noqa(source, findings)
        fixes.write(Path(result.filename), text.encode(source.encoding))
        count += len({item.locations[0].row for item in findings})
    say(f"Added {count} noqa comment{'' if count == 1 else 's'}.")
    return 0
