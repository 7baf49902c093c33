"""What a source says by itself, before LibCST and the rules are loaded: for most files, all.

A file that concerns no rule is only checked for its syntax, and what is wrong with its text is told
whatever else is found.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.findings import Finding, Location, Position, in_source_order
from xladoctor.lint import sources, suppressions
from xladoctor.lint.asked import UNPARSABLE, Result
from xladoctor.lint.words import called_for_tpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.lint.asked import LintOptions, Member
    from xladoctor.lint.sources import Source, Unreadable
    from xladoctor.lint.suppressions import Suppressions

#: A file without any of these words cannot concern our rules: it is only checked for its syntax.
#: (``output`` holds "tpu" too.) Who is handed torch_xla's module may never name it but by ``xm``.
_MARKERS = re.compile(
    r"xla|(?<![a-z])tpu|xrt_|pjrt_|neuron|torchax|downcast_bf16|\bdef _mp_fn\("
    r"|\bxm\.(?:optimizer_step|mark_step|mesh_reduce|master_print|rendezvous|reduce_gradients)\b",
    re.IGNORECASE,
)
#: Nor one without any of these: a program for XLA devices imports one of the packages, and what is
#: said of others is about what they install, set in the environment, or silence.
BINDS = re.compile(
    r"torch|neuron|lightning|accelerate|transformers|optimum|ignite|catalyst|environ|putenv|env-setup|install"
    r"|xladoctor"
)


def look(member: Member, *, linked: bool) -> tuple[Result, bool]:
    """What is wrong with a source by itself, and whether a model can and should be made of it.

    Args:
        member: The source, and what is asked.
        linked: Whether it is part of a larger program that concerns our rules, or rules are asked
            that are not ours: then whatever its words are.
    """
    source = member.source
    findings = [unparsable(source, item) for item in source.unreadable]
    if not source.text.strip():
        return Result(tuple(findings)), False
    concerned = linked or concerns_us(member)
    problem = _problem(source.text, concerned)
    # LibCST's parser takes the process down with it on very deep nesting, so Python goes first.
    if problem is not None and (not concerned or problem.fatal):
        findings.append(unparsable(source, problem))
    goes_on = concerned and (problem is None or not problem.fatal)
    return Result(tuple(findings)), goes_on


@functools.lru_cache(maxsize=256)
def _problem(text: str, concerns_us: bool) -> Unreadable | None:
    """Why a text cannot be parsed; an editor asks of many files again after each key."""
    return sources.syntax_error(text) or (sources.too_much(text) if concerns_us else None)


def whole_answers(members: Sequence[Member]) -> list[Result] | None:
    """What is found in sources that are linked with each other; None if a model has to be asked.

    Of a program none of whose files concerns our rules each is only checked by itself.
    """
    if any(concerns_us(member) for member in members):
        return None
    found = []
    for member in members:
        source, findings = member.source, look(member, linked=False)[0].findings
        kept = chosen(source, findings, member.options, suppressions.parse(source.text))
        found.append(Result(tuple(kept)) if member.wanted else Result())
    return found


def concerns_us(member: Member) -> bool:
    """Whether our rules may have something to say of a source, by its words and what is asked."""
    source = member.source
    if member.options.device or source.shell or may_concern_us(source.text):
        return True
    meant = member.options.started.on_tpus or called_for_tpus(source.filename)
    return meant and BINDS.search(source.text) is not None


def may_concern_us(text: str) -> bool:
    """Whether our rules may have something to say of a file, by its words."""
    return _MARKERS.search(text) is not None and BINDS.search(text) is not None


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
        suggestion=f"fix it or leave it out; the other {others} are linted as usual",
        locations=(location,),
        confirmed_by=("lint",),
    )


def chosen(
    source: Source, findings: Iterable[Finding], options: LintOptions, comments: Suppressions
) -> list[Finding]:
    """The findings that were asked for and that no comment silences, each once, in order."""
    kept = (item for item in findings if options.asks(item.code))
    return in_source_order(suppressions.apply(dict.fromkeys(kept), source, comments))
