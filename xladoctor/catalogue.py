"""The rule pages of ``rules/`` and the fact tables beside them.

A page is documentation, the text of ``xladoctor explain``, the help of SARIF and an executable
test in one. ``rules/README.md`` describes the form. The pages ship inside the wheel as
``xladoctor/_rules``; in a checkout or an editable install they are read from ``rules/`` beside
the package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from xladoctor import patterns
from xladoctor.errors import CatalogueError, UsageError
from xladoctor.findings import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.abc import Traversable

#: Where a page can be read on the web; {stem} is the page's file name without ending.
PAGE_URL = "https://github.com/xladoctor/xladoctor/blob/main/rules/{stem}.md"

_TITLE = re.compile(r"^# (?P<name>[a-z0-9-]+) \((?P<code>XLA\d{3})\)\s*$")
_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
#: In a block that shows what a fix makes, the marks of what was wrong before are for tests only.
#: What to write instead: nothing in it is marked, though a test may find something there.
_GOOD = patterns.lazy(r"^```py (?:fixed|good)[ ]*\n.*?^```\s*?$", re.MULTILINE | re.DOTALL)
#: The examples that only the tests need, up to the next heading (or the end).
_TESTS = patterns.lazy(r"^## Tests\n(?:^(?!## ).*\n?)*", re.MULTILINE)
_CODES = patterns.lazy(r"[A-Z]+\d+")
_MARK = patterns.lazy(r"[ ]*#[ ]*error:(\s*\[[A-Z]+\d+\])+[ ]*$", re.MULTILINE)

#: From which likeness on (0 to 1) a code, or a name, is taken for a slip of the pen.
_CODES_ALIKE, _NAMES_ALIKE = 0.8, 0.6
#: How many rules are suggested at most; and how much is read of what may be a whole file.
_FEW, _LONGEST = 2, 80


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A fenced ``py bad``, ``py good`` or ``py fixed`` block; ``row`` is that of its first line."""

    kind: str
    source: str
    row: int

    @property
    def unmarked(self) -> str:
        """Its source without the ``# error: [CODE]`` comments of the tests."""
        return _MARK.sub("", self.source)


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """One rule's page.

    Attributes:
        code: ``XLA`` and three digits; for ever.
        name: Kebab case.
        severity: What a finding of it is by default.
        since: Version of xladoctor that brought it.
        fix: "safe", "unsafe" or "none".
        confidence: "high", "medium" or "low": how sure a static finding is.
        found_by: "lint", "profile" and/or "report".
        summary: One line for tables.
        default: Whether it is on without being selected.
        default_for: Members of the family of devices (``--target``) for which it is on anyway.
        select: The shortest beginning of its code that selects it ("XLA85": not ``ALL``, not
            "XLA8"); "" if any beginning does.
        text: The whole page, Markdown.
        url: Where it can be read.
        per_step: What it finds costs something each time round a loop: the message says which.
        needed_to_run: Without its fix the program may not run at all: it is made before others.
        changes_numbers: Its fix is meant to change what is trained on, or how.
        same_problem_as: Codes by which a run sees the same, on the same line, less precisely.
        stands_for: Codes that are not told on a line where this one is: they have the same cause.
    """

    code: str
    name: str
    severity: Severity
    since: str
    fix: str
    confidence: str
    found_by: tuple[str, ...]
    summary: str
    default: bool
    select: str
    text: str
    url: str
    per_step: bool = False
    needed_to_run: bool = False
    changes_numbers: bool = False
    same_problem_as: tuple[str, ...] = ()
    stands_for: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()

    def usual(self, device: str) -> bool:
        """Whether it is on without being selected, for a member of the family of devices."""
        return self.default or device in self.default_for

    @property
    def examples(self) -> tuple[Example, ...]:
        """Its executable blocks, in order."""
        return examples_of(self.text)

    @property
    def readable(self) -> str:
        """The page as people read it: without its tests, and without the marks of the tests."""
        text = _TESTS.sub("", self.text)
        text = _GOOD.sub(lambda block: _MARK.sub("", block[0]), text)
        return _MARK.sub(lambda mark: "  # " + ", ".join(_CODES.findall(mark[0])), text)

    @property
    def body(self) -> str:
        """What follows the page's title and facts, as it is shown: for where these stand anyway."""
        return _BLOCK.sub("", self.readable.partition("\n")[2], count=1).strip() + "\n"


