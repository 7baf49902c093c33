"""Loaders whose settings come from the calls of a function: ``DataLoader(rows, **more)``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._loaders import DATA_LOADER, says_evaluation
from xladoctor.lint.rules._sources import gone_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop


@dataclasses.dataclass(frozen=True)
class Forwarded:
    """A training loader, as one call of the function around says.

    Attributes:
        made: The call of ``DataLoader``.
        call: The call of the function that it stands in.
        settings: Its keyword arguments, those of the call among them.
        dataset: What it goes over.
        loop: The step loop over it.
    """

    made: CallSite
    call: CallSite
    settings: Mapping[str, cst.BaseExpression]
    dataset: cst.BaseExpression | None
    loop: Loop


def forwarded(model: FileModel) -> Sequence[Forwarded]:
    """The training loaders of a file whose function hands on what its calls give by name."""
    return model.once(_found)


def _found(model: FileModel) -> list[Forwarded]:
    return [*_each(model)]


def _each(model: FileModel) -> Iterator[Forwarded]:
    for made in model.calls(DATA_LOADER):
        function = made.function
        starred = [argument for argument in made.node.args if argument.star]
        if function is None or len(starred) != 1 or starred[0].star != "**":
            continue
        rest = function.node.params.star_kwarg
        if not isinstance(rest, cst.Param) or not is_name(starred[0].value, rest.name.value):
            continue
        own = {*function.parameters, *function.keyword_only}
        for call in model.callers(function):
            loop = _trained_on(model, call)
            if loop is None or call.has_star or says_evaluation(model, call.node):
                continue
            more = {name: one for name, one in call.keywords.items() if name not in own}
            dataset = made.argument(0, "dataset")
            if isinstance(dataset, cst.Name) and dataset.value in function.parameters:
                dataset = call.given_to(function, dataset.value)
            yield Forwarded(made, call, {**made.keywords, **more}, dataset, loop)


def _trained_on(model: FileModel, call: CallSite) -> Loop | None:
    """The step loop over what a call gives, also in a function that is given it by its name."""
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    targets = {*names_bound(target)} if target is not None else set()
    for loop in model.loops_of_program:
        if loop.kind is not LoopKind.STEP or loop.over is None:
            continue
        names = [one.value for one in gone_over(model, loop.over) if isinstance(one, cst.Name)]
        if loop.function is call.function and not targets.isdisjoint(names):
            return loop
        function = loop.function
        for other in model.callers(function) if function is not None else ():
            given = [other.given_to(function, name) for name in names if function is not None]
            if other.function is call.function and any(
                is_name(x, name) for x in given for name in targets
            ):
                return loop
    return None
