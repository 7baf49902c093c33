"""What rules about files share: whether all cores compute the same, as for a path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.elements import ASKS_ENVIRONMENT
from xladoctor.lint.model.purpose import STARTED
from xladoctor.lint.rules._cores import SETTINGS, asks_for_core, differs
from xladoctor.lint.rules._sources import gone_over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.lint.model import FileModel
    from xladoctor.lint.model.definitions import Binding

#: Words of names whose values each process has for itself, or that change with each call.
_OWN = re.compile(
    r"(?i)(?<![a-z])(te?mp|temporary|unique|uuid|guid|random|rand|now|today|time|timestamp|date|pid|hostname"
    r"|next|batch|wandb|rank|ordinal|replica|worker|shard)(?![a-z])"
)
#: What Lightning counts, on all cores alike.
_COUNTED = frozenset({"current_epoch", "global_step"})
#: What each core has a share of.
_DATA = re.compile(r"(?i)load|data|batch|sampl")


def same_everywhere(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether nothing says that what an expression gives is another one on each core.

    All cores run one program with one command line. What is not seen (settings, a parameter that
    another file gives) is equal on them, unless its name speaks of the core, of the time or of a
    batch.

    Args:
        model: The file.
        node: An expression that every core evaluates.

    Returns:
        False also where it is made of a kind of expression that is not looked into.
    """
    return _Question(model).same(node)


class _Question:
    """One look at what an expression is made of, each part of which is asked about once."""

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._asked: set[cst.CSTNode] = set()

    def same(self, node: cst.BaseExpression) -> bool:
        if node in self._asked:
            return True  # it is what is being asked, or was
        self._asked.add(node)
        if differs(self._model, node) or self._model.value(node).local:
            return False
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        parts = _parts(node)
        return parts is not None and self._all(parts)

    def _all(self, nodes: Iterable[cst.BaseExpression | None]) -> bool:
        return all(self.same(node) for node in nodes if node is not None)

    def _attribute(self, node: cst.Attribute) -> bool:
        if _is_setting(node.value) or node.attr.value in _COUNTED:
            return True
        if _OWN.search(node.attr.value):
            return False
        owner = self._model.class_around(node) if is_name(node.value, "self") else None
        if owner is not None:
            made = owner.methods.get(node.attr.value)
            if made is not None:  # a property
                lines = (one for one in walk(made.node.body) if isinstance(one, cst.Return))
                return self._all(line.value for line in lines)
            return self._all(self._model.kept_in(node))
        return self.same(node.value)

    def _call(self, node: cst.Call) -> bool:
        call = self._model.call(node)
        if _OWN.search(call.name or call.last or "") or self._is_given(node.func):
            return False
        if call.name in ASKS_ENVIRONMENT and _OWN.search(self._model.tree.text(node)):
            return False
        target = call.target
        if isinstance(target, Class | Function) and asks_for_core(self._model, target.node):
            return False
        return self._all([*(argument.value for argument in node.args), call.receiver])

    def _is_given(self, called: cst.BaseExpression) -> bool:
        """``stamp()``, where a caller gives the function: nobody sees what it makes."""
        return isinstance(called, cst.Name) and self._model.is_parameter(called)

    def _name(self, node: cst.Name) -> bool:
        if _is_setting(node):
            return True
        return _OWN.search(node.value) is None and all(
            self._binding(node, binding) for binding in self._model.bindings(node.value, node)
        )

    def _binding(self, node: cst.Name, binding: Binding) -> bool:
        if binding.kind == "assign":
            return isinstance(binding.node, cst.BaseExpression) and self.same(binding.node)
        if binding.kind == "param":
            return self._parameter(node)
        if binding.kind == "other":
            opened = _opened(self._model, binding.node)
            if opened is not None:
                return self.same(opened)
            # A loop variable: an epoch or a step counter is equal, a value of a batch is not.
            if self._model.value(node).kind is Kind.NUMBER or _is_key(self._model, binding.node):
                return True
            given = _taken_from(self._model, binding.node)
            return given is not None and self.same(given)
        return binding.kind in {"import", "function", "class"}

    def _parameter(self, node: cst.Name) -> bool:
        model, name = self._model, node.value
        function = model.with_parameter(node)
        if function is None:
            return False
        calls = model.callers(function)
        if not calls:
            entry = model.on_every_core(node)
            if entry is None or entry.function is not function:
                return function.name == "__init__"
            # What starts the cores gives each its number, and passes on the rest.
            numbered = entry.call is not None or function.name == STARTED
            return not numbered or function.place(name) != 0
        return self._all(call.given_to(function, name) for call in calls)


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """What an expression is made of; None for kinds that are not looked into."""
    if isinstance(node, cst.SimpleString | cst.Integer | cst.Float):
        return []
    if isinstance(node, cst.FormattedString):
        return [x.expression for x in node.parts if isinstance(x, cst.FormattedStringExpression)]
    if isinstance(node, cst.BinaryOperation | cst.BooleanOperation | cst.ConcatenatedString):
        return [node.left, node.right]
    if isinstance(node, cst.UnaryOperation):
        return [node.expression]
    if isinstance(node, cst.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, cst.Comparison):
        return compared(node)
    if isinstance(node, cst.Tuple | cst.List | cst.Dict):
        return [one.value for one in node.elements]
    if isinstance(node, cst.ListComp | cst.GeneratorExp | cst.SetComp):
        return [node.elt, node.for_in.iter]
    if isinstance(node, cst.Subscript):
        places = [one.slice.value for one in node.slice if isinstance(one.slice, cst.Index)]
        keys = (one for one in places if isinstance(one, cst.SimpleString))
        return None if any(_OWN.search(one.value) for one in keys) else [node.value, *places]
    return None


def _is_setting(node: cst.BaseExpression) -> bool:
    """Whether an expression is by its name the program's settings: ``args``, ``training_args``."""
    last = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", None)
    return isinstance(last, str) and last.lower().rpartition("_")[2] in SETTINGS


def _opened(model: FileModel, target: cst.CSTNode) -> cst.BaseExpression | None:
    """``open(path)`` of ``with open(path) as file:``."""
    line = model.parent(target)
    item = model.parent(line) if isinstance(line, cst.AsName) else None
    given = item.item if isinstance(item, cst.WithItem) else None
    return given if isinstance(given, cst.Call) and model.call(given).last == "open" else None


def _is_key(model: FileModel, target: cst.CSTNode) -> bool:
    """``for name in scores``, ``for name, _ in scores.items()`` of a dictionary of known keys."""
    part = model.taken(target)
    if part is None or isinstance(part.line, cst.Assign):
        return False
    over: cst.BaseExpression | None = part.value
    if isinstance(over, cst.Call):
        call, element = model.call(over), model.parent(target)
        pair = model.parent(element) if isinstance(element, cst.Element) else None
        first = isinstance(pair, cst.Tuple) and pair.elements[0] is element
        if call.method != "keys" and not (call.method == "items" and first):
            return False
        over = call.receiver
    return over is not None and bool(model.value(over).entries)


def _taken_from(model: FileModel, target: cst.CSTNode) -> cst.BaseExpression | None:
    """``folder, name = os.path.split(path)``, ``for name in names``; not what goes over data."""
    line = model.parent(target)
    if isinstance(line, cst.AugAssign):
        return line.value
    part = model.taken(target)
    if part is None or isinstance(part.line, cst.Assign):
        return None if part is None else part.value
    within = [*gone_over(model, part.value)]
    data = any(_DATA.search(model.tree.text(one)) for one in within)
    return None if data else within[-1]