def catalogue_dir() -> Traversable:
    """The folder that holds the pages: inside the installed package, or the checkout's ``rules/``.

    Raises:
        CatalogueError: Neither is there.
    """
    here = Path(__file__).resolve().parent
    checkout = here.parent / "rules"
    for folder in (here / "_rules", checkout):
        if (folder / "README.md").is_file():
            return folder
    from importlib import resources  # of a package in an archive; takes time to load

    packed = resources.files("xladoctor") / "_rules"
    if packed.is_dir():
        return packed
    raise CatalogueError(
        f"the rule pages are missing from this installation ({checkout} does not exist): "
        "install xladoctor again"
    )


_registered: dict[str, Page] = {}


def pages() -> dict[str, Page]:
    """All pages by code, sorted by code; those of the user's own rules after ours."""
    return {**_shipped(), **dict(sorted(_registered.items()))} if _registered else _shipped()


def register(page: Page) -> None:
    """Add the page of a rule that is not ours.

    Raises:
        ValueError: Its code is taken.
    """
    if page.code in pages():
        raise ValueError(f"two rules claim {page.code}")
    _registered[page.code] = page


@functools.cache
def examples_of(text: str) -> tuple[Example, ...]:
    """The ``py bad``, ``py good`` and ``py fixed`` blocks of a page's text."""
    return tuple(
        Example(
            kind=block["info"].split()[1],
            source=block["body"],
            row=text.count("\n", 0, block.start()) + 2,
        )
        for block in _BLOCK.finditer(text)
        if re.fullmatch(r"py (bad|good|fixed)", block["info"].strip())
    )


@functools.cache
def _shipped() -> dict[str, Page]:
    found: dict[str, Page] = {}
    for entry in sorted(catalogue_dir().iterdir(), key=lambda item: item.name):
        if entry.name.startswith("XLA") and entry.name.endswith(".md"):
            page = parse_page(entry.name, entry.read_text(encoding="utf-8"))
            found[page.code] = page
    return found


def page(code: str) -> Page:
    """The page of a code or a rule's name; case does not matter.

    Raises:
        UsageError: No such rule.
    """
    wanted = code.strip()
    known = pages().get(wanted)
    if known is not None:
        return known
    for candidate in pages().values():
        if wanted.upper() == candidate.code or wanted.lower() == candidate.name:
            return candidate
    advice = suggestion(code) or "'xladoctor rules' lists them all"
    raise UsageError(f"there is no rule {code!r}; {advice}")


def url_of(code: str, name: str) -> str:
    """Where the page of a rule can be read; asks for no page that comes with xladoctor."""
    own = _registered.get(code)
    return PAGE_URL.format(stem=f"{code}-{name}") if own is None else own.url


def suggestion(text: str) -> str:
    """Which rule was meant by what is no code and no name: "did you mean XLA101 (...)?", or "".

    Nothing is said where many are equally near: three digits are near to those of most rules.
    """
    import difflib

    wanted = text.strip()[:_LONGEST]
    # Letters that look like digits, and codes without the letters before them.
    digits = wanted.upper().removeprefix("XLA").translate(str.maketrans("OIL", "011"))
    found = [each for each in pages().values() if each.code in (wanted.upper(), f"XLA{digits}")]
    if not found:
        nearness = {
            each.code: max(
                difflib.SequenceMatcher(None, wanted.upper(), each.code).ratio() - _CODES_ALIKE,
                difflib.SequenceMatcher(None, wanted.lower(), each.name).ratio() - _NAMES_ALIKE,
            )
            for each in pages().values()
        }
        best = max(nearness.values())
        found = [pages()[code] for code, near in nearness.items() if near == best and best >= 0]
    if not 0 < len(found) <= _FEW:
        return ""
    return f"did you mean {' or '.join(f'{each.code} ({each.name})' for each in found)}?"


def same_problems() -> dict[str, frozenset[str]]:
    """Code of the linter to the codes by which a run sees the same problem."""
    return {
        each.code: frozenset(each.same_problem_as)
        for each in pages().values()
        if each.same_problem_as
    }


