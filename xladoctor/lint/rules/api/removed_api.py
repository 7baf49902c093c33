"""XLA801: a name that torch_xla, or the torch of its release, no longer has or never had."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.turns import last_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._api import (
    entry_for,
    import_fix,
    imported,
    never_reached,
    replacement_fix,
    uses,
)
from xladoctor.lint.rules._lost_backends import lost_backends
from xladoctor.lint.rules._lost_keys import lost_keys
from xladoctor.lint.rules._never_imported import never_imported
from xladoctor.lint.rules._numbered_batches import numbered_batches
from xladoctor.lint.rules._old_iterators import old_iterators
from xladoctor.lint.rules._renamed_metrics import renamed_metrics
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.rules._unknown_arguments import unknown_arguments
from xladoctor.lint.rules._unknown_members import unknown_members
from xladoctor.lint.rules._unwrapped_modules import unwrapped_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.rules._api import Entry


#: A module that a shell line runs.
_STARTS = re.compile(r"\bpython[\d.]*\s.*?(?<=\s)-m\s+(?P<name>torch_xla(?:\.\w+)+)")
_FALLS_BACK = ", and the except branch goes on without torch_xla"


@rule("XLA801")
def removed_api(model: FileModel) -> Iterator[Problem]:
    """Find names that were removed; an import that fails is reported once, not at every use."""
    yield from lost_backends(model)
    yield from never_imported(model)
    yield from unknown_arguments(model)
    yield from unknown_members(model)
    yield from unwrapped_modules(model)
    yield from renamed_metrics(model)
    yield from lost_keys(model)
    yield from numbered_batches(model)
    yield from old_iterators(model)
    yield from _started(model)
    reported: set[str] = set()
    for alias, dotted, entry in imported(model):
        if not _is_lost(model, entry):
            continue
        reported.add(dotted)
        off = _turns_xla_off(model, alias)
        if tolerated(model, alias) and not off:
            continue
        known = entry.replaced(model.target) or entry.always is not None
        fix = import_fix(model, alias, dotted, entry) if known else None
        message = _message(dotted, entry) + (_FALLS_BACK if off else "")
        yield model.problem(alias, message, suggestion=_advice(dotted, entry), fix=fix)
    for node, dotted, entry in uses(model):
        if not _is_lost(model, entry):
            continue
        dead = never_reached(model, node, entry)
        ready = not dead and tolerated(model, node)
        hidden = _hidden(model, node) if ready else False
        if hidden is None:
            continue
        if any(dotted.startswith(name + ".") for name in reported):
            continue
        if dotted in reported and isinstance(node, cst.Name):
            continue  # by the name that the import brings; ``xm.get_ordinal`` is another way
        known = entry.replaced(model.target) or entry.always is not None
        fix = replacement_fix(model, node, entry) if known else None
        message = _message(dotted, entry) + (", and the except branch hides it" if hidden else "")
        if dead:
            message = (
                f"{entry.old} does not exist, and never did: hasattr is false, this never runs"
            )
        yield model.problem(node, message, suggestion=_advice(dotted, entry), fix=fix)


def _started(model: FileModel) -> Iterator[Problem]:
    """``!python -m torch_xla.distributed.xla_dist --tpu=... -- python train.py`` of a notebook."""
    for number, line in model.shell:
        for match in _STARTS.finditer(line):
            entry = entry_for(match["name"])
            if entry is not None and _is_lost(model, entry):
                place = model.place_of_row(number)
                message = _message(match["name"], entry)
                yield model.problem(place, message, suggestion=_advice(match["name"], entry))


def _is_lost(model: FileModel, entry: Entry) -> bool:
    """Whether the target lacks a name; of torch in programs for XLA devices alone."""
    return entry.removed(model.target) and (entry.package != "torch" or model.is_xla)


def _turns_xla_off(model: FileModel, alias: cst.ImportAlias) -> bool:
    """Whether the import stands among those that say if there is torch_xla at all.

    ``try: import torch_xla; from torch_xla.utils import gcsfs; FOUND = True`` and then ``except
    ImportError: FOUND = False``: the program takes a missing name for missing devices.
    """
    around = list(model.tree.ancestors(alias))
    tried = next((node for node in around if isinstance(node, cst.Try)), None)
    if tried is None or tried.body not in around:
        return False
    others = [
        [*model.tree.ancestors(node)]
        for node in model.tree.imports
        if node not in around and model.tree.text(node).split()[1].startswith("torch_xla")
    ]
    # All that the file has of torch_xla, and nothing of it in the handlers.
    return bool(others) and all(tried.body in above for above in others)


def _hidden(model: FileModel, node: cst.CSTNode) -> bool | None:
    """Whether a handler hides that a name is missing; None if it is there for just that.

    ``except Exception: world = 1`` takes a missing name for missing devices; ``except ImportError``
    does not catch it. A handler for AttributeError, or one that asks in another way, knows of it.
    """
    for around in model.tree.ancestors(node):
        if isinstance(around, cst.If | cst.IfExp | cst.BooleanOperation):
            test = around if isinstance(around, cst.BooleanOperation) else around.test
            if any(word in model.tree.text(test).lower() for word in ("hasattr", "version")):
                return None
        if isinstance(around, cst.ExceptHandler | cst.FunctionDef):
            return None
        if isinstance(around, cst.Try):
            caught = [part.value for item in around.handlers for part in _caught(item)]
            if "AttributeError" in caught or any(_asks_again(model, x) for x in around.handlers):
                return None
            if any(isinstance(outer, cst.ExceptHandler) for outer in model.tree.ancestors(around)):
                return None  # the second of two ways to ask
            if _asked_above(model, around):
                return None
            return not caught or not {"Exception", "BaseException"}.isdisjoint(caught)
    return None


def _asked_above(model: FileModel, second: cst.Try) -> bool:
    """``try: return xr.world_size()``, then ``except Exception: pass``, right above another try."""
    block = model.parent(second)
    if not isinstance(block, cst.IndentedBlock):
        return False
    return any(
        isinstance(first, cst.Try)
        and isinstance(last_of(first.body), cst.Return)
        and _asks_again(model, first)
        for first in itertools.takewhile(lambda line: line is not second, block.body)
    )


def _caught(handler: cst.ExceptHandler) -> Iterator[cst.Name]:
    nodes = walk(handler.type) if handler.type is not None else ()
    return (part for part in nodes if isinstance(part, cst.Name))


def _asks_again(model: FileModel, handler: cst.ExceptHandler | cst.Try) -> bool:
    """Whether a handler, or what is tried before, asks torch_xla or the environment instead."""
    parts = (x for x in walk(handler.body) if isinstance(x, cst.Name | cst.Attribute))
    return any((model.name(part) or "").startswith(("torch_xla", "os.")) for part in parts)


def _message(dotted: str, entry: Entry) -> str:
    what = dotted if entry.kind == "module" or dotted == entry.old else entry.old
    if entry.no_module:
        return f"{entry.old} is no module: the import fails"
    if entry.never:
        return f"{what} does not exist, and never did: this fails when it runs"
    if entry.old == "torch_xla_py":
        return f"{what} is not part of torch_xla any more: the import fails"
    return f"{what} was removed in {entry.package} {entry.removed_in}: this fails when it runs"


def _advice(dotted: str, entry: Entry) -> str:
    if entry.new is None:
        return entry.advice
    if entry.kind != "module" or dotted == entry.old:
        return f"use {entry.new}"
    name = dotted.removeprefix(entry.old + ".")
    return f"use {entry.new}.{name}" if name in entry.names else f"look for it in {entry.new}"
