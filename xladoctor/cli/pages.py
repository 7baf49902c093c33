"""What the commands about rules share: the rules that there are, and what machines are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xladoctor.catalogue import Page


def load_plugins(*, allow: bool) -> None:
    """Load the rules that the settings of the current folder name, if they are trusted."""
    from pathlib import Path

    from xladoctor import config
    from xladoctor.cli import trust
    from xladoctor.lint import plugins

    found = config.find(Path())
    settings = config.read(found) if found is not None else config.Settings()
    settings = trust.with_trusted_plugins(settings, allow=allow)
    plugins.load(settings.plugins, settings.root, f"{settings.file}: plugins")
    trust.tell_withheld(settings)


def as_json(page: Page) -> dict[str, Any]:
    """What machines are told of a rule; ``text`` is the page, Markdown."""
    return {
        "code": page.code,
        "name": page.name,
        "severity": page.severity.value,
        "summary": page.summary,
        "fix": page.fix,
        "confidence": page.confidence,
        "found_by": list(page.found_by),
        "default": page.default,
        "select": page.select or page.code if not page.default else None,
        "since": page.since,
        "url": page.url,
        "text": page.readable,
    }