class KeptTables(Protocol):
    """Where tables are kept as they were parsed, for as long as no page or table changes."""

    def table(self, name: str) -> Any | None:
        """What was kept under a name, None if nothing was."""

    def keep_table(self, name: str, table: object) -> None:
        """Remember a table (plain data that JSON can hold)."""


_kept: list[KeptTables] = []


@contextlib.contextmanager
def tables_kept_by(store: KeptTables | None) -> Iterator[None]:
    """Where tables are looked for meanwhile, and kept: TOML's parser is Python, and slow."""
    before = _kept[:]
    _kept[:] = [] if store is None else [store]
    try:
        yield
    finally:
        _kept[:] = before


def keep_no_tables() -> None:
    """Let go of the store, in a process that must not share it."""
    _kept.clear()


def _parsed(name: str, parse: Callable[[], Any]) -> Any:
    for store in _kept:
        found = store.table(name)
        if found is not None:
            return found
    found = parse()
    for store in _kept:
        store.keep_table(name, found)
    return found


@functools.cache
def table(name: str) -> dict[str, Any]:
    """A table of facts, ``rules/tables/<name>.toml``."""
    return dict(_parsed(name, lambda: tomllib.loads(_table_text(name))))


@functools.cache
def rows(name: str, key: str) -> list[dict[str, Any]]:
    """The ``[[key]]`` rows with which a table ends; what stands before them is not parsed."""

    def parse() -> list[Any]:
        mark = f"\n[[{key}]]\n"
        _, found, text = _table_text(name).partition(mark)
        return list(tomllib.loads(found + text).get(key, ()))

    return list(_parsed(f"{name}/{key}", parse))


def _table_text(name: str) -> str:
    path = catalogue_dir() / "tables" / f"{name}.toml"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise CatalogueError(
            f"the table {name}.toml is missing from this installation: install xladoctor again"
        ) from error


def _facts(text: str) -> dict[str, Any]:
    """The keys of a page's header: TOML that, but for unusual strings, is JSON line by line.

    TOML's parser is Python: it took longer for all headers than a lint of some files.
    """
    rows = [row.partition(" = ") for row in text.splitlines()]
    try:
        values = json.loads(f"[{','.join(value for _, _, value in rows)}]")
        facts = dict(zip((key for key, _, _ in rows), values, strict=True))
    except ValueError:
        return tomllib.loads(text)
    return facts if len(facts) == len(rows) else tomllib.loads(text)


def parse_page(filename: str, text: str) -> Page:
    """Read one page.

    Raises:
        CatalogueError: The page does not have the form that ``rules/README.md`` describes.
    """
    title = _TITLE.match(text.partition("\n")[0])
    if title is None:
        raise CatalogueError(f"{filename}: the first line must read '# name (XLA123)'")
    first = _BLOCK.search(text)
    if first is None or first["info"].strip() != "toml":
        raise CatalogueError(f"{filename}: the first fenced block must be 'toml'")
    facts = _facts(first["body"])
    stem = filename.removesuffix(".md")
    if (facts.get("code"), facts.get("name")) != (title["code"], title["name"]) or stem != (
        f"{title['code']}-{title['name']}"
    ):
        raise CatalogueError(f"{filename}: file name, title and toml block name different rules")
    try:
        return Page(
            code=facts["code"],
            name=facts["name"],
            severity=Severity(facts["severity"]),
            since=facts["since"],
            fix=facts["fix"],
            confidence=facts["confidence"],
            found_by=tuple(facts["found_by"]),
            summary=facts["summary"],
            default=facts.get("default", True),
            select=facts.get("select", ""),
            text=text,
            url=url_of(facts["code"], facts["name"]),
            per_step=facts.get("per_step", False),
            needed_to_run=facts.get("needed_to_run", False),
            changes_numbers=facts.get("changes_numbers", False),
            same_problem_as=tuple(facts.get("same_problem_as", ())),
            stands_for=tuple(facts.get("stands_for", ())),
            default_for=tuple(facts.get("default_for", ())),
        )
    except (KeyError, ValueError) as error:
        raise CatalogueError(
            f"{filename}: the toml block is incomplete or wrong: {error}"
        ) from error
