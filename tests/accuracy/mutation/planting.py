"""Tools for planting a fault at one place of a program: LibCST, one place at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import libcst as cst
import libcst.matchers as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    #: What takes the place of a node; None: the fault has no place here.
    Edit: TypeAlias = "Callable[[cst.CSTNode], object]"
    #: Makes the mutated program.
    Mutation: TypeAlias = "Callable[[], cst.Module]"


_Node = TypeVar("_Node", bound=cst.CSTNode)
#: The nodes that faults are planted at.
KINDS = (cst.Call, cst.SimpleStatementLine, cst.IndentedBlock, cst.For, cst.If, cst.FunctionDef)


class Program:
    """A program to plant faults in, its nodes collected once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.module = cst.parse_module(text)
        self.nodes: dict[type[cst.CSTNode], list[cst.CSTNode]] = {kind: [] for kind in KINDS}
        waiting: list[cst.CSTNode] = [self.module]
        while waiting:
            node = waiting.pop()
            if type(node) in self.nodes:
                self.nodes[type(node)].append(node)
            waiting.extend(reversed(node.children))


def places(
    program: Program, kind: type[cst.CSTNode], edit: Edit, imports: Sequence[str] = ()
) -> Iterator[Mutation]:
    """What makes the program with the edit at one place, for each place that it fits.

    Args:
        program: A healthy program.
        kind: The nodes that the edit is asked about.
        edit: Gives what takes a node's place, or None where it does not fit.
        imports: Import statements that the edited program needs; none is added twice.
    """
    for node in program.nodes[kind]:
        edited = edit(node)
        if edited is not None:
            yield lambda node=node, edited=edited: with_imports(  # type: ignore[misc]
                program.module.deep_replace(node, edited), imports
            )


class _Everywhere(cst.CSTTransformer):
    def __init__(self, edit: Edit) -> None:
        super().__init__()
        self.edit = edit

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        edited = self.edit(updated_node)
        return updated_node if edited is None else edited


def everywhere(node: _Node, edit: Edit) -> _Node:
    """A module, or a part of it, with the edit made wherever it fits."""
    return cast("_Node", node.visit(_Everywhere(edit)))


def with_imports(module: cst.Module, imports: Sequence[str]) -> cst.Module:
    """The module with import statements behind its docstring and its ``__future__`` imports."""
    present = {module.code_for_node(line).strip() for line in module.body}
    new = [cst.parse_statement(text) for text in imports if text not in present]
    start = 0
    for number, line in enumerate(module.body):
        if m.matches(line, m.SimpleStatementLine(body=[m.Expr(m.SimpleString())])) or m.matches(
            line, m.SimpleStatementLine(body=[m.ImportFrom(module=m.Name("__future__"))])
        ):
            start = number + 1
    return module.with_changes(body=[*module.body[:start], *new, *module.body[start:]])


def code(node: cst.CSTNode) -> str:
    """A node as Python."""
    return cst.Module([]).code_for_node(node).strip()


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def statements(text: str) -> list[cst.BaseStatement]:
    return list(cst.parse_module(text).body)  # type: ignore[arg-type]


def called(node: cst.CSTNode) -> str:
    """The name that a call is written with, or ''."""
    return code(node.func) if isinstance(node, cst.Call) else ""


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument of a call that is given by a name."""
    return next((arg for arg in call.args if arg.keyword and arg.keyword.value == name), None)


def without(call: cst.Call, *names: str) -> cst.Call:
    """A call without arguments that are given by name."""
    kept = [arg for arg in call.args if not (arg.keyword and arg.keyword.value in names)]
    return call.with_changes(args=_tidy(kept))


def having(call: cst.Call, **values: str) -> cst.Call:
    """A call with further arguments by name, replacing those of the same name."""
    new = [cst.Arg(expression(text), cst.Name(name)) for name, text in values.items()]
    return call.with_changes(args=_tidy([*without(call, *values).args, *new]))


def _tidy(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    ends = [cst.MaybeSentinel.DEFAULT if arg is args[-1] else comma for arg in args]
    return [arg.with_changes(comma=end) for arg, end in zip(args, ends, strict=True)]


def only_call(line: cst.CSTNode) -> cst.Call | None:
    """The call that a statement consists of: ``f(x)`` or ``y = f(x)``."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    value = getattr(line.body[0], "value", None)
    return value if isinstance(value, cst.Call) else None


def body_of(node: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    """The statements of a block (nothing for a line such as ``if x: y``)."""
    return node.body if isinstance(node, cst.IndentedBlock) else ()  # type: ignore[return-value]


def backward(line: cst.CSTNode) -> str | None:
    """The name that a statement goes backward from: ``x.backward()``, ``fabric.backward(x)``."""
    call = only_call(line)
    if call is None or not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value != "backward":
        return None
    loss = code(call.args[0].value) if call.args else code(call.func.value)
    return loss if loss.isidentifier() else None
