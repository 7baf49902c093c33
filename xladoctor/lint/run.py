"""Linting many files: which rules where, in one or several processes, always in the same order."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pathspec

from xladoctor import catalogue
from xladoctor.errors import UsageError
from xladoctor.lint import engine, fixes, sources
from xladoctor.lint import rules as registry
from xladoctor.lint.engine import UNPARSABLE, LintOptions, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.sources import Source

#: Starting a process costs as much as linting about so many files.
_FILES_PER_PROCESS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What to do with each file.

    Attributes:
        options: Rules and version.
        per_file_ignores: Pattern to beginnings of codes, relative to ``root``.
        root: Folder of the patterns.
        fix: Apply fixes: "no", "safe" or "unsafe".
        fixable: Codes whose fixes are applied; None for all.
    """

    options: LintOptions
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    root: Path = dataclasses.field(default_factory=Path)
    fix: str = "no"
    fixable: frozenset[str] | None = None

    def lint(self, source: Source) -> Result:
        """Lint one source with what this plan says about its name."""
        codes = self.options.codes
        for pattern, ignored in self.per_file_ignores:
            if _matches(pattern, source.filename, self.root):
                known = codes if codes is not None else chosen_codes(None, (), ())
                codes = frozenset(code for code in known if not code.startswith(ignored))
        return engine.lint(source, dataclasses.replace(self.options, codes=codes))

    def run(self, data: bytes, filename: str) -> FileResult:
        """Lint, or fix and lint, the bytes of one file."""
        if self.fix == "no":
            return FileResult(filename, self.lint(sources.from_bytes(data, filename)), data)
        fixed = fixes.fix(
            data,
            filename,
            self.lint,
            unsafe=self.fix == "unsafe",
            fixable=lambda finding: self.fixable is None or finding.code in self.fixable,
        )
        return FileResult(filename, fixed.result, data, fixed.data, fixed.made, fixed.stable)


@dataclasses.dataclass(frozen=True, slots=True)
class FileResult:
    """What one file gave; ``fixed`` is its new content if fixes changed it."""

    filename: str
    result: Result
    before: bytes = b""
    fixed: bytes | None = None
    made: tuple[Finding, ...] = ()
    stable: bool = True

    @property
    def applied(self) -> int:
        """How many fixes were made."""
        return len(self.made)


def lint_file(path: str, plan: Plan) -> FileResult:
    """Lint one file; a file that cannot be read is a finding."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return FileResult(path, plan.lint(sources.read(Path(path))))
    return plan.run(data, path)


def lint_files(paths: Sequence[Path], plan: Plan, jobs: int | None = None) -> Iterator[FileResult]:
    """Lint files in the order given, in several processes if there are enough of them.

    Args:
        paths: The files.
        plan: What to do with each.
        jobs: How many processes; None for as many as there are processors and work for them.
    """
    names = [str(path) for path in paths]
    work = functools.partial(lint_file, plan=plan)
    processes = jobs or min(os.cpu_count() or 1, len(names) // _FILES_PER_PROCESS)
    if processes <= 1 or len(names) <= 1:
        yield from map(work, names)
        return
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        yield from pool.map(work, names, chunksize=4)


def chosen_codes(
    select: Sequence[str] | None, extend: Sequence[str], ignore: Sequence[str]
) -> frozenset[str]:
    """The codes that beginnings of codes choose; the longer beginning wins, then ``ignore``.

    A file that does not parse is reported whatever is selected, unless that is ignored.

    Raises:
        UsageError: A beginning matches no code at all.
    """
    pages = catalogue.pages()
    known = set(pages) | set(registry.rules())
    for item in (*(select or ()), *extend, *ignore):
        if not any(code.startswith(item) for code in known):
            raise UsageError(f"no rule has the code {item}: 'xladoctor rules' lists them all")
    wanted = (*select, *extend) if select is not None else tuple(extend)
    chosen = set()
    for code in known:
        plus = _longest(code, wanted)
        if select is None and (code not in pages or pages[code].default):
            plus = max(plus, len("XLA"))
        if code == UNPARSABLE:
            plus = max(plus, len("XLA"))
        if plus > _longest(code, ignore):
            chosen.add(code)
    return frozenset(chosen)


def _longest(code: str, beginnings: Iterable[str]) -> int:
    return max((len(item) for item in beginnings if code.startswith(item)), default=0)


@functools.lru_cache(maxsize=256)
def _spec(pattern: str) -> pathspec.GitIgnoreSpec:
    return pathspec.GitIgnoreSpec.from_lines([pattern])


def _matches(pattern: str, filename: str, root: Path) -> bool:
    absolute, base = sources.absolute(filename), sources.absolute(root)
    relative = absolute.relative_to(base) if absolute.is_relative_to(base) else absolute
    return _spec(pattern).match_file(relative.as_posix().lstrip("/"))
