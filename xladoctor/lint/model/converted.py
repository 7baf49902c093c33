"""LibCST's nodes of a file, made of what Python's own parser finds in it.

LibCST's parser takes a dozen times as long as Python's, most of it for white space, of which rules
ask nothing. So a file is parsed by Python, and the same LibCST nodes are made of that, without the
fields that hold white space and punctuation; ``syntax.Tree.complete`` has LibCST fill these in
where they are asked for. What this cannot say surely (``match``, odd line continuations, new
syntax) raises :class:`UnlikeError`, and LibCST parses the file. ``tests/lint/test_converted.py``
holds both trees to be equal, node by node.
"""

from __future__ import annotations

import ast
import itertools
import unicodedata
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor.lint.model.converted_expressions import Expressions
from xladoctor.lint.model.making import UnlikeError, maker
from xladoctor.lint.model.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_module = maker(cst.Module, "body")
_line = maker(cst.SimpleStatementLine, "body")
_suite = maker(cst.SimpleStatementSuite, "body")
_block = maker(cst.IndentedBlock, "body")
_expr = maker(cst.Expr, "value")
_assign = maker(cst.Assign, "targets", "value")
_target = maker(cst.AssignTarget, "target")
_ann_assign = maker(cst.AnnAssign, "target", "annotation", "value")
_annotation = maker(cst.Annotation, "annotation")
_aug_assign = maker(cst.AugAssign, "target", "operator", "value")
_return = maker(cst.Return, "value")
_pass = maker(cst.Pass)
_break = maker(cst.Break)
_continue = maker(cst.Continue)
_del = maker(cst.Del, "target")
_raise = maker(cst.Raise, "exc", "cause")
_assert = maker(cst.Assert, "test", "msg")
_global = maker(cst.Global, "names")
_nonlocal = maker(cst.Nonlocal, "names")
_name_item = maker(cst.NameItem, "name")
_import = maker(cst.Import, "names")
_import_from = maker(cst.ImportFrom, "module", "names", "relative")
_alias = maker(cst.ImportAlias, "name", "asname")
_as_name = maker(cst.AsName, "name")
_star = maker(cst.ImportStar)
_if = maker(cst.If, "test", "body", "orelse")
_else = maker(cst.Else, "body")
_for = maker(cst.For, "target", "iter", "body", "orelse", "asynchronous")
_while = maker(cst.While, "test", "body", "orelse")
_try = maker(cst.Try, "body", "handlers", "orelse", "finalbody")
_try_star = maker(cst.TryStar, "body", "handlers", "orelse", "finalbody")
_handler = maker(cst.ExceptHandler, "body", "type", "name")
_star_handler = maker(cst.ExceptStarHandler, "body", "type", "name")
_finally = maker(cst.Finally, "body")
_with = maker(cst.With, "items", "body", "asynchronous")
_with_item = maker(cst.WithItem, "item", "asname")
_function = maker(
    cst.FunctionDef,
    *("name", "params", "body", "decorators", "returns", "asynchronous", "type_parameters"),
)
_class = maker(cst.ClassDef, "name", "body", "bases", "keywords", "decorators", "type_parameters")
_decorator = maker(cst.Decorator, "decorator")
_from = maker(cst.From, "item")
_dot = cst.Dot()
_asynchronous = cst.Asynchronous()

_AUGMENTED: dict[type[ast.operator], Callable[[], cst.CSTNode]] = {
    ast.Add: maker(cst.AddAssign),
    ast.Sub: maker(cst.SubtractAssign),
    ast.Mult: maker(cst.MultiplyAssign),
    ast.MatMult: maker(cst.MatrixMultiplyAssign),
    ast.Div: maker(cst.DivideAssign),
    ast.FloorDiv: maker(cst.FloorDivideAssign),
    ast.Mod: maker(cst.ModuloAssign),
    ast.Pow: maker(cst.PowerAssign),
    ast.LShift: maker(cst.LeftShiftAssign),
    ast.RShift: maker(cst.RightShiftAssign),
    ast.BitOr: maker(cst.BitOrAssign),
    ast.BitAnd: maker(cst.BitAndAssign),
    ast.BitXor: maker(cst.BitXorAssign),
}


def converted(text: str, tree: ast.Module) -> tuple[cst.Module, dict[cst.CSTNode, ast.AST], Rows]:
    """LibCST's nodes of a file.

    Args:
        text: What the file holds.
        tree: What Python's parser made of it.

    Returns:
        The module; which of its nodes were made of which of Python's; and the rows of the text.

    Raises:
        UnlikeError: LibCST has to parse it.
    """
    # LibCST loses form feeds, and counts columns without them.
    if "\f" in text or (not text.isascii() and _is_spelled_otherwise(text)):
        raise UnlikeError
    rows = Rows(text)
    twins: dict[cst.CSTNode, ast.AST] = {}
    statements = _Statements(rows, twins)
    return _module(statements.grouped(tree.body)), twins, rows


