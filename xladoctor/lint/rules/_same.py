"""What rules about files share: whether all cores compute the same, as for a path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, walk
from xladoctor.lint.model.conditions import asked_for_none, compared
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.elements import ASKS_ENVIRONMENT
from xladoctor.lint.model.frameworks import CALLBACKS, LIGHTNING_CALLBACKS
from xladoctor.lint.model.purpose import STARTED
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules._cores import asks_for_core, differs, is_unique, tells_core
from xladoctor.lint.rules._sources import gone_over
from xladoctor.lint.words import names_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
#: Packages whose functions make paths of paths.
_JOINS = ("os.path.", "pathlib.", "builtins.")
#: What writes a device into a text.
_WRITE_OUT = frozenset({"builtins.str", "builtins.repr", "format"})
#: Parameters by which frameworks hand what is equal on all cores to methods of callbacks, and
#: methods of a Trainer that it calls on each of them with a folder.
_HANDED = frozenset({"trainer", "pl_module", "state", "control", "output_dir"})
_TRAINERS_OWN = frozenset({"save_model", "_save_tpu", "_save_checkpoint", "create_model_card"})


def same_everywhere(
    model: FileModel, node: cst.BaseExpression, start: cst.CSTNode | None = None
) -> bool:
    """Whether an expression gives the same on all cores, and nothing says that it does not.

    All cores run one program with one command line. What is not seen (settings, a parameter that
    another file gives) is equal on them, unless its name speaks of the core, of the time or of a
    batch. Of several ways on which a path is made, one has to be seen, and none may differ.

    Args:
        model: The file.
        node: An expression that every core evaluates.
        start: What starts the cores, where it is known: what was made before is one for all.

    Returns:
        False also where it is made of a kind of expression that is not looked into.
    """
    return _Question(model, start).of(node) is True


class _Question:
    """One look at what an expression is made of, each part of which is asked about once.

    Answers are True (the same on all cores), False (each has its own) and None (not known).
    """

    def __init__(self, model: FileModel, start: cst.CSTNode | None) -> None:
        self._model = model
        self._home = model.function_of(start) if start is not None else None
        self._answers: dict[cst.CSTNode, bool | None] = {}

    def of(self, node: cst.BaseExpression) -> bool | None:
        if node not in self._answers:
            self._answers[node] = True  # it is what is being asked
            self._answers[node] = self._find(node)
        return self._answers[node]

    def _find(self, node: cst.BaseExpression) -> bool | None:
        if self._tells(node) or self._model.value(node).local or self._is_set_apart(node):
            return False
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.IfExp):
            # A condition on data (``if loss < best``) lets some cores write what others write too.
            asked = not differs(self._model, node.test)
            return _both(asked, self._ways([node.body, node.orelse]))
        if isinstance(node, cst.Comparison) and self._is_equal_test(node):
            return True
        parts = _parts(node)
        if parts is None:
            return False if differs(self._model, node) else None
        return self._all(parts)

    def _tells(self, node: cst.BaseExpression) -> bool:
        """Whether an expression itself is the core's own, or another one with each call."""
        if is_unique(self._model, node):
            return not self._is_before(node)
        return tells_core(self._model, node)

    def _is_set_apart(self, node: cst.BaseExpression) -> bool:
        """``args.out``, ``kept["out"]``, where a line sets it to what each core has for itself."""
        if not isinstance(node, cst.Attribute | cst.Subscript):
            return False
        given = self._model.once(_set_parts).get(self._model.tree.text(node), ())
        return any(
            isinstance(part, cst.BaseExpression) and self._tells(part)
            for value in given
            for part in walk(value)
        )

    def _is_before(self, node: cst.CSTNode, depth: int = 3) -> bool:
        """Whether one process evaluates it, which then starts the cores."""
        function = self._model.function_of(node)
        if function is None or self._home is None:
            return False
        if function is self._home:
            return self._model.on_every_core(node) is None
        callers = self._model.callers(function) if depth else ()
        return bool(callers) and all(self._is_before(one.node, depth - 1) for one in callers)

    def _all(self, nodes: Iterable[cst.BaseExpression | None]) -> bool | None:
        """The answer for what is made of all of these."""
        return _both(*(self.of(node) for node in nodes if node is not None))

    def _ways(self, nodes: Iterable[cst.BaseExpression | None]) -> bool | None:
        """The answer for what is one of these: None of Python is no path."""
        return _either([self.of(x) for x in nodes if x is not None and not is_name(x, "None")])

    def _is_equal_test(self, node: cst.Comparison) -> bool:
        """``x is None``, ``device == "cpu"``: cores of one program answer alike."""
        asked = asked_for_none(node)
        sides = compared(node)
        on = any(self._model.value(side).kind is Kind.DEVICE for side in sides)
        return on or (asked is not None and not differs(self._model, asked[0]))

    def _attribute(self, node: cst.Attribute) -> bool | None:
        if _is_setting(node.value) or node.attr.value in _COUNTED:
            return True
        if _OWN.search(node.attr.value) and not self._is_size(node):
            return False
        owner = self._model.class_around(node) if is_name(node.value, "self") else None
        if owner is not None:
            made = owner.methods.get(node.attr.value)
            if made is not None:  # a property
                return self._given_back(made)
            return self._ways(self._model.kept_in(node))
        return self.of(node.value)

    def _is_size(self, node: cst.Attribute) -> bool:
        """``net.batch`` where ``self.batch = int(args.batch)``: how many samples, and none."""
        value = self._model.value(node)
        return node.attr.value == "batch" and value.kind is Kind.NUMBER and value.certain

    def _given_back(self, function: Function) -> bool | None:
        lines = [one for one in walk(function.node.body) if isinstance(one, cst.Return)]
        return self._ways(line.value for line in lines)

    def _call(self, node: cst.Call) -> bool | None:
        call = self._model.call(node)
        if _OWN.search(call.name or call.last or "") or self._tells(node.func):
            return False
        if self._is_given(node.func):
            return None
        if call.name in ASKS_ENVIRONMENT and _OWN.search(self._model.tree.text(node)):
            return False
        target = call.target
        if isinstance(target, Class | Function) and asks_for_core(self._model, target.node):
            return False
        given = [argument.value for argument in node.args]
        if call.name not in _WRITE_OUT and call.last not in _WRITE_OUT:
            # ``load(path, device)``: where it goes to, and not a part of it.
            given = [x for x in given if self._model.value(x).kind is not Kind.DEVICE]
        if call.receiver is not None and is_name(call.receiver, "self"):
            back = self._given_back(target) if isinstance(target, Function) else True
            return _both(back, self._all(given))
        return self._all([*given, call.receiver])

    def _is_given(self, called: cst.BaseExpression) -> bool:
        """``stamp()``, where a caller gives the function: nobody sees what it makes."""
        return isinstance(called, cst.Name) and self._model.is_parameter(called)

    def _name(self, node: cst.Name) -> bool | None:
        if _is_setting(node):
            return True
        if _OWN.search(node.value):
            # By its name a guess, unless each line that sets it says what it is.
            every = self._model.bindings(node.value, node)
            said = bool(every) and all(one.kind == "assign" for one in every)
            return said and all(
                self._is_read(one.node) and self._binding(node, one) is True for one in every
            )
        bindings = [
            one
            for one in self._model.bindings(node.value, node)
            if not is_name(one.node, "None") or one.kind != "assign"
        ]
        found = [self._binding(node, one) for one in bindings]
        grows = any(
            answer is None and one.node is not None and node.value in names_in(one.node)
            for one, answer in zip(bindings, found, strict=True)
        )
        return _both(*found) if grows else _either(found)

    def _is_read(self, node: cst.CSTNode) -> bool:
        """Whether no function that nobody has read had a part in a value: paths are joined."""
        calls = (part for part in walk(node) if isinstance(part, cst.Call))
        return all((self._model.name(one.func) or "").startswith(_JOINS) for one in calls)

    def _binding(self, node: cst.Name, binding: Binding) -> bool | None:
        if binding.kind == "assign":
            return self.of(binding.node) if isinstance(binding.node, cst.BaseExpression) else None
        if binding.kind == "param":
            return self._parameter(node)
        if binding.kind == "other":
            opened = _opened(self._model, binding.node)
            if opened is not None:
                return self.of(opened)
            # A loop variable: an epoch or a step counter is equal, a value of a batch is not.
            if self._model.value(node).kind is Kind.NUMBER or _is_key(self._model, binding.node):
                return True
            given = _taken_from(self._model, binding.node)
            return False if given is None else self.of(given)
        return binding.kind in {"import", "function", "class"} or None

    def _parameter(self, node: cst.Name) -> bool | None:
        model, name = self._model, node.value
        function = model.with_parameter(node)
        if function is None:
            return self._is_of_settings(node) or None
        calls = model.callers(function)
        if calls:
            return self._ways(call.given_to(function, name) for call in calls)
        entry = model.on_every_core(node)
        if _is_of_framework(model, function, name) or function.name == "__init__":
            return True
        if entry is None or entry.function is not function:
            return None
        # What starts the cores gives each its number, and passes on the rest.
        numbered = entry.call is not None or function.name == STARTED
        return not numbered or function.place(name) != 0

    def _is_of_settings(self, node: cst.Name) -> bool:
        """``settings`` of ``def __init__(self, **settings)``, which the program gives."""
        around = self._model.functions_around(node)
        made = next((one for one in around if one.name == "__init__"), None)
        star = made.node.params.star_kwarg if made is not None else None
        return isinstance(star, cst.Param) and star.name.value == node.value


