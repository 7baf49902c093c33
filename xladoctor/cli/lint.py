"""``xladoctor lint``."""

from __future__ import annotations

import click


@click.command()
@click.argument("paths", nargs=-1)
def lint(paths: tuple[str, ...]) -> int:
    """Lint PATHS."""
    from pathlib import Path

    from xladoctor.lint import engine, sources

    left = 0
    for path in sources.discover(paths or (".",), sources.Search(root=Path())):
        result = engine.lint(sources.read(path))
        for finding in result.findings:
            place = finding.locations[0]
            click.echo(
                f"{place.filename}:{place.row}:{place.column}: {finding.code} {finding.message}"
            )
        for failure in result.failures:
            click.echo(str(failure), err=True)
        left += len(result.findings)
    return 1 if left else 0
