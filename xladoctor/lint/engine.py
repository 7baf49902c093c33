"""From a source to its findings: the model is built once, every rule asks it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.findings import Edit, Finding, Fix, Location, Position, in_source_order
from xladoctor.lint import rules as registry
from xladoctor.lint import sources, suppressions
from xladoctor.lint.model.file import NEWEST_TORCH_XLA, FileModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.lint.model.file import Problem
    from xladoctor.lint.rules import Rule
    from xladoctor.lint.sources import Source, Unreadable

UNPARSABLE = "XLA001"

#: A file without any of these words cannot concern a rule: it is only checked for its syntax.
_MARKERS = re.compile(
    r"torch_xla|XLA_|XRT_|PJRT_|lightning|accelerat|transformers|\btpu\b|xla_spawn", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class LintOptions:
    """What the rules are asked.

    Attributes:
        codes: Codes of the rules to run; None for all that are on by default.
        target: torch_xla version to lint for.
    """

    codes: frozenset[str] | None = None
    target: tuple[int, ...] = NEWEST_TORCH_XLA


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A rule (or the model) that broke on a file: our fault, never the user's."""

    filename: str
    rule: str
    error: str

    def __str__(self) -> str:
        return (
            f"{self.filename}: internal error in {self.rule}: {self.error}; "
            "please report it with the file, the other results are complete"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What linting one source gave; findings in source order."""

    findings: tuple[Finding, ...] = ()
    failures: tuple[Failure, ...] = ()


def lint(
    source: Source, options: LintOptions | None = None, rules: Mapping[str, Rule] | None = None
) -> Result:
    """Lint one source. Pure: reads nothing but the rule pages.

    Args:
        source: What to lint.
        options: Which rules, for which torch_xla.
        rules: The rules; all of the package by default.
    """
    options = options or LintOptions()
    findings = [unparsable(source, item) for item in source.unreadable]
    if not source.text.strip():
        return Result(_chosen(source, findings, options))
    problem = sources.syntax_error(source.text)
    concerns_us = _MARKERS.search(source.text) is not None or bool(source.shell)
    # LibCST's parser takes the process down with it on very deep nesting, so Python goes first.
    if problem is not None and (not concerns_us or problem.fatal):
        findings.append(unparsable(source, problem))
    if not concerns_us or (problem is not None and problem.fatal):
        return Result(_chosen(source, findings, options))
    try:
        model = FileModel(source.text, options.target, source.shell)
    except cst.ParserSyntaxError as error:
        problem = problem or sources.Unreadable(
            f"does not parse: {error.message}", error.raw_line, error.raw_column + 1
        )
        findings.append(unparsable(source, problem))
        return Result(_chosen(source, findings, options))
    except RecursionError:
        problem = sources.Unreadable("is nested too deeply to be linted")
        findings.append(unparsable(source, problem))
        return Result(_chosen(source, findings, options))
    except Exception as error:  # noqa: BLE001  (one file must not stop the others)
        failure = _failure(source, "the file's model", error)
        return Result(_chosen(source, findings, options), (failure,))
    failures: list[Failure] = []
    for code, rule in (registry.rules() if rules is None else rules).items():
        if options.codes is not None and code not in options.codes:
            continue
        try:
            findings.extend(_finding(source, code, problem) for problem in rule(model))
        except Exception as error:  # noqa: BLE001  (nor one rule)
            failures.append(_failure(source, code, error))
    return Result(_chosen(source, findings, options), tuple(failures))


def unparsable(source: Source, item: Unreadable) -> Finding:
    """The finding for a source, or a part of it, that cannot be read."""
    page = catalogue.page(UNPARSABLE)
    place = Position(item.row, item.column)
    location = (
        source.location(place, place)
        if item.cell is None
        else Location(source.filename, item.row, item.column, item.row, item.column, cell=item.cell)
    )
    subject, others = ("cell", "cells") if item.cell is not None else ("file", "files")
    return Finding(
        UNPARSABLE,
        page.name,
        page.severity,
        f"this {subject} {item.message}",
        suggestion=f"mend it or leave it out; the other {others} are linted as usual",
        locations=(location,),
        confirmed_by=("lint",),
    )


def _chosen(source: Source, findings: list[Finding], options: LintOptions) -> tuple[Finding, ...]:
    kept = (item for item in findings if options.codes is None or item.code in options.codes)
    return tuple(in_source_order(suppressions.apply(dict.fromkeys(kept), source)))


def _failure(source: Source, rule: str, error: Exception) -> Failure:
    return Failure(source.filename, rule, f"{type(error).__name__}: {error}")


def _finding(source: Source, code: str, problem: Problem) -> Finding:
    page = catalogue.page(code)
    place = problem.place
    return Finding(
        code,
        page.name,
        page.severity,
        problem.message,
        suggestion=problem.suggestion,
        locations=(source.location(place.start, place.end, function=place.function),),
        related=tuple(
            source.location(item.start, item.end, item.note, item.function)
            for item in problem.related
        ),
        fix=_in_cells(source, problem.fix) if problem.fix else None,
        confirmed_by=("lint",),
    )


def _in_cells(source: Source, fix: Fix) -> Fix | None:
    if source.cells is None:
        return fix
    edits = []
    for edit in fix.edits:
        cell = source.cell_at(edit.start.row)
        if cell is None or source.cell_at(edit.end.row) is not cell:
            return None  # spans cells: cannot be written back
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
