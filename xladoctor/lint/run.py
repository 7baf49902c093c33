"""Linting many files: which rules where, in one or several processes, always in the same order."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.errors import UsageError
from xladoctor.lint import discovery, first_look, linking, sources
from xladoctor.lint import plugins as loading
from xladoctor.lint import rules as registry
from xladoctor.lint.asked import (
    OBJECTS,
    UNPARSABLE,
    Failure,
    FileResult,
    LintOptions,
    Member,
    Result,
)
from xladoctor.lint.contents import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pathspec

    from xladoctor.findings import Finding
    from xladoctor.lint.cache import Cache
    from xladoctor.lint.kept_run import Run
    from xladoctor.lint.linking import Group
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

    def options_for(self, filename: str) -> LintOptions:
        """What the rules are asked for a file of that name."""
        codes = self.options.codes
        for pattern, ignored in self.per_file_ignores:
            if _matches(pattern, filename, self.root):
                known = codes if codes is not None else chosen_codes(None, (), ())
                codes = frozenset(code for code in known if not code.startswith(ignored))
        return dataclasses.replace(self.options, codes=codes)

    def wants(self, finding: Finding) -> bool:
        """Whether fixes of this finding's code are to be made."""
        return self.fixable is None or finding.code in self.fixable

    def fixes(self, finding: Finding) -> bool:
        """Whether a finding is to be fixed, and can be."""
        if self.fix == "no":
            return False
        from xladoctor.lint import fixes

        return fixes.is_applicable(finding, unsafe=self.fix == "unsafe") and self.wants(finding)


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """Files that are linted together.

    Attributes:
        group: Which, and what imports what.
        data: What they hold; those that cannot be read are left out.
        plans: What to do with each of those that were given.
    """

    group: Group
    data: Mapping[str, bytes]
    plans: Mapping[str, Plan]

    def plan(self, name: str) -> Plan:
        """What to do with a file; those that were not given are only known."""
        return self.plans.get(name) or Plan(LintOptions())


def _contents(group: Group, files: Files) -> dict[str, bytes]:
    return {name: data for name in group.names if (data := files.data(name)) is not None}


def lint_group(work: _Work) -> list[FileResult]:
    """Lint files that belong together; a file that cannot be read is a finding."""
    group, data, plan, plans = work.group, work.data, work.plan, work.plans
    members = {
        name: Member(
            sources.from_bytes(data[name], name) if name in data else sources.read(Path(name)),
            plan(name).options_for(name),
            group.imports.get(name, {}),
            wanted=name in plans,
        )
        for name in group.names
    }
    results = dict(zip(members, _results(list(members.values())), strict=True))
    found = []
    for name in group.given:
        first = FileResult(name, results[name], data.get(name, b""))
        wanted = plan(name).wants
        applicable = any(plan(name).fixes(item) for item in first.result.findings)
        if not applicable or name not in data:
            found.append(first)
            continue

        def again(source: Source, name: str = name) -> Result:
            changed = [
                dataclasses.replace(member, source=source)
                if other == name
                else dataclasses.replace(member, wanted=False)
                for other, member in members.items()
            ]
            return _results(changed)[list(members).index(name)]

        from xladoctor.lint import fixes

        unsafe = plan(name).fix == "unsafe"
        fixed = fixes.fix(data[name], name, again, unsafe=unsafe, fixable=wanted)
        found.append(
            FileResult(name, fixed.result, data[name], fixed.data, fixed.made, fixed.stable)
        )
    return found


def _results(members: Sequence[Member]) -> list[Result]:
    answers = first_look.whole_answers(members) if not registry.has_others() else None
    if answers is not None:
        return answers
    from xladoctor.lint import engine  # with LibCST and the rules: only where it is needed

    return engine.lint_together(members)


def _lint_safely(work: _Work) -> list[FileResult]:
    """Lint files that belong together; what breaks on one of them does not stop the others."""
    try:
        return lint_group(work)
    except Exception as error:  # noqa: BLE001  (one file must not stop the others)
        group = work.group
        if len(group.names) > 1:
            alone = [_Work(linking.Group((name,), (name,)), work.data, work.plans)
                     for name in group.given]  # fmt: skip
            results = [result for one in alone for result in _lint_safely(one)]
            return [_failed_together(results[0], error), *results[1:]]
        [name] = group.given
        failure = Failure.of(name, "the linter", error)
        return [FileResult(name, Result(failures=(failure,)), work.data.get(name, b""))]


def _failed_together(result: FileResult, error: Exception) -> FileResult:
    """A file's result, with what broke when it was linted with the files it belongs to."""
    failure = Failure.of(result.filename, "linting it with the files that it imports", error)
    found = dataclasses.replace(result.result, failures=(*result.result.failures, failure))
    return dataclasses.replace(result, result=found)


