"""Code that never runs, whatever the program is given: a fact of the syntax alone.

What stands behind ``return``, ``raise``, ``continue``, ``break`` or ``sys.exit()`` in its block, in
``if False:``, or behind a ``while True:`` that nothing leaves. A setting that is ``False`` today is
no such case: people turn it on. At the top of a file only conditions count, since the cells of a
notebook are run one by one. What else decides conditions of a whole program (``constants``) is
asked of who knows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.parts import children, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LEAVE = frozenset([cst.Return, cst.Raise, cst.Continue, cst.Break])
_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
_LOOPS = (cst.For, cst.While)
_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)
_SIMPLE = (cst.SimpleStatementLine, cst.SimpleStatementSuite)


def unreached(
    by_type: Mapping[type[cst.CSTNode], Sequence[cst.CSTNode]],
    decided: Mapping[cst.CSTNode, bool] | None = None,
) -> frozenset[cst.CSTNode]:
    """The nodes of a file that never run.

    Args:
        by_type: Its nodes by their types.
        decided: What is known of conditions of ``if`` besides.
    """
    ask = _Conditions(decided or {})
    roots: list[cst.CSTNode] = []
    for block in by_type.get(cst.IndentedBlock, ()):
        assert isinstance(block, cst.IndentedBlock)
        roots.extend(ask.behind(block.body))
    for node in by_type.get(cst.If, ()):
        assert isinstance(node, cst.If)
        known = ask.truth(node.test)
        if known is False:
            roots.append(node.body)
        elif known is True and node.orelse is not None:
            roots.append(node.orelse)
    for node in by_type.get(cst.While, ()):
        assert isinstance(node, cst.While)
        if truth(node.test) is False:
            roots.append(node.body)
    return frozenset(part for root in roots for part in walk(root))


class _Conditions:
    """Which statements go on to the next, by what is known of conditions."""

    def __init__(self, decided: Mapping[cst.CSTNode, bool]) -> None:
        self._decided = decided

    def truth(self, test: cst.BaseExpression) -> bool | None:
        """What a condition of an ``if`` is known to be."""
        known = self._decided.get(test)
        return truth(test) if known is None else known

    def behind(self, body: Sequence[cst.BaseStatement]) -> Sequence[cst.CSTNode]:
        """The statements of a block behind the first one that does not go on to the next.

        Functions and classes are only defined there: a name may be all that the rest needs of them.
        """
        for index, statement in enumerate(body):
            if self._ends(statement):
                return body[index + 1 :]
        return ()

    def _ends(self, statement: cst.CSTNode) -> bool:
        """Whether what stands behind a statement in its block never runs."""
        # By type and not by isinstance, which LibCST's abstract classes make slow.
        kind = type(statement)
        if kind is cst.SimpleStatementLine or kind is cst.SimpleStatementSuite:
            parts: Sequence[cst.CSTNode] = statement.body  # type: ignore[attr-defined]
            return any(type(part) in _LEAVE or _exits(part) for part in parts)
        if isinstance(statement, cst.If):
            return self._if_ends(statement)
        if isinstance(statement, cst.While):
            return truth(statement.test) is True and not _is_left(statement.body)
        return isinstance(statement, cst.Try) and self._try_ends(statement)

    def _try_ends(self, node: cst.Try) -> bool:
        if node.finalbody is not None and self._block_ends(node.finalbody.body):
            return True
        tried = [node.body, *([node.orelse.body] if node.orelse is not None else [])]
        handlers = (handler.body for handler in node.handlers)
        return any(map(self._block_ends, tried)) and all(map(self._block_ends, handlers))

    def _if_ends(self, node: cst.If) -> bool:
        known = self.truth(node.test)
        first = self._block_ends(node.body)
        other = False
        if isinstance(node.orelse, cst.If):
            other = self._if_ends(node.orelse)
        elif node.orelse is not None:
            other = self._block_ends(node.orelse.body)
        if known is None:
            return first and other
        return first if known else other

    def _block_ends(self, block: cst.BaseSuite) -> bool:
        if isinstance(block, cst.SimpleStatementSuite):
            return self._ends(block)
        return any(self._ends(statement) for statement in block.body)


def gives_up(handler: cst.ExceptHandler) -> bool:
    """Whether a program ends where a handler runs: it raises, or leaves by ``sys.exit(1)``."""
    lines = [handler.body, *handler.body.body]
    simple = (line for line in lines if isinstance(line, _SIMPLE))
    return any(isinstance(part, cst.Raise) or _exits(part) for line in simple for part in line.body)


def _exits(part: cst.CSTNode) -> bool:
    """``sys.exit(1)``, ``exit()`` and ``assert False``."""
    if type(part) is cst.Assert:
        return truth(part.test) is False
    if type(part) is not cst.Expr or type(part.value) is not cst.Call:
        return False
    return dotted_text(part.value.func) in _EXITS


def _is_left(body: cst.CSTNode) -> bool:
    """Whether a ``break`` of the loop itself stands in its body."""
    waiting: list[cst.CSTNode] = [body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Break):
            return True
        if isinstance(node, _LOOPS):
            # A ``break`` in the ``else`` of an inner loop is one of the outer.
            waiting.extend([node.orelse] if node.orelse is not None else [])
        elif not isinstance(node, _DEFINITIONS):
            waiting.extend(children(node))
    return False


def truth(test: cst.BaseExpression) -> bool | None:
    """What a literal is as a condition; None of anything else."""
    if is_logic(test):
        return combined(test, truth)
    if isinstance(test, cst.Name):
        return {"True": True, "False": False, "None": False}.get(test.value)
    if isinstance(test, cst.Integer):
        return test.evaluated_value != 0
    if isinstance(test, cst.SimpleString):
        return bool(test.evaluated_value)
    return None


def is_logic(test: cst.BaseExpression) -> bool:
    """Whether a condition is put together of others: ``not``, ``and``, ``or``."""
    return isinstance(test, cst.BooleanOperation) or (
        isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
    )


def combined(
    test: cst.BaseExpression, truth: Callable[[cst.BaseExpression], bool | None]
) -> bool | None:
    """What a condition of others is, if ``truth`` tells what these are; None if they do not say."""
    if isinstance(test, cst.UnaryOperation):
        inner = truth(test.expression)
        return None if inner is None else not inner
    assert isinstance(test, cst.BooleanOperation)
    # One part that is false decides ``and``, one that is true decides ``or``.
    parts = (truth(test.left), truth(test.right))
    deciding = isinstance(test.operator, cst.Or)
    if deciding in parts:
        return deciding
    return None if None in parts else not deciding