def _is_spelled_otherwise(text: str) -> bool:
    """Whether a name may be written in other letters than Python reads in it."""
    if unicodedata.is_normalized("NFKC", text):
        return False
    for letter in {letter for letter in text if not letter.isascii()}:
        read = unicodedata.normalize("NFKC", letter)
        if read != letter and f"a{read}".isidentifier():
            return True
    # What is composed of several letters: that may be any of them.
    return unicodedata.normalize("NFC", text) != text


class _Statements(Expressions):
    """Makes statements."""

    def __init__(self, rows: Rows, twins: dict[cst.CSTNode, ast.AST]) -> None:
        super().__init__(rows, twins)
        self._statements: dict[type[ast.AST], Callable[[Any], cst.CSTNode]] = {
            ast.Expr: lambda node: _expr(self.expression(node.value)),
            ast.Assign: self._assign,
            ast.AnnAssign: self._ann_assign,
            ast.AugAssign: self._aug_assign,
            ast.Return: lambda node: _return(self.maybe(node.value)),
            ast.Pass: lambda _node: _pass(),
            ast.Break: lambda _node: _break(),
            ast.Continue: lambda _node: _continue(),
            ast.Delete: self._delete,
            ast.Raise: self._raise,
            ast.Assert: lambda node: _assert(self.expression(node.test), self.maybe(node.msg)),
            ast.Global: lambda node: _global(self._named(node.names)),
            ast.Nonlocal: lambda node: _nonlocal(self._named(node.names)),
            ast.Import: lambda node: _import(tuple(map(self._alias, node.names))),
            ast.ImportFrom: self._import_from,
        }
        self._compound: dict[type[ast.AST], Callable[[Any], cst.CSTNode]] = {
            ast.If: self._if,
            ast.For: lambda node: self._for(node, None),
            ast.AsyncFor: lambda node: self._for(node, _asynchronous),
            ast.While: self._while,
            ast.Try: lambda node: self._try(node, _try, _handler),
            ast.With: lambda node: self._with(node, None),
            ast.AsyncWith: lambda node: self._with(node, _asynchronous),
            ast.FunctionDef: lambda node: self._function(node, None),
            ast.AsyncFunctionDef: lambda node: self._function(node, _asynchronous),
            ast.ClassDef: self._class,
        }
        star = getattr(ast, "TryStar", None)
        if star is not None:
            self._compound[star] = lambda node: self._try(node, _try_star, _star_handler)

    def grouped(self, body: Sequence[ast.stmt]) -> tuple[cst.CSTNode, ...]:
        """The statements of a block: those on one row, with ``;`` between them, are one line."""
        found: list[cst.CSTNode] = []
        line: list[cst.CSTNode] = []
        end = 0
        for node in body:
            kind = type(node)
            if line and node.lineno != end:
                found.append(_line(tuple(line)))
                line = []
            handler = self._statements.get(kind)
            if handler is not None:
                if not line:
                    self._check_row(node)
                made = handler(node)
                self.twins[made] = node
                line.append(made)
                end = node.end_lineno or node.lineno
                continue
            compound = self._compound.get(kind)
            if compound is None or line:
                raise UnlikeError
            self._check_row(node)
            made = compound(node)
            self.twins[made] = node
            found.append(made)
        if line:
            found.append(_line(tuple(line)))
        return tuple(found)

    def _check_row(self, node: ast.stmt) -> None:
        """A statement begins a row of its own, and no backslash is what ends the row above."""
        row = node.lineno
        if row > 1 and self.rows.lines[row - 2].endswith("\\"):
            raise UnlikeError
        if self.rows.lines[row - 1][: node.col_offset].strip():
            raise UnlikeError

    def _body(self, body: Sequence[ast.stmt]) -> cst.CSTNode:
        first = body[0]
        if type(first) in self._statements:
            row = first.lineno
            before = self.rows.before(row, first.col_offset)
            if before and not before.isspace():
                if body[-1].lineno != row:
                    self._check_suite(body)
                made = []
                for node in body:
                    part = self._statements[type(node)](node)
                    self.twins[part] = node
                    made.append(part)
                return _suite(tuple(made))
        return _block(self.grouped(body))

    def _check_suite(self, body: Sequence[ast.stmt]) -> None:
        """``if a: b; c``: each on the row on which the one before it ends."""
        for one, other in itertools.pairwise(body):
            if other.lineno != one.end_lineno or type(other) not in self._statements:
                raise UnlikeError

    # Simple statements

    def _assign(self, node: ast.Assign) -> cst.CSTNode:
        targets = tuple([_target(self.expression(item)) for item in node.targets])
        return _assign(targets, self.expression(node.value))

    def _ann_assign(self, node: ast.AnnAssign) -> cst.CSTNode:
        target = self.expression(node.target)
        annotation = _annotation(self.expression(node.annotation))
        return _ann_assign(target, annotation, self.maybe(node.value))

    def _aug_assign(self, node: ast.AugAssign) -> cst.CSTNode:
        target = self.expression(node.target)
        return _aug_assign(target, _AUGMENTED[type(node.op)](), self.expression(node.value))

    def _delete(self, node: ast.Delete) -> cst.CSTNode:
        if len(node.targets) == 1:
            if self.rows.text_of(node).endswith(","):
                raise UnlikeError
            return _del(self.expression(node.targets[0]))
        return _del(self.tuple_of(node.targets))

    def _raise(self, node: ast.Raise) -> cst.CSTNode:
        cause = _from(self.expression(node.cause)) if node.cause is not None else None
        return _raise(self.maybe(node.exc), cause)

    def _named(self, names: Sequence[str]) -> tuple[cst.CSTNode, ...]:
        return tuple(_name_item(self.name(item)) for item in names)

    def _alias(self, node: ast.alias) -> cst.CSTNode:
        asname = _as_name(self.name(node.asname)) if node.asname is not None else None
        made: cst.CSTNode = _alias(self.dotted(node.name), asname)
        self.twins[made] = node
        return made

    def _import_from(self, node: ast.ImportFrom) -> cst.CSTNode:
        module = self.dotted(node.module) if node.module is not None else None
        star = node.names[0].name == "*"
        names = _star() if star else tuple(map(self._alias, node.names))
        return _import_from(module, names, (_dot,) * node.level)

    # Compound statements

    def _orelse(self, body: Sequence[ast.stmt]) -> cst.CSTNode | None:
        return _else(self._body(body)) if body else None

    def _if(self, node: ast.If) -> cst.CSTNode:
        test, body = self.expression(node.test), self._body(node.body)
        other = node.orelse
        inner = other[0] if len(other) == 1 else None
        if type(inner) is ast.If and self._is_elif(inner):
            made = self._if(inner)
            self.twins[made] = inner
            return _if(test, body, made)
        return _if(test, body, self._orelse(other))

    def _is_elif(self, node: ast.If) -> bool:
        return self.rows.lines[node.lineno - 1].startswith("elif", node.col_offset)

    def _for(self, node: ast.For | ast.AsyncFor, asynchronous: object) -> cst.CSTNode:
        target, iterated = self.expression(node.target), self.expression(node.iter)
        body = self._body(node.body)
        return _for(target, iterated, body, self._orelse(node.orelse), asynchronous)

    def _while(self, node: ast.While) -> cst.CSTNode:
        test, body = self.expression(node.test), self._body(node.body)
        return _while(test, body, self._orelse(node.orelse))

    def _try(self, node: Any, make: Callable[..., Any], handler: Callable[..., Any]) -> cst.CSTNode:
        body = self._body(node.body)
        handlers = tuple([self._handled(item, handler) for item in node.handlers])
        orelse = self._orelse(node.orelse)
        final = _finally(self._body(node.finalbody)) if node.finalbody else None
        made: cst.CSTNode = make(body, handlers, orelse, final)
        return made

    def _handled(self, node: ast.ExceptHandler, make: Callable[..., Any]) -> cst.CSTNode:
        name = _as_name(self.name(node.name)) if node.name is not None else None
        made: cst.CSTNode = make(self._body(node.body), self.maybe(node.type), name)
        self.twins[made] = node
        return made

    def _with(self, node: ast.With | ast.AsyncWith, asynchronous: object) -> cst.CSTNode:
        items = []
        for item in node.items:
            bound = item.optional_vars
            asname = _as_name(self.expression(bound)) if bound is not None else None
            items.append(_with_item(self.expression(item.context_expr), asname))
        return _with(tuple(items), self._body(node.body), asynchronous)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, asynchronous: object
    ) -> cst.CSTNode:
        if getattr(node, "type_params", None):
            raise UnlikeError
        returns = _annotation(self.expression(node.returns)) if node.returns is not None else None
        params = self.parameters(node.args)
        decorators = self._decorators(node.decorator_list)
        body = self._body(node.body)
        return _function(
            self.name(node.name), params, body, decorators, returns, asynchronous, None
        )

    def _class(self, node: ast.ClassDef) -> cst.CSTNode:
        if getattr(node, "type_params", None):
            raise UnlikeError
        bases = tuple(map(self.argument, node.bases))
        keywords = tuple(map(self.keyword, node.keywords))
        decorators = self._decorators(node.decorator_list)
        return _class(
            self.name(node.name), self._body(node.body), bases, keywords, decorators, None
        )

    def _decorators(self, found: Sequence[ast.expr]) -> tuple[cst.CSTNode, ...]:
        return tuple([_decorator(self.expression(item)) for item in found])
