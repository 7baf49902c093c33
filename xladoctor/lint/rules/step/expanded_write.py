"""XLA318: an in-place write to a tensor that ``expand`` has repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel, Problem

_EXPANDS = frozenset({"expand", "expand_as", "broadcast_to"})


@rule("XLA318")
def expanded_write(model: FileModel) -> Iterator[Problem]:
    """Find names that hold an expanded device tensor and are then written in place."""
    for node, target in _writes(model):
        if not isinstance(target, cst.Name):
            continue
        # ``t += 1`` binds the name to the tensor that it has.
        bound = [
            one
            for one in model.bindings(target.value, target)
            if not isinstance(model.parent(one.node), cst.AugAssign)
        ]
        if len(bound) != 1 or bound[0].kind != "assign":
            continue  # another meaning may be in force here
        made = bound[0].node
        if not (
            isinstance(made, cst.Call)
            and isinstance(made.func, cst.Attribute)
            and made.func.attr.value in _EXPANDS
            and model.value(made).is_device_tensor
        ):
            continue
        yield model.problem(
            node,
            f"{target.value} is one piece of memory seen several times: torch refuses this write, "
            "XLA applies it once for each repetition",
            suggestion=f"{made.func.attr.value}(...).clone() before writing",
            related=[model.place(made, "it is expanded here")],
            fix=_fix(model, made),
        )


def _writes(model: FileModel) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Statements and calls that write in place, with what they write to."""
    for plain in model.nodes(cst.Assign):
        for one in plain.targets:
            if isinstance(one.target, cst.Subscript) and not _one_place(model, one.target):
                yield one.target, one.target.value
    for augmented in model.nodes(cst.AugAssign):
        target = augmented.target
        if isinstance(target, cst.Subscript) and _one_place(model, target):
            continue
        inner = target.value if isinstance(target, cst.Subscript) else target
        yield target, inner
    for call in model.calls():
        method = call.method or ""
        in_place = method.endswith("_") and not method.startswith("_")
        if in_place and call.name is None and call.receiver is not None:
            yield call.node, call.receiver


def _one_place(model: FileModel, target: cst.Subscript) -> bool:
    """Whether ``t[0]`` or ``t[:, i]`` is written: maybe one of the repetitions, which is right."""
    for element in target.slice:
        if isinstance(element.slice, cst.Index):
            key = element.slice.value
            if not isinstance(key, cst.Ellipsis) and not model.value(key).is_device_tensor:
                return True
    return False


def _fix(model: FileModel, made: cst.Call) -> Fix | None:
    written = f"{model.tree.text(made).strip()}.clone()"
    return model.fix("Copy before writing", model.replace(made, written), safe=False)
