"""``xladoctor explain CODE...``: a rule's page."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from xladoctor.cli.rules import allow_plugins

if TYPE_CHECKING:
    from xladoctor.catalogue import Page


@click.command(epilog="A rule can be given by its code (XLA101) or its name (host-sync-in-step).")
@click.argument("codes", nargs=-1, required=True, metavar="CODE...")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How to show the page.",
)
@allow_plugins
def explain(codes: tuple[str, ...], output_format: str, allow_plugins: bool) -> int:
    """Explain what a rule finds, why it matters and what to write instead."""
    from xladoctor import catalogue
    from xladoctor.cli.pages import as_json, load_plugins

    load_plugins(allow=allow_plugins)
    # All are looked up before the first is shown: a wrong code must not be lost behind pages.
    pages = list(dict.fromkeys(catalogue.page(code) for code in codes))
    if output_format == "json":
        shown = [as_json(page) for page in pages]
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    elif output_format == "text" and sys.stdout.isatty():
        _render(pages)
    else:
        click.echo("\n".join(page.readable.strip() + "\n" for page in pages), nl=False)
    return 0


def _render(pages: list[Page]) -> None:
    """Show pages on a terminal; the facts in the TOML block become one line."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for page in pages:
        title = page.text.partition("\n")[0]
        fix = {"none": "no fix", "safe": "safe fix", "unsafe": "unsafe fix"}[page.fix]
        facts = f"*{page.severity.value} · found by {', '.join(page.found_by)} · {fix}*"
        # Rich knows the language of a block by its first word alone: ``py bad`` is Python to it.
        console.print(Markdown(f"{title}\n\n{facts}\n\n{page.body}"))
        console.print(f"\n{page.url}\n", style="dim", highlight=False)
