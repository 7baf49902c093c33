"""What a setting may be: literals, what callers give, defaults that hold unless they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import only_returned
from xladoctor.lint.rules._constants import constant, written_default
from xladoctor.lint.rules._sources import given_to_cores, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, Class, FileModel

#: Names, parameters and attributes on the way to where a setting is written.
_DEPTH = 5
_NUMBERS: Mapping[str, type] = {"builtins.float": float, "builtins.int": int, "builtins.str": str}
_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv"})
_UNKNOWN: Sequence[object] = (NotImplemented,)


def settled(model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH) -> Sequence[object]:
    """All values that an expression may have; ``NotImplemented`` for what the program does not say.

    Knows what ``constant`` knows, both sides of ``8 if fp16 else None`` and ``multiple or None``,
    parameters (what callers give, and what starts the cores, else their default, which also holds
    where nobody calls) and
    attributes of ``self`` that come from these, or from the fields of a dataclass, the default of
    an environment variable, also as a number, and functions of the program that give back no more.
    """
    value = constant(model, node)
    if value is not NotImplemented or depth == 0:
        return (value,)
    if isinstance(node, cst.IfExp):
        return (*settled(model, node.body, depth - 1), *settled(model, node.orelse, depth - 1))
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        left = settled(model, node.left, depth - 1)
        first = [one for one in left if one is NotImplemented or one]
        return (*first, *settled(model, node.right, depth - 1))
    if isinstance(node, cst.Call):
        return _of_call(model, node, depth)
    if isinstance(node, cst.Name):
        return _of_name(model, node, depth)
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        return _of_attribute(model, node, node.value, depth)
    return _UNKNOWN


def by_default(model: FileModel, node: cst.BaseExpression) -> Sequence[object]:
    """The same for a program that is run with the defaults of its settings.

    Where these choose (``"max_length" if args.pad else False``), only what they choose counts.
    """
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = by_default(model, node.expression)
        return [one if one is NotImplemented else not one for one in inner]
    picked = chosen(model, node)
    return _UNKNOWN if picked is None else settled(model, picked)


def chosen(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """What ``a if args.pad else b`` is by default, also through a name; None if that is open."""
    for _ in range(_DEPTH):
        made = model.assigned_once(node) if isinstance(node, cst.Name) else None
        if isinstance(made, cst.IfExp):
            node = made
        if not isinstance(node, cst.IfExp):
            break
        tests = set(map(bool, known)) if (known := _known(model, node.test)) else set()
        if len(tests) != 1:
            return None
        node = node.body if tests == {True} else node.orelse
    return node


def _known(model: FileModel, test: cst.BaseExpression) -> Sequence[object]:
    """What a condition may be, nothing if that is not known."""
    values = by_default(model, test)
    return () if NotImplemented in values else values


def _of_call(model: FileModel, node: cst.Call, depth: int) -> Sequence[object]:
    """``float(os.environ.get("RATE", 1e-5))``, ``number("RATE", 1e-5)`` of such a function."""
    call = model.call(node)
    inner = _inner(call)
    if inner is not None:
        as_number = _NUMBERS.get(call.name or "")
        values = settled(model, inner, depth - 1)
        return values if as_number is None else [_converted(as_number, one) for one in values]
    made = only_returned(call.target) if isinstance(call.target, Function) else None
    if made is None or not isinstance(call.target, Function) or call.has_star:
        return _UNKNOWN
    home, kinds = model.file_with(made), []
    while isinstance(made, cst.Call) and (inner := _inner(site := home.call(made))) is not None:
        kinds += [_NUMBERS[site.name or ""]] if site.name in _NUMBERS else []
        made = inner
    if isinstance(made, cst.Name) and made.value in call.target.arguments:
        given = call.given_to(call.target, made.value)
        made = given or call.target.default(made.value)
        home = model if given is not None else home
    values = _UNKNOWN if made is None else settled(home, made, depth - 1)
    for kind in reversed(kinds):
        values = [_converted(kind, one) for one in values]
    return values


def _inner(call: CallSite) -> cst.BaseExpression | None:
    """What a number is made of, or an environment variable is unless somebody sets it."""
    if call.name in _NUMBERS:
        return call.argument(0)
    return call.argument(1, "default") if call.name in _ENVIRONMENT else None


def _converted(kind: type, value: object) -> object:
    try:
        return kind(value) if value is not NotImplemented else value
    except (TypeError, ValueError, OverflowError):
        return NotImplemented


def _of_name(model: FileModel, node: cst.Name, depth: int) -> Sequence[object]:
    found: list[object] = []
    for binding in model.bindings(node.value, node):
        if binding.kind == "assign" and isinstance(binding.node, cst.BaseExpression):
            found += settled(model, binding.node, depth - 1)
        elif binding.kind == "param":
            around = model.functions_around(node)
            function = next((one for one in around if node.value in one.parameters), None)
            found += _UNKNOWN if function is None else _given(model, function, node.value, depth)
        else:
            return _UNKNOWN
    return found or _UNKNOWN


def _given(model: FileModel, function: Function, name: str, depth: int) -> Iterator[object]:
    """What the callers of a function give for a parameter; its default where they give nothing."""
    index = function.parameters.index(name) - function.is_bound
    starts = starts_of(model, function)  # ``xmp.spawn(train, args=(flags,))``
    for call in starts:
        value = given_to_cores(call, function, name)
        yield from _UNKNOWN if value is None else settled(model, value, depth - 1)
    calls = [(call, index) for call in model.callers(function)]
    calls += [(call, index + 1) for call in _filled_in(model, function)]
    if calls or not starts:
        yield from _by_callers(model, calls, name, function.default(name), depth)


def _by_callers(
    model: FileModel,
    calls: Sequence[tuple[CallSite, int]],
    name: str,
    otherwise: cst.BaseExpression | None,
    depth: int,
) -> Iterator[object]:
    """What calls give at their place or by name; the default where they, or nobody, do."""
    given = [
        one.argument(place, name) or (None if one.has_star else otherwise) for one, place in calls
    ]
    for value in given or [otherwise]:
        yield from _UNKNOWN if value is None else settled(model, value, depth - 1)


def _filled_in(model: FileModel, function: Function) -> Iterator[CallSite]:
    """``partial(collate, multiple=128)``: what that gives holds for all calls."""
    for part in (model, *model.linked):
        for call in part.calls("functools.partial"):
            first = call.argument(0)
            if first is not None and part.value(first).function is function:
                yield call


def _made(model: FileModel, owner: Class) -> Iterator[CallSite]:
    """The calls that make objects of a class."""
    for part in (model, *model.linked):
        yield from (call for call in part.calls() if call.target is owner)


def _of_attribute(
    model: FileModel, node: cst.Attribute, holder: cst.Name, depth: int
) -> Sequence[object]:
    name = node.attr.value
    owner = model.class_around(node)
    classes = model.value(holder).makes
    if len(classes) == 1:
        return _of_class(model, next(iter(classes)), name, depth)
    if holder.value != "self" or owner is None:
        return _of_annotated(model, holder, name, depth)
    kept = model.kept(owner).get(name, ())
    if kept:
        return [value for one in kept for value in settled(model, one, depth - 1)]
    fields = _fields(owner)
    if name not in fields or "__init__" in owner.methods:
        return _UNKNOWN
    calls = [(call, list(fields).index(name)) for call in _made(model, owner)]
    return list(_by_callers(model, calls, name, fields[name], depth))


def _of_class(model: FileModel, cls: Class, name: str, depth: int) -> Sequence[object]:
    """``CFG.amp`` that the class is given as it is written, and that nobody sets again."""
    parts = (model, *model.linked)
    if any(f"{cls.name}.{name}" in part.assigned for part in parts):
        return _UNKNOWN
    home = model.file_with(cls.node)
    for line in cls.node.body.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(part, cst.Assign) and is_name(part.targets[0].target, name):
                return settled(home, part.value, depth - 1)
    return _UNKNOWN


def _of_annotated(model: FileModel, holder: cst.Name, name: str, depth: int) -> Sequence[object]:
    """The default of a field where a parameter is declared to be of that class (``args: Args``)."""
    function = next(
        (f for f in model.functions_around(holder) if holder.value in f.parameters), None
    )
    said = None if function is None else function.annotation(holder.value)
    annotation = said.value if isinstance(said, cst.Name) else None
    for part in (model, *model.linked) if annotation is not None else ():
        for cls in part.classes:
            value = _fields(cls).get(name) if cls.name == annotation else None
            if value is not None:
                return settled(model, value, depth - 1)
    return _UNKNOWN


def _fields(owner: Class) -> dict[str, cst.BaseExpression | None]:
    """The fields of a dataclass with their defaults, in the order in which they are given."""
    parts = (
        part
        for line in owner.node.body.body
        for part in (line.body if isinstance(line, cst.SimpleStatementLine) else ())
    )
    return {
        part.target.value: written_default(part.value)
        for part in parts
        if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name)
    }
