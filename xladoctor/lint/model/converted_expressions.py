"""LibCST's expressions, made of those of Python's parser: see ``converted``."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor.lint.model.making import UnlikeError, maker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.rows import Rows

_name = maker(cst.Name, "value")
_attribute = maker(cst.Attribute, "value", "attr")
_call = maker(cst.Call, "func", "args")
_arg = maker(cst.Arg, "value", "keyword", "star")
_subscript = maker(cst.Subscript, "value", "slice")
_element_of = maker(cst.SubscriptElement, "slice")
_index = maker(cst.Index, "value", "star")
_slice = maker(cst.Slice, "lower", "upper", "step")
_binary = maker(cst.BinaryOperation, "left", "operator", "right")
_boolean = maker(cst.BooleanOperation, "left", "operator", "right")
_unary = maker(cst.UnaryOperation, "operator", "expression")
_comparison = maker(cst.Comparison, "left", "comparisons")
_compared = maker(cst.ComparisonTarget, "operator", "comparator")
_if = maker(cst.IfExp, "test", "body", "orelse")
_lambda = maker(cst.Lambda, "params", "body")
_tuple = maker(cst.Tuple, "elements")
_list = maker(cst.List, "elements")
_set = maker(cst.Set, "elements")
_element = maker(cst.Element, "value")
_starred = maker(cst.StarredElement, "value")
_dict = maker(cst.Dict, "elements")
_pair = maker(cst.DictElement, "key", "value")
_starred_pair = maker(cst.StarredDictElement, "value")
_list_comp = maker(cst.ListComp, "elt", "for_in")
_set_comp = maker(cst.SetComp, "elt", "for_in")
_generator = maker(cst.GeneratorExp, "elt", "for_in")
_dict_comp = maker(cst.DictComp, "key", "value", "for_in")
_comp_for = maker(cst.CompFor, "target", "iter", "ifs", "inner_for_in", "asynchronous")
_comp_if = maker(cst.CompIf, "test")
_walrus = maker(cst.NamedExpr, "target", "value")
_await = maker(cst.Await, "expression")
_yield = maker(cst.Yield, "value")
_from = maker(cst.From, "item")
_integer = maker(cst.Integer, "value")
_float = maker(cst.Float, "value")
_imaginary = maker(cst.Imaginary, "value")
_string = maker(cst.SimpleString, "value")
_joined = maker(cst.ConcatenatedString, "left", "right")
_ellipsis = maker(cst.Ellipsis)
_parameters = maker(
    cst.Parameters, "params", "star_arg", "kwonly_params", "star_kwarg", "posonly_params"
)
_param = maker(cst.Param, "name", "annotation", "default", "star")
_param_star = maker(cst.ParamStar)
_annotation = maker(cst.Annotation, "annotation")
_not_equal = maker(cst.NotEqual, "value")
_asynchronous = cst.Asynchronous()

_BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: maker(cst.Add),
    ast.Sub: maker(cst.Subtract),
    ast.Mult: maker(cst.Multiply),
    ast.MatMult: maker(cst.MatrixMultiply),
    ast.Div: maker(cst.Divide),
    ast.FloorDiv: maker(cst.FloorDivide),
    ast.Mod: maker(cst.Modulo),
    ast.Pow: maker(cst.Power),
    ast.LShift: maker(cst.LeftShift),
    ast.RShift: maker(cst.RightShift),
    ast.BitOr: maker(cst.BitOr),
    ast.BitAnd: maker(cst.BitAnd),
    ast.BitXor: maker(cst.BitXor),
}
_UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.Not: maker(cst.Not),
    ast.USub: maker(cst.Minus),
    ast.UAdd: maker(cst.Plus),
    ast.Invert: maker(cst.BitInvert),
}
_BOOLEAN: dict[type[ast.boolop], Callable[..., Any]] = {
    ast.And: maker(cst.And),
    ast.Or: maker(cst.Or),
}
_COMPARED: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: maker(cst.Equal),
    ast.NotEq: lambda: _not_equal("!="),
    ast.Lt: maker(cst.LessThan),
    ast.LtE: maker(cst.LessThanEqual),
    ast.Gt: maker(cst.GreaterThan),
    ast.GtE: maker(cst.GreaterThanEqual),
    ast.Is: maker(cst.Is),
    ast.IsNot: maker(cst.IsNot),
    ast.In: maker(cst.In),
    ast.NotIn: maker(cst.NotIn),
}
_NUMBERS: dict[type[object], Callable[..., Any]] = {
    int: _integer,
    float: _float,
    complex: _imaginary,
}
#: A text that is written in one piece, and what may stand between pieces.
_PIECE = re.compile(
    r"""[rRbBuU]{0,2}(?:'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"""
    r'''|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'''
    r"""|'[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'|"[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*")""",
    re.DOTALL,
)
_BETWEEN = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|\#[^\r\n]*)*")


