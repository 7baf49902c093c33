"""The fix of ``meter.update(loss.item(), n)``: count on the device, read where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rewrites.accumulate import detached, device_at, number_of
from xladoctor.lint.rewrites.moves import insert_behind, line_of
from xladoctor.lint.rules._exact import has_one_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel, Function, Loop

#: What a method of a meter may compute with the number that it is given: sums and means.
_ARITHMETIC = cst.Add | cst.Subtract | cst.Multiply | cst.Divide
#: Methods that are called where a meter is handed on, which ends the matter (see ``_reads``).
_SHOWS = frozenset({"__str__", "__repr__", "__format__"})


def meter_fix(
    model: FileModel, read: cst.Call, tensor: cst.BaseExpression, loop: Loop
) -> Fix | None:
    """Give a meter the tensor instead of a number, and read where its sums are used.

    Args:
        model: The file.
        read: ``tensor.item()`` or ``float(tensor)``, an argument of a method of the meter.
        tensor: What is read.
        loop: The loop over batches around it.

    Returns:
        None unless the meter's class is known and only adds and divides, the meter is made once
        in the same function, and every use of its sums is in sight and not in each step.
    """
    argument, around = model.parent(read), model.loop(read)
    call = model.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call) or number_of(model, tensor) == "int":
        return None
    if around is None or around.node is not loop.node:
        return None
    site = model.call(call)
    cls = _class_of(model, site)
    if cls is None or site.method is None or not isinstance(site.receiver, cst.Name):
        return None
    parameter = _parameter(cls, site, read)
    sums = _sums(model, cls, site.method, parameter) if parameter is not None else None
    if sums is None:
        return None
    reads = _reads(model, site.receiver, cls, sums)
    if reads is None:
        return None
    return model.fix(
        "Add up on the device, read where it is used",
        model.replace(read, detached(model, tensor)),
        *(model.replace(one, f"float({model.tree.text(one).strip()})") for one in reads),
        _start(model, site.receiver, cls.methods[site.method], sums),
        safe=False,
    )


def _start(model: FileModel, meter: cst.Name, method: Function, sums: set[str]) -> list[Edit]:
    """Begin with a zero on the device, where the meter is made and the device has a name.

    Python's zero works too, but makes the first step's graph another one than the later ones'.
    """
    bindings = model.bindings(meter.value, meter)
    made = bindings[0].node
    line, torch, device = line_of(model, made), model.spelled("torch", made), device_at(model, made)
    if len(bindings) != 1 or line is None or torch is None or device is None:
        return []
    added = {
        name: None
        for node in walk(method.node.body)
        if isinstance(node, cst.AugAssign) and (name := _own(node.target)) in sums
    }
    if any(_is_set(model, meter, name or "") for name in added):
        return []
    zeros = [f"{meter.value}.{name} = {torch}.tensor(0.0, device={device})" for name in added]
    edits = [insert_behind(model, line, zero) for zero in zeros]
    return [edit for edit in edits if edit is not None] if len(edits) == 1 else []


def _is_set(model: FileModel, meter: cst.Name, attribute: str) -> bool:
    """Whether a program sets an attribute of the meter: the zero is there already."""
    written = f"{meter.value}.{attribute}"
    return any(
        isinstance(node, cst.Assign) and model.tree.text(node.targets[0].target).strip() == written
        for node in model.nodes(cst.Assign)
    )


def _class_of(model: FileModel, site: CallSite) -> Class | None:
    """The class of the meter, if its name is bound only to objects of it, in this function."""
    meter = site.receiver
    if not isinstance(meter, cst.Name) or site.function is None:
        return None
    found: Class | None = None
    for binding in model.bindings(meter.value, meter):
        made = binding.node
        here = binding.kind == "assign" and model.function_of(made) is site.function
        here = here and has_one_name(model, made)
        target = model.call(made).target if here and isinstance(made, cst.Call) else None
        if not isinstance(target, Class) or (found is not None and target is not found):
            return None
        found = target
    if found is None or not model.is_here(found.node):
        return None
    return found if all(model.name(base) == "builtins.object" for base in found.bases) else None


def _parameter(cls: Class, site: CallSite, read: cst.Call) -> str | None:
    """The parameter of the meter's method that a read is given to."""
    method = cls.methods.get(site.method or "")
    if method is None or method.decorators or site.has_star or method.keyword_only:
        return None
    for name, value in site.keywords.items():
        if value is read:
            return name
    place = next(i for i, value in enumerate(site.positional) if value is read)
    return method.parameters[place + 1] if place + 1 < len(method.parameters) else None


def _sums(model: FileModel, cls: Class, method: str, parameter: str) -> set[str] | None:
    """The attributes, properties and methods that give tensors if ``parameter`` is one.

    None if the class does anything with them but add, multiply and divide.
    """
    sums: set[str] = set()
    before = None
    while before != sums:  # what a sum goes into is a sum
        before = set(sums)
        for one in cls.methods.values():
            given = parameter if one.name == method else None
            for target, value in _assignments(one):
                if _holds(value, given, sums):
                    sums |= target
            if _holds(_returned(one), given, sums):
                sums.add(one.name)
    for one in cls.methods.values():
        given = parameter if one.name == method else None
        if one.name not in _SHOWS and not _is_plain(model, one, given, sums):
            return None
    return sums if method not in sums else None


