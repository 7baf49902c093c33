"""XLA712: a running sum in numbers that XLA_USE_BF16 has made bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import SHELL, is_off, settings
from xladoctor.lint.rules._exact import precision_is_asked
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.problems import Place

_VARIABLE = "XLA_USE_BF16"
_COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le"})
_FLOATS = frozenset({"float", "mean"})


@rule("XLA712")
def bfloat16_accumulator(model: FileModel) -> Iterator[Problem]:
    """Find sums over batches of device tensors in programs that set ``XLA_USE_BF16``."""
    if not model.is_xla:
        return
    setting = next(_settings(model), None)
    if setting is None:
        return
    for node in model.nodes(cst.AugAssign):
        if not isinstance(node.operator, cst.AddAssign):
            continue
        value = model.value(node.value)
        if not value.is_device_tensor or _counts(model, node.value):
            continue
        loop = costly_loop(model, node)
        if loop is None or not isinstance(node.target, cst.Name | cst.Attribute):
            continue
        yield model.problem(
            node,
            f"XLA_USE_BF16 {setting.option}keeps {snippet(model, node.target)} in 8 significant "
            "bits: measured, a sum of ones stops at 256, and a running loss goes wrong long before",
            suggestion="append the detached values to a list and add them up on the host "
            "(torch.stack(losses).cpu().float().mean()), or leave the variable out",
            related=[setting.place, loop_place(model, loop)],
        )


class _Setting(NamedTuple):
    """Where the variable is set, and a word on the option that decides about it, or nothing."""

    place: Place
    option: str = ""


def _settings(model: FileModel) -> Iterator[_Setting]:
    """Where the variable is set before a file's tensors are made.

    In the file, at the top of one that it imports, or in all that import it: what they start.
    """
    yield from _set_by(model, model)
    module = model.tree.module
    importers = [other for other in model.linked if module in other.names.helpers()]
    by_them = [next(_set_by(model, other), None) for other in importers]
    yield from (one for one in by_them[:1] if one is not None and None not in by_them)
    for other in model.linked:
        if other.tree.module in model.names.helpers():
            yield from _set_by(model, other, at_top=True)


def _set_by(model: FileModel, part: FileModel, *, at_top: bool = False) -> Iterator[_Setting]:
    """Where a file sets the variable, as a problem of another file tells it."""
    for name, spot, _ in settings(part):
        if name != _VARIABLE or is_off(part, spot):
            continue
        guards = part.guards(spot)
        asked = all(precision_is_asked(part, guard.test) for guard in guards)
        if asked and not (at_top and (guards or part.function_of(spot) is not None)):
            option = "(where that option is given) " if guards else ""
            yield _Setting(model.place(spot, "float32 becomes bfloat16"), option)
    for number, line in part.shell if part is model else ():
        if line.strip().startswith("!"):
            continue  # a shell of its own, gone after the line
        if any(match["name"] == _VARIABLE for match in SHELL.finditer(line)):
            yield _Setting(model.place_of_row(number, "float32 becomes bfloat16"))


def _counts(model: FileModel, node: cst.BaseExpression) -> bool:
    """``(predicted == labels).sum()``: 64-bit integers, which are exact."""
    compares = floats = False
    for part in walk(node):
        if isinstance(part, cst.Comparison):
            compares = True
        if isinstance(part, cst.Call):
            method = model.call(part).method
            compares = compares or method in _COMPARISONS
            floats = floats or method in _FLOATS
    return compares and not floats