class Expressions:
    """Makes expressions.

    Args:
        rows: What they were parsed from.
        twins: Is told which of LibCST's nodes are made of which of Python's.
    """

    def __init__(self, rows: Rows, twins: dict[cst.CSTNode, ast.AST]) -> None:
        self.rows = rows
        self.twins = twins
        self._by_type: dict[type[ast.AST], Callable[[Any], cst.CSTNode]] = {
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Constant: self._constant,
            ast.JoinedStr: self._formatted,
            ast.Subscript: self._subscript,
            ast.BinOp: self._binary,
            ast.BoolOp: self._boolean,
            ast.UnaryOp: self._unary,
            ast.Compare: self._comparison,
            ast.IfExp: self._if_expression,
            ast.Lambda: lambda node: _lambda(
                self.parameters(node.args), self.expression(node.body)
            ),
            ast.Tuple: lambda node: _tuple(self._elements(node.elts)),
            ast.List: lambda node: _list(self._elements(node.elts)),
            ast.Set: lambda node: _set(self._elements(node.elts)),
            ast.Dict: self._dict,
            ast.ListComp: lambda node: _list_comp(self.expression(node.elt), self._comp(node)),
            ast.SetComp: lambda node: _set_comp(self.expression(node.elt), self._comp(node)),
            ast.GeneratorExp: lambda node: _generator(self.expression(node.elt), self._comp(node)),
            ast.DictComp: lambda node: _dict_comp(
                self.expression(node.key), self.expression(node.value), self._comp(node)
            ),
            ast.NamedExpr: lambda node: _walrus(
                self.expression(node.target), self.expression(node.value)
            ),
            ast.Await: lambda node: _await(self.expression(node.value)),
            ast.Yield: lambda node: _yield(self.maybe(node.value)),
            ast.YieldFrom: lambda node: _yield(_from(self.expression(node.value))),
        }

    def expression(self, node: ast.expr) -> cst.CSTNode:
        """An expression."""
        made: cst.CSTNode
        if type(node) is ast.Name:
            made = _name(node.id)
        else:
            handler = self._by_type.get(type(node))
            if handler is None:
                raise UnlikeError
            made = handler(node)
        self.twins[made] = node
        return made

    def maybe(self, node: ast.expr | None) -> cst.CSTNode | None:
        """An expression that may be missing."""
        return None if node is None else self.expression(node)

    def name(self, text: str) -> cst.CSTNode:
        """A name that is no expression: what is defined or imported."""
        return _name(text)

    def dotted(self, text: str) -> cst.CSTNode:
        """The name of a module."""
        first, *rest = text.split(".")
        made = self.name(first)
        for part in rest:
            made = _attribute(made, _name(part))
        return made

    def tuple_of(self, nodes: Sequence[ast.expr]) -> cst.CSTNode:
        """A tuple that Python's parser does not take for one (of ``del a, b``)."""
        return _tuple(self._elements(nodes))

    def _attribute(self, node: ast.Attribute) -> cst.CSTNode:
        return _attribute(self.expression(node.value), _name(node.attr))

    def _call(self, node: ast.Call) -> cst.CSTNode:
        func = self.expression(node.func)
        args = [self.argument(item) for item in node.args]
        if node.keywords:
            args += [self.keyword(item) for item in node.keywords]
            if node.args and _place(node.args[-1]) > _place(node.keywords[0]):
                places = [*map(_place, node.args), *map(_place, node.keywords)]
                order = sorted(range(len(args)), key=places.__getitem__)
                args = [args[index] for index in order]
        return _call(func, tuple(args))

    def argument(self, node: ast.expr) -> cst.CSTNode:
        """An argument without a keyword."""
        made: cst.CSTNode
        if type(node) is ast.Starred:
            made = _arg(self.expression(node.value), None, "*")
        else:
            made = _arg(self.expression(node), None, "")
        self.twins[made] = node
        return made

    def keyword(self, node: ast.keyword) -> cst.CSTNode:
        """An argument with a keyword, or ``**more``."""
        value = self.expression(node.value)
        made: cst.CSTNode
        made = _arg(value, None, "**") if node.arg is None else _arg(value, _name(node.arg), "")
        self.twins[made] = node
        return made

    def _constant(self, node: ast.Constant) -> cst.CSTNode:
        value = node.value
        kind = type(value)
        made: cst.CSTNode
        if kind is str or kind is bytes:
            made = self._text(node)
        elif kind in _NUMBERS:
            made = _NUMBERS[kind](self.rows.text_of(node))
        elif value is Ellipsis:
            made = _ellipsis()
        else:
            made = _name(str(value))  # True, False, None
        return made

    def _text(self, node: ast.Constant) -> cst.CSTNode:
        text = self.rows.text_of(node)
        made: cst.CSTNode
        if _PIECE.fullmatch(text) is not None:
            return _string(text)
        pieces = []
        place = 0
        while place < len(text):
            piece = _PIECE.match(text, place)
            if piece is None:
                return self._parsed(text)  # one of them is formatted, and says nothing
            pieces.append(_string(piece.group()))
            between = _BETWEEN.match(text, piece.end())
            assert between is not None
            place = between.end()
        made = pieces.pop()
        while pieces:
            made = _joined(pieces.pop(), made)
        return made

    def _formatted(self, node: ast.JoinedStr) -> cst.CSTNode:
        return self._parsed(self.rows.text_of(node))

    def _parsed(self, text: str) -> cst.CSTNode:
        """What LibCST makes of texts that are written one behind the other."""
        try:
            return cst.parse_expression(f"({text})")
        except cst.ParserSyntaxError as error:
            raise UnlikeError from error

    def _subscript(self, node: ast.Subscript) -> cst.CSTNode:
        value = self.expression(node.value)
        index = node.slice
        parts: Sequence[ast.expr] = [index]
        if isinstance(index, ast.Tuple) and index.elts and not self._has_parentheses(index):
            parts = index.elts
            if len(parts) == 1 and isinstance(parts[0], ast.Starred):
                raise UnlikeError
        return _subscript(value, tuple([_element_of(self._index(part)) for part in parts]))

    def _index(self, node: ast.expr) -> cst.CSTNode:
        made: cst.CSTNode
        if type(node) is ast.Slice:
            made = _slice(self.maybe(node.lower), self.maybe(node.upper), self.maybe(node.step))
        else:
            made = _index(self.expression(node), None)
        return made

    def _has_parentheses(self, node: ast.Tuple) -> bool:
        """Whether a tuple stands in parentheses: ``(1, 2)``, but not ``(1), (2)``."""
        text = self.rows.text_of(node)
        if not text.startswith("("):
            return False
        if any(letter in text for letter in "\"'#"):
            raise UnlikeError  # there may be parentheses in a text
        depth = 0
        for place, letter in enumerate(text):
            depth += (letter in "([{") - (letter in ")]}")
            if depth == 0:
                return place == len(text) - 1
        raise UnlikeError

    def _binary(self, node: ast.BinOp) -> cst.CSTNode:
        left, right = self.expression(node.left), self.expression(node.right)
        return _binary(left, _BINARY[type(node.op)](), right)

    def _boolean(self, node: ast.BoolOp) -> cst.CSTNode:
        operator = _BOOLEAN[type(node.op)]
        first, *rest = node.values
        made = self.expression(first)
        for value in rest:
            made = _boolean(made, operator(), self.expression(value))
        return made

    def _unary(self, node: ast.UnaryOp) -> cst.CSTNode:
        return _unary(_UNARY[type(node.op)](), self.expression(node.operand))

    def _comparison(self, node: ast.Compare) -> cst.CSTNode:
        targets = [
            _compared(_COMPARED[type(operator)](), self.expression(value))
            for operator, value in zip(node.ops, node.comparators, strict=True)
        ]
        return _comparison(self.expression(node.left), tuple(targets))

    def _if_expression(self, node: ast.IfExp) -> cst.CSTNode:
        test, body = self.expression(node.test), self.expression(node.body)
        return _if(test, body, self.expression(node.orelse))

    def _elements(self, nodes: Sequence[ast.expr]) -> tuple[cst.CSTNode, ...]:
        return tuple(
            [
                _starred(self.expression(node.value))
                if type(node) is ast.Starred
                else _element(self.expression(node))
                for node in nodes
            ]
        )

    def _dict(self, node: ast.Dict) -> cst.CSTNode:
        elements = [
            _starred_pair(self.expression(value))
            if key is None
            else _pair(self.expression(key), self.expression(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return _dict(tuple(elements))

    def _comp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> cst.CSTNode:
        made: cst.CSTNode | None = None
        for item in reversed(node.generators):
            ifs = tuple([_comp_if(self.expression(test)) for test in item.ifs])
            target, iterated = self.expression(item.target), self.expression(item.iter)
            asynchronous = _asynchronous if item.is_async else None
            made = _comp_for(target, iterated, ifs, made, asynchronous)
        assert made is not None
        return made

    def parameters(self, node: ast.arguments) -> cst.CSTNode:
        """The parameters of a function."""
        positional = [*node.posonlyargs, *node.args]
        missing: list[ast.expr | None] = [None] * (len(positional) - len(node.defaults))
        defaults = [*missing, *node.defaults]
        params = [
            self._param(one, default, "") for one, default in zip(positional, defaults, strict=True)
        ]
        first = len(node.posonlyargs)
        only = tuple(
            [
                self._param(one, default, "")
                for one, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            ]
        )
        star: object = cst.MaybeSentinel.DEFAULT
        if node.vararg is not None:
            star = self._param(node.vararg, None, "*")
        elif only:
            star = _param_star()
        more = self._param(node.kwarg, None, "**") if node.kwarg is not None else None
        return _parameters(tuple(params[first:]), star, only, more, tuple(params[:first]))

    def _param(self, node: ast.arg, default: ast.expr | None, star: str) -> cst.CSTNode:
        annotation = None
        if node.annotation is not None:
            if type(node.annotation) is ast.Starred:
                raise UnlikeError
            annotation = _annotation(self.expression(node.annotation))
        made: cst.CSTNode = _param(_name(node.arg), annotation, self.maybe(default), star)
        self.twins[made] = node
        return made


def _place(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset
