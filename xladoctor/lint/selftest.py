"""A rule's page as its test: what ``bad``, ``good`` and ``fixed`` blocks promise, checked.

``xladoctor rules test`` runs it; a project's own test suite can call :func:`check` as well.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from xladoctor.lint import engine, fixes
from xladoctor.lint.asked import UNUSED, LintOptions
from xladoctor.lint.sources import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.catalogue import Example, Page
    from xladoctor.lint.asked import Result

_MARK = re.compile(r"#\s*error:(?P<codes>(\s*\[[A-Z]+\d+\])+)\s*$")


def check(page: Page) -> list[str]:
    """What is wrong with the examples of a rule; empty if they all do what the page says.

    A ``bad`` block is found by the rule at the lines that end with ``# error: [CODE]`` and nowhere
    else; a ``good`` block is silent; a ``fixed`` block is what the fix makes of the ``bad`` block
    before it, both without these comments.
    """
    wrong = list(_blocks(page))
    kinds = {example.kind for example in page.examples}
    if not {"bad", "good"} <= kinds:
        missing = " and no ".join(sorted({"bad", "good"} - kinds))
        wrong.append(f"the page has no {missing} block: without one the rule is not tested")
    return wrong


def _blocks(page: Page) -> Iterator[str]:
    bad: Example | None = None
    for example in page.examples:
        where = f"block at line {example.row}"
        if example.kind == "fixed":
            if bad is None:
                yield f"{where}: a fixed block without a bad one before it"
                continue
            done = fixes.fix(
                bad.unmarked.encode(), "page.py", lambda source: _lint(source, page), unsafe=True
            )
            if done.data.decode() != example.unmarked:
                yield f"{where}: the fix makes something else:\n{done.data.decode()}"
            continue
        result = _lint(Source("page.py", example.source), page)
        yield from (f"{where}: {failure}" for failure in result.failures)
        found = {finding.locations[0].row for finding in result.findings}
        wanted = _marked(example, page.code) if example.kind == "bad" else set()
        if example.kind == "bad":
            bad = example
            if not wanted:
                yield f"{where}: a bad block without a line that ends with '# error: [{page.code}]'"
        for row in sorted(wanted - found):
            yield f"{where}: line {example.row + row - 1} is not found"
        for row in sorted(found - wanted):
            yield f"{where}: line {example.row + row - 1} is found and must not be"


def _lint(source: Source, page: Page) -> Result:
    # What suppresses nothing is known when all other rules were asked.
    codes = None if page.code == UNUSED else frozenset({page.code})
    result = engine.lint(source, LintOptions(codes=codes))
    own = tuple(item for item in result.findings if item.code == page.code)
    return dataclasses.replace(result, findings=own)


def _marked(example: Example, code: str) -> set[int]:
    rows = enumerate(example.source.splitlines(), 1)
    return {
        row for row, line in rows if (mark := _MARK.search(line)) and f"[{code}]" in mark["codes"]
    }