def lint_text(
    data: bytes, filename: str, plan: Plan, others: Mapping[str, bytes] | None = None
) -> FileResult:
    """Lint, or fix and lint, what a file is about to hold, together with what it imports.

    Args:
        data: The content; the file need not exist.
        filename: Where it would stand.
        plan: What to do with it.
        others: What other files are about to hold, by name; those that import it count too.
    """
    files = Files({**(others or {}), filename: data})
    names = [filename, *(others or {})]
    groups = linking.groups(names, files, names if plan.options.started.on_tpus else ())
    group = next(group for group in groups if filename in group.given)
    work = _Work(group, _contents(group, files), {filename: plan})
    with _seldom_collecting():
        results = lint_group(work)
    return next(result for result in results if result.filename == filename)


def lint_files(
    paths: Sequence[Path],
    plan: Plan | Mapping[str, Plan],
    jobs: int | None = None,
    plugins: tuple[Sequence[str], Path] | None = None,
    cache: Cache | None = None,
    as_run: Run | None = None,
) -> Iterator[FileResult]:
    """Lint files in the order given, in several processes if there are enough of them.

    Args:
        paths: The files.
        plan: What to do with all of them, or with each.
        jobs: How many processes; None for as many as there are processors and work for them.
        plugins: Rules of the project, which each process loads: their names and folder.
        cache: What earlier runs found, and where to keep what this one finds.
        as_run: What is known of the same run before, and where to keep what this one looks at.
    """
    names = [str(path) for path in paths]
    plans = dict.fromkeys(names, plan) if isinstance(plan, Plan) else plan
    with _seldom_collecting(), catalogue.tables_kept_by(cache):
        done = _lint_files(names, plans, jobs, plugins, cache, as_run)
    yield from (done[name] for name in names)


