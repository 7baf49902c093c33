"""The value of expressions: names, conditions and texts.

That of calls: ``callvalue``; of ``x.name``: ``attributes``; of ``a + b``: ``operators``; of
``[a, b]`` and ``kept[i]``: ``elements``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.attributes import Attributes
from xladoctor.lint.model.by_name import ByName
from xladoctor.lint.model.callvalue import CallEvaluator
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.elements import Elements
from xladoctor.lint.model.guesses import said_by_name
from xladoctor.lint.model.helpers import gives_back_first
from xladoctor.lint.model.iterators import hands_on
from xladoctor.lint.model.operators import Operators
from xladoctor.lint.model.purpose import names_xla
from xladoctor.lint.model.syntax import Class, Function, children
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Arguments,
    Instance,
    Kind,
    Value,
    defined,
    join,
    of_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame

_LITERALS = frozenset([cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString])


class Evaluator:
    """Evaluates expressions in a frame and records what each of them is.

    Args:
        flow: The run that the frames belong to.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.by_name = ByName(flow.tree, flow.names)
        self.calls = CallEvaluator(self)
        self.operators = Operators(self)
        self.attributes = Attributes(self)
        elements = Elements(self)
        self.spread = elements.spread
        self._by_type: dict[type[cst.CSTNode], Callable[..., Value]] = {
            cst.Name: self._name,
            cst.Attribute: self.attributes.evaluate,
            cst.Call: self.calls.evaluate,
            cst.BinaryOperation: self.operators.binary,
            cst.BooleanOperation: self.operators.boolean,
            cst.UnaryOperation: self.operators.unary,
            cst.Comparison: self.operators.comparison,
            cst.IfExp: self._if_expression,
            cst.Subscript: elements.subscript,
            cst.Tuple: elements.sequence,
            cst.List: elements.sequence,
            cst.Set: elements.sequence,
            cst.Dict: elements.dictionary,
            cst.ListComp: elements.comprehension,
            cst.SetComp: elements.comprehension,
            cst.GeneratorExp: elements.comprehension,
            cst.DictComp: elements.comprehension,
            cst.NamedExpr: self._named,
            cst.Lambda: self._lambda,
            cst.Await: self._inner,
            cst.Yield: self._yield,
            cst.FormattedString: self._formatted,
            cst.ConcatenatedString: self._formatted,
        }

    def evaluate(self, node: cst.BaseExpression, frame: Frame) -> Value:
        """The value of an expression."""
        # By type and not by isinstance, which LibCST's abstract classes make slow.
        kind = type(node)
        if kind in _LITERALS:
            if kind is cst.SimpleString and names_xla(node):  # type: ignore[arg-type]
                value = Value(Kind.DEVICE, certain=True, origin=node)
                self.flow.record(node, value)
                return value
            return NUMBER
        handler = self._by_type.get(kind)
        value = handler(node, frame) if handler is not None else self.inside(node, frame)
        self.flow.record(node, value)
        return value

    def decorated(
        self, decorator: cst.BaseExpression, definition: Class | Function, frame: Frame
    ) -> None:
        """A class or function is handed to a decorator of the program.

        A registry may keep it; one that wraps a function gives back another, which runs it.
        """
        if type(decorator) is cst.Name and self.flow.names.resolve(decorator) is not None:
            return  # ``property`` and the like
        called = self.evaluate(decorator, frame)
        if called.kind is not Kind.FUNCTION or called.function is None:
            return
        result = self.calls.enter(None, called.function, called, [(None, defined(definition))])
        if isinstance(definition, Function) and not gives_back_first(called.function):
            wrapper = result.function if result.kind is Kind.FUNCTION else None
            if wrapper is not None and wrapper.outer is called.function:
                self.flow.memory.wrap(definition, wrapper)

    def inherited_by(self, cls: Class) -> None:
        """``def __init_subclass__(cls)`` of a base class, which may keep the class."""
        method = self.flow.classes.inherited(cls, "__init_subclass__")
        if method is not None:
            bound = Value(Kind.FUNCTION, function=method, instance=Instance(cls, None))
            self.calls.enter(None, method, bound, ())

    def guess(self, text: str) -> Value:
        """What a name says about its value, in a file for XLA devices; never certain."""
        if not self.flow.belief.believes():
            return UNKNOWN
        return said_by_name(text.rpartition(".")[2])

    def _inner(self, node: cst.Await, frame: Frame) -> Value:
        return self.evaluate(node.expression, frame)

    def _yield(self, node: cst.Yield, frame: Frame) -> Value:
        if isinstance(node.value, cst.BaseExpression):
            value = container(self.evaluate(node.value, frame))
            loop = hands_on(self.flow, node)
            over = frame.over.get(loop, UNKNOWN) if loop is not None else UNKNOWN
            if over.is_loader:
                value = over
            frame.result = value if frame.result is None else join(frame.result, value)
        elif isinstance(node.value, cst.From):
            value = self.evaluate(node.value.item, frame)
            frame.result = value if frame.result is None else join(frame.result, value)
        return UNKNOWN

    def inside(self, node: cst.CSTNode, frame: Frame) -> Value:
        """Evaluate the expressions in a node that is nothing by itself."""
        for child in children(node):
            if isinstance(child, cst.BaseExpression):
                self.evaluate(child, frame)
            else:
                self.inside(child, frame)
        return UNKNOWN

    def _formatted(self, node: cst.FormattedString | cst.ConcatenatedString, frame: Frame) -> Value:
        self.inside(node, frame)
        for part in node.parts if isinstance(node, cst.FormattedString) else ():
            if isinstance(part, cst.FormattedStringExpression):
                self.shown(node, self.evaluate(part.expression, frame))
        return NUMBER

    def shown(self, node: cst.BaseExpression, value: Value) -> None:
        """``print(f"{meter}")``: the call around a text makes a text of each object in it."""
        if value.kind is Kind.OBJECT and self.flow.classes.objects(value):
            call = self.around(node)
            if call is not None:
                self.calls.as_text(call, value)

    def around(self, node: cst.CSTNode) -> cst.Call | None:
        """The call that an expression is given to, in the same statement."""
        for parent in self.flow.tree.ancestors(node):
            if isinstance(parent, cst.Call):
                return parent
            if isinstance(parent, cst.BaseSuite):
                break
        return None

    def _name(self, node: cst.Name, frame: Frame) -> Value:
        if node.value in {"True", "False", "None"}:
            return NUMBER
        value = self.flow.memory.lookup(node.value, frame)
        if value is not None and value.kind is not Kind.UNKNOWN:
            return value
        definition = self.flow.names.definition(node)
        if definition is not None:
            return defined(definition)
        name = self.flow.names.resolve(node)
        if name is not None:
            return NUMBER if name in know.CONSTANTS else UNKNOWN
        imported = self.flow.memory.imported(node)
        if imported is not None:
            return imported
        guessed = self.guess(node.value)
        if value is None:
            return guessed
        if guessed.kind is Kind.UNKNOWN:
            return value
        return guessed.but(local=True) if value.local else guessed

    def _if_expression(self, node: cst.IfExp, frame: Frame) -> Value:
        test = self.evaluate(node.test, frame)
        if self.for_cuda(node.test, frame):
            return self.evaluate(node.orelse, frame)
        env, narrowed = frame.env, self.flow.statements.narrowing.narrowed
        frame.env = narrowed(node.test, env, when=True)
        value = self.evaluate(node.body, frame)
        frame.env = narrowed(node.test, env, when=False)
        other = self.evaluate(node.orelse, frame)
        asked, text = self.flow.statements.narrowing.asked_of(node.test), self.flow.tree.text
        if asked is not None and text(asked).strip() == text(node.orelse).strip():
            other = of_type(other, tensor=False)  # ``x[0].item() if is_tensor(x[0]) else x[0]``
        value = join(value, other)
        frame.env = env
        return value.but(local=True) if test.local and value.kind is Kind.NUMBER else value

    def for_cuda(self, test: cst.BaseExpression, frame: Frame) -> bool:
        """Whether a condition is ``x.is_cuda`` of a tensor on the XLA device, where it is False."""
        return (
            isinstance(test, cst.Attribute)
            and test.attr.value == "is_cuda"
            and self.evaluate(test.value, frame).is_device_tensor
        )

    def _named(self, node: cst.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        self.flow.statements.assign(node.target, value, frame)
        return value

    def _lambda(self, node: cst.Lambda, frame: Frame) -> Value:
        function = self.flow.tree.functions[node]
        return Value(Kind.FUNCTION, certain=True, function=function, instance=frame.instance)

    def arguments(self, node: cst.Call, frame: Frame) -> Arguments:
        """The arguments of a call: (keyword or None, value); starred ones as "*"."""
        found = []
        for argument in node.args:
            value = self.evaluate(argument.value, frame)
            keyword = argument.keyword.value if argument.keyword is not None else None
            found.append((argument.star or keyword, value))
        return found