def _assignments(method: Function) -> Iterator[tuple[set[str], cst.BaseExpression]]:
    """Attributes of ``self`` that a method assigns or adds to, and the values."""
    for node in walk(method.node.body):
        if isinstance(node, cst.Assign):
            yield {name for item in node.targets if (name := _own(item.target))}, node.value
        elif isinstance(node, cst.AugAssign):
            name = _own(node.target)
            yield ({name} if name else set()), node.value


def _returned(method: Function) -> cst.BaseExpression | None:
    """What a method of one line gives back."""
    body = method.node.body
    lines = [line for line in getattr(body, "body", ()) if not _is_docstring(line)]
    if len(lines) != 1 or not isinstance(lines[0], cst.SimpleStatementLine):
        return None
    statement = lines[0].body[0]
    return statement.value if isinstance(statement, cst.Return) else None


def _holds(value: cst.BaseExpression | None, parameter: str | None, sums: set[str]) -> bool:
    """Whether an expression has the parameter or one of the sums in it."""
    return value is not None and any(
        is_name(part, parameter) or _own(part) in sums for part in walk(value)
    )


def _is_plain(model: FileModel, method: Function, parameter: str | None, sums: set[str]) -> bool:
    """Whether a method uses the parameter and the sums only to add up, divide and give back."""
    returned = _returned(method)
    if returned is not None:
        return not _holds(returned, parameter, sums) or (
            _is_sum(model, returned, sums) and len(method.parameters) == 1
        )
    for node in walk(method.node.body):
        held = is_name(node, parameter) or _own(node) in sums
        if not held or isinstance(model.parent(node), cst.Attribute):
            continue  # ``self.sum``: its ``sum`` is judged with it
        statement = _outside(model, node)
        if isinstance(statement, cst.AssignTarget):
            continue
        if isinstance(statement, cst.AugAssign):
            if not isinstance(statement.operator, cst.AddAssign) or not _own(statement.target):
                return False
        elif not isinstance(statement, cst.Assign) or not all(
            _own(item.target) for item in statement.targets
        ):
            return False
        if model.guards(node):
            return False  # a condition of the meter may ask for numbers
    return True


def _outside(model: FileModel, node: cst.CSTNode) -> cst.CSTNode | None:
    """What stands around the sum that a node is a term of: ``a`` in ``a / n if n else 0``."""
    inner, outer = node, model.parent(node)
    while (isinstance(outer, cst.BinaryOperation) and isinstance(outer.operator, _ARITHMETIC)) or (
        isinstance(outer, cst.IfExp) and outer.test is not inner
    ):
        inner, outer = outer, model.parent(outer)
    return outer


def _is_sum(model: FileModel, value: cst.BaseExpression, sums: set[str]) -> bool:
    """``self.sum / self.count`` and the like: each sum in it is a term of the whole."""
    held = [part for part in walk(value) if _own(part) in sums]
    return all(_outside(model, part) is model.parent(value) for part in held)


def _reads(
    model: FileModel, meter: cst.Name, cls: Class, sums: set[str]
) -> list[cst.BaseExpression] | None:
    """Where the sums of a meter are used, to be read there; None if that is not all in sight."""
    found: list[cst.BaseExpression] = []
    uses = [name for name in model.nodes(cst.Name) if _is_use(model, name, meter)]
    for use in uses:
        attribute = model.parent(use)
        if isinstance(attribute, cst.AssignTarget):
            continue
        if not isinstance(attribute, cst.Attribute) or attribute.value is not use:
            return None  # handed on
        name = attribute.attr.value
        above = model.parent(attribute)
        call = above if isinstance(above, cst.Call) and above.func is attribute else None
        if _is_zero_on_device(model, above):
            continue
        if isinstance(above, cst.AssignTarget | cst.AugAssign | cst.Del):
            return None
        if name not in sums:
            continue
        used = call or attribute
        is_method = name in cls.methods and not cls.methods[name].decorators
        if is_method != (call is not None):
            return None
        hot = model.hot_loop(used)
        if hot is not None and not model.throttled(used):
            return None  # shown in every step: one read in place of another
        if not _reads_anyway(model, used):
            found.append(used)
    return found


def _is_zero_on_device(model: FileModel, target: cst.CSTNode | None) -> bool:
    """What the fix of another read wrote: ``meter.sum = torch.tensor(0.0, device=device)``."""
    assignment = model.parent(target) if isinstance(target, cst.AssignTarget) else None
    return isinstance(assignment, cst.Assign) and model.value(assignment.value).is_device_tensor


def _is_use(model: FileModel, name: cst.Name, meter: cst.Name) -> bool:
    if name.value != meter.value:
        return False
    parent = model.parent(name)
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return False
    if isinstance(parent, cst.Arg) and parent.keyword is name:
        return False
    return model.bindings(name.value, name) == model.bindings(meter.value, meter)


def _reads_anyway(model: FileModel, node: cst.CSTNode) -> bool:
    """In ``f"{meter.avg:.4f}"`` and ``float(meter.avg)`` nothing has to be added."""
    parent = model.parent(node)
    if isinstance(parent, cst.FormattedStringExpression):
        return bool(parent.format_spec)
    call = model.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and model.call(call).name == "builtins.float"


def _own(node: cst.CSTNode) -> str | None:
    """``name`` of ``self.name``."""
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        return node.attr.value if node.value.value == "self" else None
    return None


def _is_docstring(line: cst.CSTNode) -> bool:
    return (
        isinstance(line, cst.SimpleStatementLine)
        and isinstance(line.body[0], cst.Expr)
        and isinstance(line.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )
