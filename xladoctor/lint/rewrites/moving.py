"""What a program for torch_xla is written as for TorchTPU, where the meaning is the same.

Made only for programs that are to be moved (``lint --target torch_tpu``): on torch_xla the new
names mean nothing. What is written stands in ``rules/tables/torch_tpu.toml``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import children
from xladoctor.lint.rewrites.imports import import_edit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import FileModel

TARGET = "torch_tpu"
_WAIT = "torch.accelerator.synchronize()"


def is_moved(model: FileModel) -> bool:
    """Whether the program is to run on TorchTPU alone."""
    return TARGET in model.members and family.TORCH_XLA not in model.members


def successor(
    model: FileModel, node: cst.BaseExpression, dotted: str, write: Mapping[str, object]
) -> Fix | None:
    """The fix that writes what takes the place of a name, None if that takes more than a name.

    Args:
        model: The file.
        node: What names it.
        dotted: Its full name.
        write: The ``write`` of its row in ``torch_tpu.toml``.
    """
    if not write or not is_moved(model):
        return None
    parent = model.parent(node)
    call = parent if isinstance(parent, cst.Call) and parent.func is node else None
    safe = bool(write["safe"]) or (bool(write.get("joined")) and _joins(model))
    found = _written(model, node, call, dotted, write)
    if found is None:
        return None
    place, content = found
    if content is None:
        return model.fix("Delete it", model.remove_statement(place), safe=safe)
    change = model.replace(place, _bracketed(model, place, content))
    return model.fix(f"Write {content}", change, *_torch(model, node, content), safe=safe)


def _written(
    model: FileModel,
    node: cst.BaseExpression,
    call: cst.Call | None,
    dotted: str,
    write: Mapping[str, object],
) -> tuple[cst.CSTNode, str | None] | None:
    """What is replaced by what; None for what the statement is to be deleted."""
    kind, content = write["as"], str(write.get("text", ""))
    last = dotted.rpartition(".")[2]
    if kind == "name":
        most = write.get("arguments")
        if isinstance(most, int) and (call is None or not _plain(call, most)):
            return None
        return node, content.format(last=last)
    if call is None:
        return None
    if kind == "call":
        return (call, content) if not call.args else None
    statement = isinstance(model.parent(call), cst.Expr)
    if kind == "end":
        if _waits(model, call):
            return call, _WAIT
        return (call, None) if statement and not call.args else None
    if kind == "meeting" and statement and _plain(call, 1):
        return call, content
    if kind == "step" and statement and call.args and call.args[0].keyword is None:
        optimizer = model.tree.text(call.args[0].value).strip()
        rest = {argument.keyword.value for argument in call.args[1:] if argument.keyword}
        if len(rest) == len(call.args) - 1 and rest <= {"barrier"}:
            return call, f"{optimizer}.step()"
    if kind == "closure" and statement:
        return _closure(model, call)
    return None


def _plain(call: cst.Call, most: int) -> bool:
    """At most so many arguments, none of them by name or starred."""
    return len(call.args) <= most and not any(item.keyword or item.star for item in call.args)


def _waits(model: FileModel, call: cst.Call) -> bool:
    site = model.call(call)
    if site.name is not None and site.name.endswith(".wait_device_ops"):
        return True
    given = site.argument(0, "wait")
    return given is not None and model.literal(given) is True


def _closure(model: FileModel, call: cst.Call) -> tuple[cst.CSTNode, str] | None:
    """``xm.add_step_closure(log, args=(a, b))`` is ``log(a, b)`` where operations run at once."""
    site = model.call(call)
    function, given = site.argument(0, "closure"), site.argument(1, "args")
    if len(call.args) > 2 or not isinstance(function, cst.Name | cst.Attribute):
        return None
    if given is not None and not isinstance(given, cst.Tuple):
        return None
    parts = (
        [] if given is None else [model.tree.text(item.value).strip() for item in given.elements]
    )
    return call, f"{model.tree.text(function).strip()}({', '.join(parts)})"


def _joins(model: FileModel) -> bool:
    """Whether the program makes a process group, so that it has ranks."""
    parts = (model, *model.linked)
    return any(True for part in parts for _ in part.calls("torch.distributed.init_process_group"))


def _bracketed(model: FileModel, place: cst.CSTNode, content: str) -> str:
    """A comparison takes brackets where something could bind more closely."""
    loose = cst.If | cst.Assign | cst.Arg | cst.UnaryOperation | cst.BooleanOperation | cst.Return
    if " == " not in content or isinstance(model.parent(place), loose):
        return content
    return f"({content})"


def _torch(model: FileModel, node: cst.BaseExpression, content: str) -> list[Edit | None]:
    """The import that the new text needs."""
    if not content.startswith("torch.") or model.spelled("torch", node) == "torch":
        return []
    if any(item.dotted != "torch" for item in model.bindings("torch", node)):
        return [None]
    return [import_edit(model, "import torch")]


def device_string(model: FileModel, node: cst.SimpleString, text: str) -> Fix | None:
    """``"xla"`` becomes ``"tpu"``, with the number of the device if it has one."""
    if not is_moved(model):
        return None
    content = f"{node.quote}{text.replace('xla', 'tpu', 1)}{node.quote}"
    return model.fix(f"Write {content}", model.replace(node, content), safe=True)


def backend_string(model: FileModel, call: cst.Call, node: cst.BaseExpression) -> Fix | None:
    """``init_process_group("xla", init_method="xla://")`` becomes that of TorchTPU."""
    if not is_moved(model):
        return None
    changes = [model.replace(node, '"tpu_dist"')]
    method = model.call(call).keywords.get("init_method")
    if method is not None and model.literal(method) == "xla://":
        changes.append(model.remove_argument(call, method))
    return model.fix('Write "tpu_dist"', *changes, safe=False)


def unused_import(model: FileModel, node: cst.Import | cst.ImportFrom) -> Fix | None:
    """Delete an import if none of its names stands anywhere else in the file."""
    if isinstance(node.names, cst.ImportStar):
        return None
    own = set(_names(node))
    for alias in node.names:
        bound: cst.BaseExpression = alias.name if alias.asname is None else alias.asname.name
        while isinstance(bound, cst.Attribute):
            bound = bound.value
        if not isinstance(bound, cst.Name):
            return None
        for other in model.nodes(cst.Name):
            if other.value == bound.value and other not in own and not _is_import(model, other):
                return None
    return model.fix("Delete the import", model.remove_statement(node), safe=True)


def _names(node: cst.Import | cst.ImportFrom) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    waiting: list[cst.CSTNode] = [node]
    while waiting:
        part = waiting.pop()
        found.append(part)
        waiting.extend(children(part))
    return found


def _is_import(model: FileModel, node: cst.CSTNode) -> bool:
    parent = model.parent(node)
    while isinstance(parent, cst.Attribute | cst.ImportAlias | cst.AsName):
        parent = model.parent(parent)
    return isinstance(parent, cst.Import | cst.ImportFrom)
