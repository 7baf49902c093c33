"""What is given to the cores and holds a lock of multiprocessing: it cannot be sent to them.

``xmp.spawn`` runs its processes by an executor, which pickles what they are given, also where they
are forked. Measured on torch_xla 2.9.0: ``RuntimeError``, of both classes, with both start methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.knowledge import MODEL_WRAPPER, XMP
from xladoctor.lint.rules._exact import given_last, in_order
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_LOCKED = frozenset({MODEL_WRAPPER, f"{XMP}.MpSerialExecutor"})


class Locked(NamedTuple):
    """An argument for the cores, and what makes the object with the lock in it."""

    given: cst.BaseExpression
    made: cst.Call
    which: str


def locked(model: FileModel, start: CallSite) -> Iterator[Locked]:
    """What a start gives to its processes that has a lock: by itself, or kept in it."""
    nprocs, args = start.argument(2, "nprocs"), start.argument(1, "args")
    if args is None or (nprocs is not None and model.literal(nprocs) == 1):
        return  # one process, which is this one
    whole = the_source(model, args)
    for element in whole.elements if isinstance(whole, cst.Tuple | cst.List) else ():
        for part in (element.value, *_kept_in(model, element.value, start)):
            made = the_source(model, part)
            name = model.call(made).name if isinstance(made, cst.Call) else None
            if isinstance(made, cst.Call) and name in _LOCKED:
                yield Locked(element.value, made, (name or "").rpartition(".")[2])
                break


def _kept_in(
    model: FileModel, given: cst.BaseExpression, start: CallSite
) -> Iterator[cst.BaseExpression]:
    """What an object keeps before a start: ``args.net = wrapped``, ``{"net": wrapped}``."""
    last = given_last(model, given) if isinstance(given, cst.Name) else None
    made = last or the_source(model, given)
    if isinstance(made, cst.Dict):
        yield from (item.value for item in made.elements)
    elif isinstance(made, cst.Call) and model.call(made).name in {
        "builtins.dict",
        "argparse.Namespace",
        "types.SimpleNamespace",
    }:
        yield from (argument.value for argument in made.args)
    if not isinstance(given, cst.Name):
        return
    bindings = model.bindings(given.value, given)
    for line in model.nodes(cst.Assign):
        for target in (one.target for one in line.targets):
            held = target.value if isinstance(target, cst.Attribute | cst.Subscript) else None
            if (
                isinstance(held, cst.Name)
                and held.value == given.value
                and model.bindings(held.value, held) is bindings
                and model.function_of(line) is start.function
                and in_order(model, line, start.node)
            ):
                yield line.value