def _lint_files(
    names: Sequence[str],
    plans: Mapping[str, Plan],
    jobs: int | None,
    plugins: tuple[Sequence[str], Path] | None,
    cache: Cache | None,
    as_run: Run | None,
) -> dict[str, FileResult]:
    files = Files(cache=cache, looked=as_run.looked if as_run is not None else None)
    groups, done = _grouped(names, plans, files, cache, as_run)
    fresh: list[tuple[_Work, str | None]] = []
    for group, key in groups:
        if group.given[0] in done:
            continue
        wanted = {name: plans[name] for name in group.given}
        known = _known(cache, key, wanted) if cache is not None and key is not None else None
        if known is None:
            fresh.append((_Work(group, _contents(group, files), wanted), key))
        else:
            done.update((item.filename, item) for item in known)
    waiting = sum(len(work.group.names) for work, _ in fresh)
    processes = jobs or min(os.cpu_count() or 1, waiting // _FILES_PER_PROCESS)
    for (_, key), linted in zip(fresh, _linted(fresh, processes, plugins), strict=True):
        results = [_with_problem(item, files.problems.get(item.filename)) for item in linted]
        done.update((item.filename, item) for item in results)
        if cache is not None and key is not None and all(item.is_lint_alone for item in results):
            cache.keep_results(key, {item.filename: item.result.findings for item in results})
    if cache is not None:
        if as_run is not None and as_run.whole and all(x.is_lint_alone for x in done.values()):
            keyed = [(group, key or "") for group, key in groups]
            cache.keep_run(as_run, {name: done[name].result.findings for name in names}, keyed)
        cache.save()
    return done


def _grouped(
    names: Sequence[str],
    plans: Mapping[str, Plan],
    files: Files,
    cache: Cache | None,
    as_run: Run | None,
) -> tuple[list[tuple[Group, str | None]], dict[str, FileResult]]:
    """What is linted together under which keys, and what is known of groups without a look."""

    def key(group: Group) -> str | None:
        if cache is None:
            return None
        return _key(cache, group, {name: plans[name] for name in group.given}, files)

    before = as_run.groups(names) if as_run is not None else None
    if as_run is not None and before is not None:
        groups = [group for group, _ in before]
        if linking.hold(groups, as_run.edited, files):
            same = as_run.go_on(groups)
            done = {name: FileResult(name, Result(same[name]), read=None) for name in same}
            return [(g, known if g.given[0] in done else key(g)) for g, known in before], done
    on_tpus = {name for name in names if plans[name].options.started.on_tpus}
    return [(group, key(group)) for group in linking.groups(names, files, on_tpus)], {}


def _with_problem(found: FileResult, problem: str | None) -> FileResult:
    """A file's result with what broke before it was linted."""
    if problem is None:
        return found
    failure = Failure(found.filename, "the search for what it imports", problem)
    result = dataclasses.replace(found.result, failures=(failure, *found.result.failures))
    return dataclasses.replace(found, result=result)


def _linted(
    fresh: Sequence[tuple[_Work, str | None]],
    processes: int,
    plugins: tuple[Sequence[str], Path] | None,
) -> Iterator[list[FileResult]]:
    work = [item for item, _ in fresh]
    if processes <= 1 or len(work) <= 1:
        yield from map(_lint_safely, work)
        return
    import concurrent.futures

    from xladoctor.lint import engine

    engine.load()  # processes that are forked have it then
    # The largest first: the last to end is then a small one, and no process waits long for it.
    sizes = [sum(map(len, item.data.values())) for item in work]
    order = sorted(range(len(work)), key=lambda index: -sizes[index])
    with concurrent.futures.ProcessPoolExecutor(
        processes, initializer=_begin, initargs=(plugins,)
    ) as pool:
        running = {index: pool.submit(_lint_safely, work[index]) for index in order}
        for index in range(len(work)):
            yield running.pop(index).result()


def _begin(plugins: tuple[Sequence[str], Path] | None) -> None:
    """What a process does before it lints."""
    catalogue.keep_no_tables()  # SQLite's connections are not for children
    gc.freeze()  # what a fork shares with others stays shared while nothing looks through it
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    if plugins:
        loading.load(*plugins)


@contextlib.contextmanager
def _seldom_collecting() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _key(cache: Cache, group: Group, plans: Mapping[str, Plan], files: Files) -> str | None:
    """Under what the results are kept; None if a file cannot be read."""
    digests = {name: digest for name in group.names if (digest := files.digest(name)) is not None}
    if len(digests) < len(group.names):
        return None
    return cache.key(group, digests, {name: plan.options_for(name) for name, plan in plans.items()})


def _known(cache: Cache, key: str, plans: Mapping[str, Plan]) -> list[FileResult] | None:
    """What an earlier run found; None if there was none, or if there is something to fix."""
    found = cache.results(key)
    if found is None or set(found) != set(plans):
        return None
    if any(plans[name].fixes(item) for name, items in found.items() for item in items):
        return None
    return [FileResult(name, Result(found[name]), read=None) for name in plans]


def chosen_codes(
    select: Sequence[str] | None,
    extend: Sequence[str],
    ignore: Sequence[str],
    *,
    missing: bool = False,
    device: str = "",
) -> frozenset[str]:
    """The codes that beginnings of codes choose; the longer beginning wins, then ``ignore``.

    Rules whose page asks for more (``select = "XLA85"``) are chosen by nothing shorter: neither by
    ``ALL`` nor by their family of hundred.
    A file that does not parse is reported whatever is selected, unless that is ignored.

    Args:
        select: The beginnings; None for the rules that are on by default.
        extend: Those to add.
        ignore: Those to leave out.
        missing: Whether rules of the project were not loaded, so that codes may be theirs.
        device: The devices that the code is for (``--target``), "" if that is not said.

    Raises:
        UsageError: A beginning matches no code at all.
    """
    pages = catalogue.pages()
    known = set(pages)
    check_codes((*(select or ()), *extend, *ignore), missing=missing)
    wanted = (*select, *extend) if select is not None else tuple(extend)
    chosen = set()
    for code in known:
        plus = _longest(code, wanted)
        if code in pages and plus < len(pages[code].select):
            plus = 0
        usual = code not in pages or pages[code].usual(device)
        if select is None and usual:
            plus = max(plus, len("XLA"))
        if not code.startswith("XLA") and "XLA" in wanted:  # ALL: the user's own rules too
            plus = max(plus, len("XLA"))
        if code == UNPARSABLE:
            plus = max(plus, len("XLA"))
        if plus > _longest(code, ignore):
            chosen.add(code)
    return frozenset(chosen)


def check_codes(beginnings: Iterable[str], *, missing: bool = False) -> None:
    """Refuse what is the beginning of no code.

    Args:
        beginnings: Of codes.
        missing: Whether rules of the project were not loaded, so that codes may be theirs.

    Raises:
        UsageError: A beginning matches no code at all.
    """
    for item in beginnings:
        if missing and not item.startswith("XLA"):
            continue
        if not any(code.startswith(item) for code in catalogue.pages()):
            advice = catalogue.suggestion(item) or "'xladoctor rules' lists them all"
            raise UsageError(f"no rule has the code {item}: {advice}")


def _longest(code: str, beginnings: Iterable[str]) -> int:
    return max((len(item) for item in beginnings if code.startswith(item)), default=0)


@functools.lru_cache(maxsize=256)
def _spec(pattern: str) -> pathspec.GitIgnoreSpec:
    return discovery.excluding([pattern])


def _matches(pattern: str, filename: str, root: Path) -> bool:
    absolute, base = sources.absolute(filename), sources.absolute(root)
    relative = absolute.relative_to(base) if absolute.is_relative_to(base) else absolute
    return _spec(pattern).match_file(relative.as_posix().lstrip("/"))
