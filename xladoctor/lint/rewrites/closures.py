"""The fix of a line that shows device values in a loop: show them in a step closure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import sources
from xladoctor.lint.model import Kind, walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import line_of

if TYPE_CHECKING:
    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Loop

_CLOSURE = "torch_xla.core.xla_model.add_step_closure"
_SHOWS = frozenset(
    {
        "builtins.print",
        "torch_xla.core.xla_model.master_print",
        "torch_xla.test.test_utils.print_training_update",
        "tqdm.tqdm.write",
    }
)
#: Methods of progress bars and of TensorBoard's SummaryWriter that only show.
_SHOW_METHODS = frozenset(
    {"set_postfix", "set_postfix_str", "set_description", "add_scalar", "add_scalars"}
)
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
_LOADS = cst.Name | cst.Attribute | cst.Subscript
#: Columns of a line that the fix writes; a longer one is broken.
_WIDTH = 100
#: A lambda cannot hold these, or they would mean something else in it.
_NOT_IN_LAMBDA = (
    cst.Yield | cst.Await | cst.NamedExpr | cst.Lambda | cst.CompFor | cst.StarredElement
)


def closure_fix(model: FileModel, node: cst.CSTNode, loop: Loop | None) -> Fix | None:
    """Show what a line shows when the step is over, so that the graph is not cut for it.

    ``print(step, loss.item())`` becomes ``xm.add_step_closure(lambda step, loss: print(step,
    loss.item()), args=(step, loss))``.

    Args:
        model: The file.
        node: Something in the line.
        loop: The loop over batches around it.

    Returns:
        None unless the line is nothing but a call that shows, its device tensors are plain names,
        and something behind it ends the graph in every iteration of the loop: a closure runs only
        then.
    """
    line = line_of(model, node)
    if line is None or loop is None or loop.implicit or not isinstance(line.body[0], cst.Expr):
        return None
    call = line.body[0].value
    if not isinstance(call, cst.Call) or not _shows(model, call) or model.loop(call) is None:
        return None
    if not _ends_behind(model, call, loop) or any(
        isinstance(x, _NOT_IN_LAMBDA) for x in walk(call)
    ):
        return None
    names = None if _reads_pending(model, call, loop) else _captured(model, call, loop)
    body = _with_reads(model, call) if names is not None else None
    written = spell(model, call, _CLOSURE)
    if names is None or body is None or written is None:
        return None
    spelled, added = written
    given = ", ".join(_argument(model, name) for name in names.values())
    comma = "," if len(names) == 1 else ""
    shown, given = f"lambda {', '.join(names)}: {body}", f"args=({given}{comma})"
    content = f"{spelled}({shown}, {given})"
    start = model.tree.range(call).start
    if start.column + len(content) > _WIDTH or "\n" in body:
        indent = sources.rows(model.text)[start.line - 1][: start.column]
        content = f"{spelled}(\n{indent}    {shown},\n{indent}    {given},\n{indent})"
    return model.fix(
        "Show it when the step is over", model.replace(call, content), added, safe=False
    )


def shown_as_number(model: FileModel, name: cst.Name, loop: Loop) -> bool:
    """Whether a use of a name is part of a line that shows it, which a closure can do as well."""
    line = line_of(model, name)
    if line is None or not isinstance(line.body[0], cst.Expr):
        return False
    call = line.body[0].value
    if (
        not isinstance(call, cst.Call)
        or not _shows(model, call)
        or not _ends_behind(model, call, loop)
    ):
        return False
    if any(isinstance(part, _NOT_IN_LAMBDA) for part in walk(call)):
        return False
    rows = model.tree.range(call)
    return rows.start.line == rows.end.line and _formatted_as_number(model, model.parent(name))


def _shows(model: FileModel, node: cst.Call) -> bool:
    call = model.call(node)
    return call.name in _SHOWS or (
        call.name is None and call.method in _SHOW_METHODS and isinstance(call.receiver, _LOADS)
    )


def _reads_pending(model: FileModel, call: cst.Call, loop: Loop) -> bool:
    """Whether a number in the line is added up from reads: their fix comes first, if there is one.

    If there is none, the graph is cut there anyway.
    """
    shown = {part.value for part in walk(call) if isinstance(part, cst.Name)}
    return any(
        isinstance(part, cst.AugAssign)
        and isinstance(part.target, cst.Name)
        and part.target.value in shown
        and any(
            isinstance(read, cst.Call)
            and (model.call(read).method == "item" or model.call(read).name in _NUMBERS)
            for read in walk(part.value)
        )
        for part in walk(loop.node)
    )


def _ends_behind(model: FileModel, call: cst.Call, loop: Loop) -> bool:
    """Whether the graph ends between a call and the next iteration, which runs its closure.

    Behind the loop's last end it would run one step late, and never after the last step.
    """
    if loop.iterates.kind is Kind.DEVICE_LOADER:
        return True
    return model.effects.ends_behind(call, loop)


def _captured(model: FileModel, call: cst.Call, loop: Loop) -> dict[str, cst.Name] | None:
    """The names in a call that the next iteration binds anew; None if one is odd.

    Device tensors may only come in through such names: anything else (``model(x).item()``) would
    be computed in the closure, as a graph of its own.
    """
    found: dict[str, cst.Name] = {}
    inside = {part for part in walk(call) if isinstance(part, cst.BaseExpression)}
    function = model.function_of(call)
    in_loop = set(walk(loop.node))
    for read in inside:
        computed = isinstance(read, cst.Attribute | cst.Subscript | cst.Call)
        if computed and _is_device(model, read) and not _detaches(model, read):
            return None
    for part in walk(call):
        if not isinstance(part, cst.Name) or not _is_load(model, part):
            continue
        bindings = model.bindings(part.value, part)
        local = any(model.function_of(x.node) is function for x in bindings)
        plain = all(x.kind in {"assign", "other", "param"} for x in bindings)
        anew = any(x.node in in_loop for x in bindings)
        if _is_device(model, part) and not (local and plain):
            return None
        if (anew or _is_device(model, part)) and not _is_receiver(model, call, part):
            found.setdefault(part.value, part)
    return found if any(_is_device(model, name) for name in found.values()) else None


def _detaches(model: FileModel, node: cst.BaseExpression) -> bool:
    """``loss.detach()``, which computes nothing."""
    call = model.call(node) if isinstance(node, cst.Call) else None
    return call is not None and call.method == "detach" and isinstance(call.receiver, cst.Name)


def _is_receiver(model: FileModel, call: cst.Call, name: cst.Name) -> bool:
    """``writer`` in ``writer.add_scalar(...)``: made once, before the loop."""
    return any(part is name for part in walk(call.func)) and not _is_device(model, name)


def _is_load(model: FileModel, name: cst.Name) -> bool:
    parent = model.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)


def _is_device(model: FileModel, node: cst.BaseExpression) -> bool:
    return model.value(node).is_device_tensor


def _argument(model: FileModel, name: cst.Name) -> str:
    return f"{name.value}.detach()" if _is_device(model, name) else name.value


def _with_reads(model: FileModel, call: cst.Call) -> str | None:
    """The call as text, in which every tensor that is computed with is read first.

    ``f"{total / n:.4f}"`` would divide on the device, in the closure: ``total.item() / n``. None
    if something is computed whose shape is not known to be a scalar's.
    """
    text = _written(model, call)
    if text is None:
        return None
    start = model.tree.range(call).start
    changes: list[tuple[int, str]] = []
    for part in walk(call):
        if not isinstance(part, cst.Name) or not _is_load(model, part):
            continue
        if not _is_device(model, part):
            continue
        parent = model.parent(part)
        if isinstance(parent, cst.BinaryOperation | cst.UnaryOperation):
            if not _formatted_as_number(model, parent):
                return None
            place = model.tree.range(part).end
            if place.line != start.line:
                return None
            changes.append((place.column - start.column, ".item()"))
        elif isinstance(parent, cst.Attribute) and parent.attr.value not in {
            "item", "detach", "shape", "dtype",
        }:  # fmt: skip
            return None  # computed with in the closure: loss.mean().item()
    for column, content in sorted(changes, reverse=True):
        text = text[:column] + content + text[column:]
    return text


def _written(model: FileModel, call: cst.Call) -> str | None:
    """The call as it stands, further lines indented as in a lambda; None if that changes a text."""
    found = model.tree.range(call)
    if found.start.line == found.end.line:
        return model.tree.text(call).strip()
    rows = list(model.lines[found.start.line - 1 : found.end.line])
    rows[-1] = rows[-1][: found.end.column]
    rows[0] = rows[0][found.start.column :]
    whole = "\n".join(rows)
    if any(mark in whole for mark in ('"""', "'''", "\\\n")):
        return None
    return whole.replace("\n", "\n    ")


def _formatted_as_number(model: FileModel, node: cst.CSTNode | None) -> bool:
    """Whether an expression stands in an f-string with a format for numbers, or in float()."""
    while isinstance(node, cst.BinaryOperation | cst.UnaryOperation):
        node = model.parent(node)
    if isinstance(node, cst.FormattedStringExpression):
        return bool(node.format_spec)
    call = model.parent(node) if isinstance(node, cst.Arg) else None
    return isinstance(call, cst.Call) and model.call(call).name == "builtins.float"
