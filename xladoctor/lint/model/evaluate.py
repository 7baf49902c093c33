"""The value of expressions: names, attributes, operators, comprehensions. Calls: ``callvalue``."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import booleans
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.callvalue import CallEvaluator
from xladoctor.lint.model.contained import container, element_of, without_places
from xladoctor.lint.model.dotted import dotted_text, string
from xladoctor.lint.model.iterators import iterated
from xladoctor.lint.model.records import HOLDERS
from xladoctor.lint.model.syntax import Class, Function, children
from xladoctor.lint.model.turns import both_sides
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Instance, Kind, Value, join, likely

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame

#: A device by its name: ``device = "xla"``.
_XLA = re.compile(r"""^["']xla(:\d+)?["']$""")
#: What an optimizer asks of a parameter.
_OF_PARAMETERS = frozenset({"grad", "data"})
#: What leaves masks masks.
_LOGICAL = frozenset([cst.BitAnd, cst.BitOr, cst.BitXor])
_LOGICAL_ASSIGN = frozenset([cst.BitAndAssign, cst.BitOrAssign, cst.BitXorAssign])
_LITERALS = frozenset([cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString])


#: What settings name, and do not hold.
_NAMED_IN_SETTINGS = frozenset({Kind.MODEL, Kind.OPTIMIZER, Kind.LOSS})


class Evaluator:
    """Evaluates expressions in a frame and records what each of them is.

    Args:
        flow: The run that the frames belong to.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._calls = CallEvaluator(self)
        self._by_type: dict[type[cst.CSTNode], Callable[..., Value]] = {
            cst.Name: self._name,
            cst.Attribute: self._attribute,
            cst.Call: self._calls.evaluate,
            cst.BinaryOperation: self._binary,
            cst.BooleanOperation: self._boolean,
            cst.UnaryOperation: self._unary,
            cst.Comparison: self._comparison,
            cst.IfExp: self._if_expression,
            cst.Subscript: self._subscript,
            cst.Tuple: self._sequence,
            cst.List: self._sequence,
            cst.Set: self._sequence,
            cst.Dict: self._dict,
            cst.ListComp: self._comprehension,
            cst.SetComp: self._comprehension,
            cst.GeneratorExp: self._comprehension,
            cst.DictComp: self._comprehension,
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
            if kind is cst.SimpleString and _XLA.match(node.value):  # type: ignore[attr-defined]
                return Value(Kind.DEVICE, certain=True, origin=node)
            return NUMBER
        handler = self._by_type.get(kind)
        value = handler(node, frame) if handler is not None else self.inside(node, frame)
        self.flow.record(node, value)
        return value

    def augmented(self, node: cst.AugAssign, frame: Frame) -> Value:
        """What ``target += value`` leaves in the target."""
        before = self.evaluate(node.target, frame)
        logical = type(node.operator) in _LOGICAL_ASSIGN
        return combine(before, self.evaluate(node.value, frame), logical=logical)

    def decorated(self, decorator: cst.BaseExpression, cls: Class, frame: Frame) -> None:
        """A class is handed to a decorator of the program, which may keep it: a registry."""
        called = self.evaluate(decorator, frame)
        if called.kind is Kind.FUNCTION and called.function is not None:
            self._calls.enter(None, called.function, called, [(None, _defined(cls))])

    def guess(self, text: str) -> Value:
        """What a name says about its value, in a file for XLA devices; never certain."""
        if not self.flow.believes():
            return UNKNOWN
        return _guessed(text.rpartition(".")[2])

    def _inner(self, node: cst.Await, frame: Frame) -> Value:
        return self.evaluate(node.expression, frame)

    def _yield(self, node: cst.Yield, frame: Frame) -> Value:
        if isinstance(node.value, cst.BaseExpression):
            value = container(self.evaluate(node.value, frame))
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
                self._shown(node, self.evaluate(part.expression, frame))
        return NUMBER

    def _shown(self, node: cst.BaseExpression, value: Value) -> None:
        """``print(f"{meter}")``: the call around a text makes a text of each object in it."""
        if value.kind is Kind.OBJECT and self.flow.objects(value):
            call = self._around(node)
            if call is not None:
                self._calls.as_text(call, value)

    def _around(self, node: cst.CSTNode) -> cst.Call | None:
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
        value = self.flow.lookup(node.value, frame)
        if value is not None and value.kind is not Kind.UNKNOWN:
            return value
        definition = self.flow.names.definition(node)
        if definition is not None:
            return _defined(definition)
        if self.flow.names.resolve(node) is not None:
            return UNKNOWN
        imported = self.flow.imported(node)
        if imported is not None:
            return imported
        guessed = self.guess(node.value)
        if value is None:
            return guessed
        if guessed.kind is Kind.UNKNOWN:
            return value
        return guessed.but(local=True) if value.local else guessed

    def _attribute(self, node: cst.Attribute, frame: Frame) -> Value:
        if self.flow.names.resolve(node) is not None:
            return UNKNOWN
        imported = self.flow.imported(node)
        if imported is not None:
            definition = self.flow.names.definition(node)
            return imported if definition is None else _defined(definition)
        static = self._static(node)
        if static is not None:
            return Value(Kind.FUNCTION, certain=True, function=static)
        holder = self.evaluate(node.value, frame)
        held = frame.env.get(dotted_text(node) or "")
        if held is None or held.kind is Kind.UNKNOWN:
            said = self._where_it_runs(holder, self._said_by(node, holder, frame), frame)
            if held is None:
                return self.flow.as_device(dotted_text(node) or "", said, frame)
            if said.kind is not Kind.UNKNOWN:  # as for a plain name
                return said.but(local=True) if held.local else said
        return held

    def _static(self, node: cst.Attribute) -> Function | None:
        """``Texts.collate``: a static method by its class."""
        cls = self.flow.names.definition(node.value)
        method = self.flow.method(cls, node.attr.value) if isinstance(cls, Class) else None
        return method if method is not None and method.is_static else None

    def _where_it_runs(self, holder: Value, part: Value, frame: Frame) -> Value:
        """``self.net`` in a step of Lightning's: the module and all in it are on the device."""
        if part.kind is not Kind.MODEL or part.on_device or holder.instance is None:
            return part
        step = frame.function
        if step is None or step.owner is None or not self.flow.believes():
            return part
        lightning = self.flow.hooks.inherits(step.owner, know.LIGHTNING_MODULES)
        return part.but(on_device=True) if lightning and self.flow.hooks.hook(step) else part

    def _said_by(self, node: cst.Attribute, holder: Value, frame: Frame) -> Value:
        """What an attribute is by its object, or by its name."""
        name = node.attr.value
        if name == "__dict__":
            return self.attributes_of(holder)
        if holder.kind is Kind.CONTAINER and holder.type_name in HOLDERS:
            return element_of(holder)
        held = [self._stored(one, node) for one in self.flow.objects(holder)]
        known = [value for value in held if value is not None]
        if known:
            stored = self._placed(holder, functools.reduce(join, known), frame)
            if stored.kind is not Kind.UNKNOWN:
                return stored
            if stored is not None and stored.local:  # ``meter.auc``: of one core, whatever it is
                return self._named_so(node, holder, frame).but(local=True)
        return self._named_so(node, holder, frame)

    def attributes_of(self, holder: Value) -> Value:
        """``self.__dict__``, ``vars(self)``: all that is kept of an object."""
        kept = [self.flow.all_stored(one) for one in self.flow.objects(holder)]
        return container(functools.reduce(join, kept)) if kept else UNKNOWN

    def _named_so(self, node: cst.Attribute, holder: Value, frame: Frame) -> Value:
        """What an attribute is by its name, where its object does not tell."""
        name = node.attr.value
        if name in know.MASTER_ATTRIBUTES or know.MASTER_NAME.match(name):
            return Value(Kind.IS_MASTER, certain=True, origin=node, local=True)
        if name in know.CORE_NUMBER_ATTRIBUTES:
            return Value(Kind.CORE_NUMBER, certain=True, origin=node, local=True)
        if holder.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}:
            return self._tensor_attribute(holder, name)
        if name in _OF_PARAMETERS and self._is_parameter(holder, frame):
            return Value(Kind.DEVICE_TENSOR, origin=node, local=name == "grad")
        if holder.kind is Kind.MODEL and name in know.OF_LAYERS and holder.instance is None:
            # ``self.head.weight``
            moved = self._is_moved(holder, frame)
            return Value(Kind.DEVICE_TENSOR, origin=node) if moved else UNKNOWN
        return self._other_attribute(node, holder)

    def _placed(self, holder: Value, stored: Value, frame: Frame) -> Value:
        """``self.scale``, a parameter or buffer: in a module's methods it is where that is."""
        owned = stored.kind is Kind.CPU_TENSOR and stored.type_name == know.PARAMETER
        if not owned or holder.kind is not Kind.MODEL:
            return stored
        if self._is_moved(holder, frame):
            return Value(Kind.DEVICE_TENSOR, origin=stored.origin, boolean=stored.boolean)
        return UNKNOWN if self._runs_in_module(frame) else stored

    def _is_moved(self, holder: Value, frame: Frame) -> bool:
        """Whether a module is on the device: it was moved, or runs one of its methods there."""
        runs = self._runs_in_module(frame)
        if holder.on_device or self.flow.believes():
            return holder.on_device or runs
        # In a file that does not name XLA: where what it is given is.
        given = frame.function.parameters if runs and frame.function is not None else ()
        return any(frame.env[name].is_device_tensor for name in given if name in frame.env)

    def _runs_in_module(self, frame: Frame) -> bool:
        """Whether the code that runs is a method of a module, which may have been moved since."""
        method = frame.function
        return (
            method is not None
            and method.owner is not None
            and method.name != "__init__"
            and self.flow.hooks.is_module(method.owner)
        )

    def _is_parameter(self, holder: Value, frame: Frame) -> bool:
        """``p`` in the step of the program's own optimizer: what else has a gradient there?"""
        unknown = holder.kind is Kind.UNKNOWN and self.flow.believes()
        return unknown and self.flow.hooks.is_of_optimizer(frame.function)

    def _other_attribute(self, node: cst.Attribute, holder: Value) -> Value:
        name = node.attr.value
        if holder.is_loader:
            return UNKNOWN
        if holder.kind is Kind.OBJECT and holder.type_name == "accelerate.Accelerator":
            return Value(Kind.DEVICE, origin=node) if name == "device" else UNKNOWN
        if holder.made_of_device and name not in know.HOST_ATTRIBUTES:
            return holder
        if name in know.SHAPES:  # numbers, whatever has them
            return NUMBER
        if holder.kind is Kind.MODEL and know.INNER_MODELS.search(name):
            return Value(Kind.MODEL, origin=holder.origin, on_device=holder.on_device)
        guessed = self.guess(name) if dotted_text(node) is not None else UNKNOWN
        if guessed.kind in _NAMED_IN_SETTINGS and know.SETTINGS_NAME.search(_last_of(node.value)):
            return UNKNOWN  # ``args.model`` says which
        if holder.kind is Kind.OBJECT and holder.local and guessed == UNKNOWN:
            return Value(local=True)  # ``meter.avg``
        return guessed

    def _tensor_attribute(self, holder: Value, name: str) -> Value:
        if name in know.HOST_ATTRIBUTES:
            return NUMBER
        if name == "device":
            kind = Kind.DEVICE if holder.is_device_tensor else Kind.OTHER_DEVICE
            return likely(holder).but(kind=kind, local=False)
        if name in know.TENSOR_ATTRIBUTES:
            return holder
        # A model's output may be an object: ``outputs.loss``, ``outputs.logits``.
        return likely(holder)

    def _stored(self, instance: Instance, node: cst.Attribute) -> Value | None:
        value = self.flow.stored(instance, node.attr.value)
        if value is not None:
            return value
        method = self.flow.method(instance.cls, node.attr.value)
        if method is None:
            return None
        if any(_last_of(one) in know.PROPERTIES for one in method.decorators):
            # ``print(meter.mean)``: the call around it runs the method.
            return self.flow.enter(self._around(node), method, instance, {}, named=True)
        return Value(Kind.FUNCTION, certain=True, function=method, instance=instance)

    def _binary(self, node: cst.BinaryOperation, frame: Frame) -> Value:
        left = self.evaluate(node.left, frame)
        right = self.evaluate(node.right, frame)
        text = cst.SimpleString | cst.ConcatenatedString | cst.FormattedString
        if isinstance(node.operator, cst.Modulo) and isinstance(node.left, text):
            for value in right.items or (right,):
                self._shown(node, value)
            return NUMBER.but(local=right.local)
        if booleans.MASTERS & {left.kind, right.kind} and both_sides(node) is not None:
            return booleans.both(left, right, together=isinstance(node.operator, cst.BitAnd))
        return combine(left, right, logical=type(node.operator) in _LOGICAL)

    def _boolean(self, node: cst.BooleanOperation, frame: Frame) -> Value:
        left = self.evaluate(node.left, frame)
        right = self.evaluate(node.right, frame)
        return booleans.both(left, right, together=isinstance(node.operator, cst.And))

    def _unary(self, node: cst.UnaryOperation, frame: Frame) -> Value:
        value = self.evaluate(node.expression, frame)
        if not isinstance(node.operator, cst.Not):
            return value
        flipped = {
            Kind.IS_MASTER: Kind.NOT_MASTER,
            Kind.NOT_MASTER: Kind.IS_MASTER,
            Kind.CORE_NUMBER: Kind.IS_MASTER,
        }
        if value.kind in flipped:
            return value.but(kind=flipped[value.kind])
        return NUMBER.but(local=value.local)

    def _comparison(self, node: cst.Comparison, frame: Frame) -> Value:
        left = self.evaluate(node.left, frame)
        rest = [self.evaluate(item.comparator, frame) for item in node.comparisons]
        operator = node.comparisons[0].operator
        local = left.local or any(value.local for value in rest)
        if isinstance(operator, cst.Is | cst.IsNot) and _is_none(node.comparisons[0].comparator):
            return NUMBER  # whether there is a value at all, not which
        if isinstance(operator, cst.Is | cst.IsNot | cst.In | cst.NotIn):
            return NUMBER.but(local=local and left.kind is not Kind.DEVICE_TENSOR)
        for number, other in ((left, node.comparisons[0].comparator), (rest[0], node.left)):
            if isinstance(other, cst.Integer) and (
                number.kind is Kind.CORE_NUMBER or self._says_core(node, number, other)
            ):
                return _asks_for_master(number, operator, other.value)
        tensor = functools.reduce(combine, rest, left)
        if tensor.kind in booleans.TENSORS:
            return tensor.but(boolean=True)
        if tensor.made_of_device:
            return tensor
        return NUMBER.but(local=local)

    def _says_core(self, node: cst.Comparison, number: Value, other: cst.Integer) -> bool:
        """``rank == 0`` of a rank that comes from elsewhere: the environment, a helper's module."""
        if other.value != "0" or number.kind not in {Kind.UNKNOWN, Kind.NUMBER}:
            return False
        text = dotted_text(node.left) or ""
        return self.flow.believes() and bool(know.CORE_NAME.search(text.rpartition(".")[2]))

    def _if_expression(self, node: cst.IfExp, frame: Frame) -> Value:
        test = self.evaluate(node.test, frame)
        if self.for_cuda(node.test, frame):
            return self.evaluate(node.orelse, frame)
        env, narrowed = frame.env, self.flow.statements.narrowing.narrowed
        frame.env = narrowed(node.test, env, when=True)
        value = self.evaluate(node.body, frame)
        frame.env = narrowed(node.test, env, when=False)
        value = join(value, self.evaluate(node.orelse, frame))
        frame.env = env
        return value.but(local=True) if test.local and value.kind is Kind.NUMBER else value

    def for_cuda(self, test: cst.BaseExpression, frame: Frame) -> bool:
        """Whether a condition is ``x.is_cuda`` of a tensor on the XLA device, where it is False."""
        return (
            isinstance(test, cst.Attribute)
            and test.attr.value == "is_cuda"
            and self.evaluate(test.value, frame).is_device_tensor
        )

    def _subscript(self, node: cst.Subscript, frame: Frame) -> Value:
        holder = self.evaluate(node.value, frame)
        for element in node.slice:
            self.inside(element, frame)
        text = dotted_text(node.value)
        if text == "os.environ":
            return NUMBER
        found = self._element(node, holder)
        if found.kind is Kind.UNKNOWN and holder.kind in {Kind.UNKNOWN, Kind.CONTAINER}:
            return self._by_key(node) or found
        return found

    def _by_key(self, node: cst.Subscript) -> Value | None:
        """``config["device"]``, ``cfg["DEVICE"]``."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        key = index.value if isinstance(index, cst.Index) else None
        if not isinstance(key, cst.SimpleString):
            return None
        guessed = self.guess(str(string(key)).lower())
        return guessed if guessed.kind is Kind.DEVICE else None

    def _element(self, node: cst.Subscript, holder: Value) -> Value:
        """What ``holder[...]`` is by what is known of the holder."""
        if holder.kind is Kind.CONTAINER:
            index = node.slice[0].slice if len(node.slice) == 1 else None
            if isinstance(index, cst.Slice):
                return holder
            number = index.value if isinstance(index, cst.Index) else None
            if holder.items is not None and isinstance(number, cst.Integer):
                place = int(number.value.replace("_", ""), 0)
                if place < len(holder.items):
                    return holder.items[place]
            return element_of(holder)
        if holder.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER}:
            return holder
        if holder.kind is Kind.MODEL and holder.element is not None:
            return element_of(holder)
        return Value(local=holder.local, made_of_device=holder.made_of_device)

    def _sequence(self, node: cst.Tuple | cst.List | cst.Set, frame: Frame) -> Value:
        items = [self.evaluate(element.value, frame) for element in node.elements]
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return container(None)
        fixed = tuple(items) if isinstance(node, cst.Tuple | cst.List) and items else None
        return container(functools.reduce(join, items) if items else None, fixed)

    def _dict(self, node: cst.Dict, frame: Frame) -> Value:
        values: list[Value] = []
        for element in node.elements:
            value = self.evaluate(element.value, frame)
            if isinstance(element, cst.DictElement):
                self.evaluate(element.key, frame)
            else:
                value = element_of(value)  # ``{"loss": loss, **parts}``
            values.append(value)
        return container(functools.reduce(join, values) if values else None)

    def _comprehension(self, node: cst.BaseComp, frame: Frame) -> Value:
        outside = dict(frame.env)
        self._comp_for(node.for_in, frame)
        if isinstance(node, cst.DictComp):
            self.evaluate(node.key, frame)
            value = self.evaluate(node.value, frame)
        else:
            value = self.evaluate(node.elt, frame)  # type: ignore[attr-defined]
        frame.env = outside
        return container(value)

    def _comp_for(self, node: cst.CompFor, frame: Frame) -> None:
        over = iterated(self.flow, node.iter, self.evaluate(node.iter, frame))
        self.flow.statements.assign(node.target, element_of(over), frame)
        for item in node.ifs:
            self.evaluate(item.test, frame)
        if node.inner_for_in is not None:
            self._comp_for(node.inner_for_in, frame)

    def _named(self, node: cst.NamedExpr, frame: Frame) -> Value:
        value = self.evaluate(node.value, frame)
        self.flow.statements.assign(node.target, value, frame)
        return value

    def _lambda(self, node: cst.Lambda, frame: Frame) -> Value:
        del frame
        function = self.flow.tree.functions[node]
        return Value(Kind.FUNCTION, certain=True, function=function)

    def arguments(self, node: cst.Call, frame: Frame) -> Sequence[tuple[str | None, Value]]:
        """The arguments of a call: (keyword or None, value); starred ones as "*"."""
        found = []
        for argument in node.args:
            value = self.evaluate(argument.value, frame)
            keyword = argument.keyword.value if argument.keyword is not None else None
            found.append((argument.star or keyword, value))
        return found


@functools.lru_cache(maxsize=10_000)
def _guessed(name: str) -> Value:
    if know.DEVICE_NAME.search(name):
        return Value(Kind.DEVICE)
    if know.OPTIMIZER_NAME.search(name):
        return Value(Kind.OPTIMIZER)
    if know.LOSS_NAME.search(name):
        return Value(Kind.LOSS)
    if know.DEVICE_LOADER_NAME.search(name):
        return Value(Kind.DEVICE_LOADER)
    if know.MODEL_NAME.search(name):
        return Value(Kind.MODEL)
    if know.MASTER_NAME.match(name):
        return Value(Kind.IS_MASTER, local=True)
    if name in know.ACCELERATORS:
        return Value(Kind.OBJECT, type_name=know.ACCELERATOR_CLASS)
    return UNKNOWN


def combine(left: Value, right: Value, *, logical: bool = False) -> Value:
    """What an arithmetic operator makes of two values; ``logical``: one of ``&``, ``|``, ``^``."""
    if Kind.NOTHING in {left.kind, right.kind}:
        return join(left, right)
    local = left.local or right.local
    for kind in (Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY):
        sides = [value for value in (left, right) if value.kind is kind]
        if sides:
            if kind is not Kind.DEVICE_TENSOR and Kind.UNKNOWN in {left.kind, right.kind}:
                return Value(local=local)
            best = next((value for value in sides if value.certain), sides[0])
            return best.but(local=local, boolean=logical and (left.boolean or right.boolean))
    if left.kind is Kind.CONTAINER and right.kind is Kind.CONTAINER:
        return without_places(join(left, right))
    if Kind.CONTAINER in {left.kind, right.kind}:
        return left if left.kind is Kind.CONTAINER else right
    if Kind.UNKNOWN in {left.kind, right.kind}:
        return Value(local=local, made_of_device=left.made_of_device or right.made_of_device)
    return NUMBER.but(local=local)


def _last_of(node: cst.BaseExpression) -> str:
    return (dotted_text(node) or "").rpartition(".")[2]


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _asks_for_master(number: Value, operator: cst.BaseCompOp, literal: str) -> Value:
    kind = Kind.NUMBER
    if literal == "0" and isinstance(operator, cst.Equal):
        kind = Kind.IS_MASTER
    elif literal == "0" and isinstance(operator, cst.NotEqual | cst.GreaterThan | cst.LessThan):
        kind = Kind.NOT_MASTER
    return number.but(kind=kind, local=True)


def _defined(definition: Function | Class) -> Value:
    """A function or class as a value."""
    if isinstance(definition, Function):
        return Value(Kind.FUNCTION, certain=True, function=definition)
    return Value(Kind.FUNCTION, certain=True, makes=frozenset({definition}))
