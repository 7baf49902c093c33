"""From a source to its findings: the model is built once, every rule asks it."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, TypeVar

import libcst as cst

from xladoctor import catalogue
from xladoctor.findings import Edit, Finding, Fix, Location, Position, in_source_order
from xladoctor.lint import (
    borrowed,
    family,
    first_look,
    library,
    sources,
    spoken,
    suppressions,
)
from xladoctor.lint import rules as registry
from xladoctor.lint.asked import UNUSED, Failure, LintOptions, Member, Result
from xladoctor.lint.model.file import FileModel
from xladoctor.lint.model.loops import HOT, LoopKind
from xladoctor.lint.model.program import Part, Program, Unit
from xladoctor.lint.unused import unused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.problems import Problem
    from xladoctor.lint.rules import Rule
    from xladoctor.lint.sources import Cell, Source
    from xladoctor.lint.suppressions import Suppressions

__all__ = ["Failure", "LintOptions", "Member", "Result", "lint", "lint_together"]

_Made = TypeVar("_Made")

#: What such rules tell of is no problem in code that never runs on XLA devices.
_ON_THE_DEVICE = ("XLA1", "XLA2", "XLA3", "XLA4", "XLA5", "XLA6", "XLA72", "XLA903")


def load() -> None:
    """Load the rules, and the tables that all of them ask."""
    registry.rules()
    library.builtin()
    family.members()


def lint(
    source: Source, options: LintOptions | None = None, rules: Mapping[str, Rule] | None = None
) -> Result:
    """Lint one source by itself. Pure: reads nothing but the rule pages.

    Args:
        source: What to lint.
        options: Which rules, for which torch_xla.
        rules: The rules; all of the package by default.
    """
    [result] = lint_together([Member(source, options or LintOptions())], rules)
    return result


def lint_together(
    members: Sequence[Member], rules: Mapping[str, Rule] | None = None
) -> list[Result]:
    """Lint sources that import each other; one result each, in their order. Pure.

    The result of one that is not wanted is empty. A source that cannot be read drops out of the
    program and does not hinder the others.
    """
    rules = registry.rules() if rules is None else rules
    # A program none of whose files concerns our rules is nothing to them, linked or not.
    linked = len(members) > 1 and any(map(first_look.concerns_us, members))
    linked = linked or any(not code.startswith("XLA") for code in rules)
    start: dict[str, Result] = {}
    readable: list[tuple[Member, Part | Result]] = []
    for member in members:
        found, goes_on = first_look.look(member, linked=linked)
        start[member.source.filename] = found
        if goes_on:  # at once, while what Python's parser made of it is at hand
            readable.append((member, _part(member, linked=len(members) > 1)))
    models, failed = _models(readable)
    try:
        return _results(members, rules, models, {**start, **failed})
    finally:
        for program in {model.program for model in models.values()}:
            program.close()


def _results(
    members: Sequence[Member],
    rules: Mapping[str, Rule],
    models: Mapping[str, FileModel],
    start: Mapping[str, Result],
) -> list[Result]:
    """What is found in each of some members, beside what was found in them at first."""
    by_name = {member.source.filename: member.source for member in members}
    done = []
    silent = [member.source.filename for member in members if not member.wanted]
    for member in members:
        if not member.wanted:
            done.append(Result())
            continue
        source, options = member.source, member.options
        findings = list(start[source.filename].findings)
        failures = list(start[source.filename].failures)
        if source.filename in models:
            model = models[source.filename]
            found, broken = _ask(rules, model, member, by_name)
            findings += found
            failures += broken
            findings += _borrowed(rules, model, member, models, by_name, silent)
        comments = suppressions.parse(source.text)
        kept = first_look.chosen(source, findings, options, comments)
        if source.filename in models and options.asks(UNUSED) and not failures:
            kept += _unused(models[source.filename], member, comments, by_name)
        done.append(Result(tuple(in_source_order(kept)), tuple(failures)))
    return done


def _part(member: Member, *, linked: bool) -> Part | Result:
    """What is known of a source by itself, or what was found instead."""
    source = member.source
    pins, started = member.options.pins, member.options.started
    unit = Unit(source.text, source.filename, source.shell, member.imports, pins, started)
    return _guarded(source, lambda: Part(unit, member.options.device, linked=linked))


def _models(
    members: Sequence[tuple[Member, Part | Result]],
) -> tuple[dict[str, FileModel], dict[str, Result]]:
    """The models of sources, and what was found instead for those that have none."""
    failed: dict[str, Result] = {}
    parts: list[Part] = []
    of: list[Member] = []
    for member, part in members:
        if isinstance(part, Result):
            failed[member.source.filename] = part
        else:
            parts.append(part)
            of.append(member)
    if not parts:
        return {}, failed
    own = next((member.options.library for member in of if member.options.library), "")
    program = _guarded(of[0].source, lambda: _program(parts, library.extended(own)))
    if isinstance(program, Result) and len(parts) > 1:
        # Too much, or too deep, together: each by itself then.
        models: dict[str, FileModel] = {}
        for member in of:
            alone = dataclasses.replace(member, imports={})
            made, broken = _models([(alone, _part(alone, linked=False))])
            models.update(made)
            failed.update(broken)
        return models, failed
    if isinstance(program, Result):
        return {}, failed | {of[0].source.filename: program}
    return {
        member.source.filename: FileModel.view(
            program, part, member.options.target, library.extended(member.options.library)
        )
        for member, part in zip(of, parts, strict=True)
    }, failed


def _program(parts: Sequence[Part], of: Library) -> Program:
    """The program of some files, with all of it that may be too much, or too deep."""
    program = Program(parts, of)
    if program.has_devices:
        program.follow()
    return program


def _guarded(source: Source, make: Callable[[], _Made]) -> _Made | Result:
    """What a function makes, or what to say of the source if it cannot."""
    origin = Result(tuple(first_look.unparsable(source, item) for item in source.unreadable))
    try:
        return make()
    except cst.ParserSyntaxError as error:
        problem = sources.syntax_error(source.text) or sources.Unreadable(
            f"does not parse: {error.message}", error.raw_line, error.raw_column + 1
        )
    except RecursionError:
        problem = sources.Unreadable(sources.TOO_DEEP)
    except Exception as error:  # noqa: BLE001  (one file must not stop the others)
        return Result(origin.findings, (_failure(source, "the file's model", error),))
    return Result((*origin.findings, first_look.unparsable(source, problem)))


def _ask(
    rules: Mapping[str, Rule], model: FileModel, member: Member, by_name: Mapping[str, Source]
) -> tuple[list[Finding], list[Failure]]:
    """What the rules say of a file."""
    findings: list[Finding] = []
    failures: list[Failure] = []
    for code, rule in _asked(rules, model, member).items():
        try:
            findings.extend(_found_by(rule, code, model, member, by_name))
        except Exception as error:  # noqa: BLE001, PERF203  (nor one rule)
            failures.append(_failure(member.source, code, error))
    return _one_for_each_cause(findings), failures


def _one_for_each_cause(findings: Sequence[Finding]) -> list[Finding]:
    """Without what another finding of the same line tells too, with more of the cause."""
    told = {
        (less, finding.place[:3])
        for finding in findings
        if finding.code in catalogue.pages()
        for less in catalogue.pages()[finding.code].stands_for
    }
    return [finding for finding in findings if (finding.code, finding.place[:3]) not in told]


def _found_by(
    rule: Rule, code: str, model: FileModel, member: Member, by_name: Mapping[str, Source]
) -> Iterator[Finding]:
    """What one rule says of a file."""
    if not code.startswith("XLA"):
        model.complete()  # of ours, none asks for white space
    said: set[tuple[str | None, int, str]] = set()
    for problem in rule(model):
        # What stands in a linked file is found there; what never runs is no problem. One line is
        # told a thing once, unless each place has a fix of its own.
        row = problem.place.start.row
        what = problem.place.filename, row, problem.message
        again = problem.fix is None and what in said
        said.add(what)
        if (
            problem.place.filename is None
            and not again
            and not (problem.aside and code.startswith(_ON_THE_DEVICE))
            and row not in model.unreached_rows
        ):
            spelled = spoken.of(problem, code, model.members)
            yield _finding(member.source, code, spelled, by_name, model)


def _borrowed(
    rules: Mapping[str, Rule],
    model: FileModel,
    member: Member,
    models: Mapping[str, FileModel],
    by_name: Mapping[str, Source],
    silent: Sequence[str],
) -> list[Finding]:
    """What the loops of a file run of files that are only known for its sake."""
    others = [models[name] for name in silent if name in models]
    asked = _asked(rules, model, member)
    return [
        _finding(member.source, code, spoken.of(problem, code, model.members), by_name, model)
        for code, problem in borrowed.told_here(model, others, asked)
    ]


def _asked(rules: Mapping[str, Rule], model: FileModel, member: Member) -> dict[str, Rule]:
    """The rules to ask of a file."""
    # What is said of files for no device at all (a CUDA call, removed names) is torch_xla's.
    members = model.members or frozenset({family.TORCH_XLA})
    left_out: tuple[str, ...] = ()
    if not model.program.has_devices:
        left_out = ("XLA",) if model.copied else _ON_THE_DEVICE
    return {code: rules[code] for code in _codes(tuple(rules), member.options, members, left_out)}


@functools.lru_cache(maxsize=16)
def _codes(
    codes: tuple[str, ...],
    options: LintOptions,
    members: frozenset[str],
    left_out: tuple[str, ...],
) -> Sequence[str]:
    """Those codes that are asked for, and of ours, that hold for the devices of a file."""
    return [
        code
        for code in codes
        if options.asks(code)
        and not code.startswith(left_out)
        and (not code.startswith("XLA") or family.holds(code, members))
    ]


def _unused(
    model: FileModel, member: Member, comments: Suppressions, by_name: Mapping[str, Source]
) -> list[Finding]:
    """What the comments of a file silence for nothing (nothing is judged in a broken file)."""
    if member.source.unreadable:
        return []
    problems = unused(model, comments, member.options.asks)
    found = [_finding(member.source, UNUSED, problem, by_name, model) for problem in problems]
    return suppressions.apply(found, member.source, comments)


def _failure(source: Source, rule: str, error: Exception) -> Failure:
    return Failure.of(source.filename, rule, error)


def _finding(
    source: Source, code: str, problem: Problem, by_name: Mapping[str, Source], model: FileModel
) -> Finding:
    page = catalogue.page(code)
    place = problem.place
    related = tuple(
        by_name.get(item.filename or "", source).location(
            item.start, item.end, item.note, item.function
        )
        for item in problem.related
    )
    main = source.location(place.start, place.end, function=place.function)
    message = problem.message
    if page.per_step:
        message += _in_loop(problem, main, related, model)
    return Finding(
        code,
        page.name,
        page.severity,
        message,
        suggestion=problem.suggestion,
        locations=(main,),
        related=(*related, *_why_xla(model)),
        fix=_in_cells(source, problem.fix) if problem.fix else None,
        confirmed_by=("lint",),
    )


def _why_xla(model: FileModel) -> tuple[Location, ...]:
    """The setting of its project that starts a file on TPUs, where no file says so."""
    by = model.started_by
    if by is None:
        return ()
    return (Location(by.filename, by.row, note="this starts the program on TPUs"),)


def _in_loop(
    problem: Problem, main: Location, related: Sequence[Location], model: FileModel
) -> str:
    """Which loop makes a problem dear, and how often it runs: the end of the message."""
    for place, location in zip(problem.related, related, strict=True):
        loop = place.loop
        if loop is None or loop.kind not in HOT:
            continue
        near = (location.filename, location.cell) == (main.filename, main.cell)
        where = f"line {location.row}" if near else location.inside
        if location.filename != main.filename:
            where = f"{location.filename}, {where}"
        if loop.implicit and loop.function is not None:
            each = "step of the environment" if loop.kind is LoopKind.ROLLOUT else "batch"
            return f" ({loop.function.name}, {where}, runs for every {each})"
        times = model.times(loop)
        return f" ({loop.kind.value}: {where}{', ' + times if times else ''})"
    return ""


def _in_cells(source: Source, fix: Fix) -> Fix | None:
    if source.cells is None:
        return fix
    edits = []
    for whole in fix.edits:
        cell = source.cell_at(whole.start.row)
        edit = whole if cell is None else _last_row(source, cell, whole)
        if cell is None or source.cell_at(edit.end.row) is not cell:
            return None  # spans cells: cannot be written back
        if cell.indent:
            return None  # what is written would have to stand as deep as the rest
        shift = cell.first - 1
        edits.append(
            Edit(
                edit.content,
                Position(edit.start.row - shift, edit.start.column),
                Position(edit.end.row - shift, edit.end.column),
                cell.index,
            )
        )
    return dataclasses.replace(fix, edits=tuple(edits))


def _last_row(source: Source, cell: Cell, edit: Edit) -> Edit:
    """What deletes a cell's last row with the end of the line begins at the end of the row above.

    After a cell's last row no line ends: the next row of the text is another cell's.
    """
    after = cell.first + cell.rows
    if edit.content or edit.start.column != 1 or edit.end != Position(after, 1):
        return edit
    lines = source.text.split("\n")
    start = edit.start
    if start.row > cell.first:
        start = Position(start.row - 1, len(lines[start.row - 2]) + 1)
    return Edit("", start, Position(after - 1, len(lines[after - 2]) + 1))
