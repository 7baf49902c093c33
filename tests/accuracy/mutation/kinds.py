"""What a fault is, and ways of planting one: a call edited, a line in the step, a setting."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import libcst as cst

from tests.accuracy.mutation.planting import (
    backward,
    body_of,
    called,
    code,
    expression,
    having,
    keyword,
    only_call,
    places,
    statements,
    with_imports,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.accuracy.mutation.planting import Edit, Mutation, Program

XM = "import torch_xla.core.xla_model as xm"
XR = "import torch_xla.runtime as xr"
TORCH = "import torch"
#: Calls of the entry point.
STARTS = ("torch_xla.launch", "xmp.spawn")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        name: Its name in the table.
        codes: The codes that tell it; any of them counts.
        plant: From a healthy program to the programs that have it, one for each place.
        needs: What the program's text must hold for it to be a fault.
        unless: What must not be in it.
    """

    name: str
    codes: tuple[str, ...]
    plant: Callable[[Program], Iterator[Mutation]]
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    def mutations(self, program: Program) -> Iterator[Mutation]:
        """What makes the programs with the fault; nothing where it would be no fault."""
        text = program.text
        fits = not self.needs or any(word in text for word in self.needs)
        if fits and not any(word in text for word in self.unless):
            yield from self.plant(program)


def calls(
    edit: Callable[[cst.Call], object], *imports: str
) -> Callable[[Program], Iterator[Mutation]]:
    return lambda program: places(program, cst.Call, edit, imports)  # type: ignore[arg-type]


def lines(edit: Edit, *imports: str) -> Callable[[Program], Iterator[Mutation]]:
    return lambda program: places(program, cst.SimpleStatementLine, edit, imports)


def in_step(text: str, *imports: str, first: str = "") -> Callable[[Program], Iterator[Mutation]]:
    """Statements at the end of the step (``LOSS``: what it goes backward from) and at its start."""

    def edit(block: cst.CSTNode) -> object:
        body = body_of(block)
        losses = [found for line in body if (found := backward(line)) is not None]
        if not losses:
            return None
        new = statements(text.replace("LOSS", losses[-1]))
        end = next((n for n, line in enumerate(body) if code(line).startswith("return")), len(body))
        return block.with_changes(body=[*statements(first), *body[:end], *new, *body[end:]])

    return lambda program: places(program, cst.IndentedBlock, edit, imports)


def before_backward(text: str, *imports: str) -> Callable[[Program], Iterator[Mutation]]:
    def edit(line: cst.CSTNode) -> object:
        loss = backward(line)
        if loss is None:
            return None
        return cst.FlattenSentinel([*statements(text.replace("LOSS", loss)), line])

    return lines(edit, *imports)


def around_loop(before: str, inside: str, *imports: str) -> Callable[[Program], Iterator[Mutation]]:
    """A statement before the step loop and one at the end of each of its turns."""

    def edit(loop: cst.CSTNode) -> object:
        body = body_of(loop.body)  # type: ignore[attr-defined]
        losses = [found for line in body if (found := backward(line)) is not None]
        if not losses:
            return None
        new = statements(inside.replace("LOSS", losses[-1]))
        block = loop.body.with_changes(body=[*body, *new])  # type: ignore[attr-defined]
        return cst.FlattenSentinel([*statements(before), loop.with_changes(body=block)])

    return lambda program: places(program, cst.For, edit, imports)


def renamed(old: str, new: str) -> Callable[[cst.Call], object]:
    return lambda call: call.with_changes(func=expression(new)) if called(call) == old else None


def removed(*names: str) -> Edit:
    """Edit: a statement goes that is a call of one of these (``.x``: of a method)."""

    def edit(line: cst.CSTNode) -> object:
        call = only_call(line)
        if call is None:
            return None
        name = called(call)
        fits = any(name == item or (item[0] == "." and name.endswith(item)) for item in names)
        return cst.RemoveFromParent() if fits else None

    return edit


def master_only(*names: str) -> Edit:
    """Edit: only the master core comes to a statement that calls one of these."""

    def edit(line: cst.CSTNode) -> object:
        call = only_call(line)
        if call is None or called(call) not in names:
            return None
        block = cst.IndentedBlock([line])  # type: ignore[list-item]
        return cst.If(expression("xm.is_master_ordinal()"), block)

    return edit


def setting(callee: str, name: str, value: str | None) -> Callable[[cst.Call], object]:
    def edit(call: cst.Call) -> object:
        if called(call).split(".")[-1] != callee:
            return None
        if value is None:
            return without(call, name) if keyword(call, name) else None
        return having(call, **{name: value})

    return edit


def environment(line: str, *imports: str) -> Callable[[Program], Iterator[Mutation]]:
    def plant(program: Program) -> Iterator[Mutation]:
        yield lambda: with_imports(program.module, [*imports, line])

    return plant


def behind(
    fits: Callable[[str], str | None], *imports: str
) -> Callable[[Program], Iterator[Mutation]]:
    """Statements behind each line for which ``fits`` gives them, from the line as written."""

    def edit(line: cst.CSTNode) -> object:
        text = fits(code(line))
        return None if text is None else cst.FlattenSentinel([line, *statements(text)])

    return lines(edit, *imports)


def ahead(
    fits: Callable[[str], str | None], *imports: str
) -> Callable[[Program], Iterator[Mutation]]:
    """Statements before each line for which ``fits`` gives them, from the line as written."""

    def edit(line: cst.CSTNode) -> object:
        text = fits(code(line))
        return None if text is None else cst.FlattenSentinel([*statements(text), line])

    return lines(edit, *imports)


def counted(text: str, *imports: str) -> Callable[[Program], Iterator[Mutation]]:
    """A statement at the end of step loops that count their turns (``STEP``, ``LOSS``)."""

    def edit(loop: cst.CSTNode) -> object:
        body = body_of(loop.body)  # type: ignore[attr-defined]
        losses = [found for line in body if (found := backward(line)) is not None]
        elements = getattr(loop.target, "elements", ())  # type: ignore[attr-defined]
        if not losses or not elements or called(loop.iter) != "enumerate":  # type: ignore[attr-defined]
            return None
        new = text.replace("LOSS", losses[-1]).replace("STEP", code(elements[0].value))
        block = loop.body.with_changes(body=[*body, *statements(new)])  # type: ignore[attr-defined]
        return loop.with_changes(body=block)

    return lambda program: places(program, cst.For, edit, imports)


def functions(
    edit: Callable[[cst.FunctionDef], object], *imports: str
) -> Callable[[Program], Iterator[Mutation]]:
    return lambda program: places(program, cst.FunctionDef, edit, imports)  # type: ignore[arg-type]


def argument(
    callee: str, old: str, new: str, *imports: str
) -> Callable[[Program], Iterator[Mutation]]:
    """A text replaced in the arguments of the calls of a function."""

    def edit(call: cst.Call) -> object:
        text = code(call)
        start = len(code(call.func))
        if called(call) != callee or old not in text[start:]:
            return None
        return expression(text[:start] + text[start:].replace(old, new))

    return calls(edit, *imports)