def _set_parts(model: FileModel) -> dict[str, list[cst.BaseExpression]]:
    """The values that a file sets attributes and items to, by the text of these."""
    found: dict[str, list[cst.BaseExpression]] = {}
    for line in model.nodes(cst.Assign):
        for target in line.targets:
            if isinstance(target.target, cst.Attribute | cst.Subscript):
                found.setdefault(model.tree.text(target.target), []).append(line.value)
    return found


def _both(*answers: bool | None) -> bool | None:
    """The answer for what is made of several things."""
    return False if False in answers else None if None in answers else True


def _either(answers: Sequence[bool | None]) -> bool | None:
    """The answer for what is one of several things: one way that is seen is enough."""
    return False if False in answers else True if True in answers or not answers else None


def _is_of_framework(model: FileModel, function: Function, name: str) -> bool:
    """``state`` of ``def on_save(self, args, state, control)``: what a framework hands to each."""
    owner = function.owner
    if owner is None:
        return False
    bases = set(model.library_bases(owner))
    heard = bases & LIGHTNING_CALLBACKS and function.name.startswith("on_")
    if heard and function.place(name) in {0, 1}:
        return True  # the Trainer and its module, whatever they are called
    if name not in _HANDED:
        return False
    hears = not CALLBACKS.isdisjoint(bases)
    return hears or (model.is_trainer(owner) and function.name in _TRAINERS_OWN)


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
    return isinstance(last, str) and names_settings(last)


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
