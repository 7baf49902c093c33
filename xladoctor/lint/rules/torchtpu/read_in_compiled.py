"""XLA866: a read inside a function that ``torch.compile`` compiles for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.events import How
from xladoctor.lint.library import Effect
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import not_here, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.events import Event
    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.syntax import Function

_COMPILE = "torch.compile"
_MEMBERS = frozenset({"torch_tpu", "torch_neuron"})
#: Casts that end the captured graph, and the method that does; ``.tolist()``, ``.cpu()`` and
#: ``print`` of a shape do not (run).
_CASTS = ("builtins.float", "builtins.int", "builtins.bool")


@rule("XLA866")
def read_in_compiled(model: FileModel) -> Iterator[Problem]:
    """Find ``.item()`` and casts of tensors in functions that are given to ``torch.compile``."""
    if not model.members & _MEMBERS or family.TORCH_XLA in model.members:
        return
    compiled = _compiled(model)
    if not compiled:
        return
    for event in model.effects.of(Effect.READ):
        function = model.function_of(event.node)
        where = None if function is None else compiled.get(function)
        if where is None or not _breaks(event) or not_here(model, event.node):
            continue
        says = (
            "raises, for fullgraph=True allows one graph only"
            if _whole(model, where)
            else "ends the graph there: two are compiled, and the host waits between them"
        )
        yield model.problem(
            event.node,
            f"{snippet(model, event.node)} inside a function that torch.compile compiles {says}",
            suggestion="keep it a tensor (torch.where for conditions), or read it outside",
            related=[model.place(where, "it is compiled here")],
        )


def _whole(model: FileModel, where: cst.CSTNode) -> bool:
    """Whether one graph is asked for."""
    if not isinstance(where, cst.Call):
        return False
    given = model.call(where).keywords.get("fullgraph")
    return given is not None and model.literal(given) is True


def _breaks(event: Event) -> bool:
    if event.call is None:
        return False
    if event.how is How.METHOD:
        return event.call.method == "item"
    return event.how is How.CAST and event.call.name in _CASTS


def _compiled(model: FileModel) -> Mapping[Function, cst.CSTNode]:
    """Functions of the file that torch.compile is given, and where."""
    found: dict[Function, cst.CSTNode] = {}
    for function in model.functions:
        for decorator in function.decorators:
            called = decorator.func if isinstance(decorator, cst.Call) else decorator
            if model.name(called) == _COMPILE:
                found[function] = decorator
    for call in model.calls(_COMPILE):
        given = call.argument(0, "model")
        value = None if given is None else model.value(given)
        if value is None:
            continue
        if value.function is not None:
            found.setdefault(value.function, call.node)
        elif value.instance is not None and "forward" in value.instance.cls.methods:
            found.setdefault(value.instance.cls.methods["forward"], call.node)
    return found
