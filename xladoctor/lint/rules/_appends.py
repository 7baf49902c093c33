"""Files that grow: what opens one to append to it, and what is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import LoopKind, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rules._cores import every_core, says_core
from xladoctor.lint.rules._writes import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: ``xm.master_print(text, fd=file)`` writes on one core.
_MASTER_PRINT = "torch_xla.core.xla_model.master_print"
#: Of what logs write, the level that each process has decides.
_LOGS = "logging."
#: Methods of a file, and of what ``csv`` makes of one.
_WRITES = frozenset({"write", "writelines", "writerow", "writerows", "writeheader"})


def appended_path(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The path to which all cores append the same kind of line.

    Not where a line says which core it comes from, where one core alone writes, or where each core
    adds what came out of its own batches of an evaluation.

    Args:
        model: The file.
        call: Any call.

    Returns:
        None if the call opens nothing of the kind, as far as is known.
    """
    file = opened(model, call)
    if file is None or not file[1].startswith("a") or (call.name or "").startswith(_LOGS):
        return None
    writes = list(_writes(model, call))
    if any(says_core(model, [one.value for one in write.node.args]) for write in writes):
        return None
    told = any(
        write.name != _MASTER_PRINT
        and every_core(model, write.node) is not None
        and not _in_evaluation(model, write)
        and not _of_one_core(model, write)
        for write in writes
    )
    return file[0] if told else None


def _writes(model: FileModel, opened: CallSite) -> Iterator[CallSite]:
    """The calls that write to a file that is opened: its methods, and what is given it."""
    used, around = _file(model, opened), _opened_for(model, opened)
    for call in model.calls_of(opened.function):
        if not _is_within(model, call, around):
            continue
        given = [argument.value for argument in call.node.args]
        by = [call.receiver] if call.method in _WRITES and call.receiver is not None else []
        named = used is not None and (
            any(is_name(node, used) for node in (*given, *by))
            or any(_is_made_of(model, node, used) for node in by)
        )
        if named or any(node is opened.node for node in (*given, *by)):
            yield call


def _file(model: FileModel, opened: CallSite) -> str | None:
    """The name of an opened file: ``with open(path) as file``, ``file = open(path)``."""
    parent = model.parent(opened.node)
    target: cst.CSTNode | None = None
    if isinstance(parent, cst.WithItem) and parent.asname is not None:
        target = parent.asname.name
    elif isinstance(parent, cst.Assign):
        target = parent.targets[0].target
    return target.value if isinstance(target, cst.Name) else None


def _opened_for(model: FileModel, opened: CallSite) -> cst.With | None:
    """The ``with`` at whose end a file is closed."""
    item = model.parent(opened.node)
    held = model.parent(item) if isinstance(item, cst.WithItem) else None
    return held if isinstance(held, cst.With) else None


def _is_within(model: FileModel, call: CallSite, around: cst.With | None) -> bool:
    return around is None or around in model.tree.ancestors(call.node)


def _is_made_of(model: FileModel, node: cst.BaseExpression, used: str) -> bool:
    """``rows = csv.writer(file)``."""
    if not isinstance(node, cst.Name):
        return False
    return any(
        isinstance(part, cst.Name) and part.value == used
        for binding in model.bindings(node.value, node)
        if isinstance(binding.node, cst.Call)
        for part in walk(binding.node)
    )


def _of_one_core(model: FileModel, write: CallSite) -> bool:
    """``for name, value in results.items(): ...`` of what one core alone has filled."""
    for loop in model.tree.ancestors(write.node):
        if not isinstance(loop, cst.For):
            continue
        gone_over = {part.value for part in walk(loop.iter) if isinstance(part, cst.Name)}
        filled = [
            line
            for line in model.nodes(cst.Assign)
            if model.function_of(line) is write.function
            and any(
                isinstance(item.target, cst.Subscript)
                and isinstance(item.target.value, cst.Name)
                and item.target.value.value in gone_over
                for item in line.targets
            )
        ]
        if filled and all(every_core(model, line) is None for line in filled):
            return True
    return False


def _in_evaluation(model: FileModel, call: CallSite) -> bool:
    loop = model.loop(call.node)
    return loop is not None and loop.kind is LoopKind.EVAL
