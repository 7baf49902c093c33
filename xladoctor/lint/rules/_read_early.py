"""Files that the master core writes and every core reads right behind, without a meeting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.library import Effect
from xladoctor.lint.rules._cores import every_core
from xladoctor.lint.rules._exact import in_order, in_two_branches
from xladoctor.lint.rules._writes import SAVE, opened, written_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, Entry, FileModel

#: Functions that read a file, to the argument that names it.
_READERS = {
    "torch.load": (0, "f"),
    "torch_xla.utils.serialization.load": (0, "path"),
    "numpy.load": (0, "file"),
    "pandas.read_csv": (0, "filepath_or_buffer"),
    "pandas.read_parquet": (0, "path"),
    "pandas.read_pickle": (0, "filepath_or_buffer"),
}
#: What cores meet in, be it only when a graph runs that waits for the others'.
_MEETS = frozenset({Effect.COLLECTIVE, Effect.OPTIMIZER_STEP})


def read_early(model: FileModel) -> Iterator[tuple[CallSite, CallSite, Entry]]:
    """The calls that read, with the one that writes and where the cores start.

    ``xm.save(state, path)``, then ``torch.load(path)``: only the master core writes, and the others
    do not wait for it (torch_xla 2.9, ``xm.save`` has no rendezvous).
    """
    for write in model.calls():
        path = _written_by_master(model, write)
        if path is None or write.function is None or model.in_step_closure(write.node):
            continue
        text = _text(model, path)
        for read in model.calls_of(write.function):
            given = _read_path(model, read)
            if given is None or _text(model, given) != text:
                continue
            entry = every_core(model, read.node)
            if entry is None or not in_order(model, write.node, read.node):
                continue
            if not (
                in_two_branches(model, write.node, read.node) or _meet_between(model, write, read)
            ):
                yield read, write, entry
                break


def _written_by_master(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The path that the master core alone writes to."""
    if call.name == SAVE:
        every = call.argument(2, "master_only")
        alone = every is None or model.literal(every) is True
        return call.argument(1, "file_or_path") if alone else None
    path = written_path(model, call)
    return path if path is not None and model.master_only(call.node) is not None else None


def _read_path(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    if call.name in _READERS:
        return call.argument(*_READERS[call.name])
    file = opened(model, call)
    return file[0] if file is not None and file[1].startswith("r") else None


def _text(model: FileModel, node: cst.BaseExpression) -> str:
    said = model.literal(node)
    return said if isinstance(said, str) else model.tree.text(node).strip()


def _meet_between(model: FileModel, write: CallSite, read: CallSite) -> bool:
    """Whether the cores meet behind the one call and before the other, or may do so."""
    between = [
        call
        for call in model.calls_of(write.function)
        if in_order(model, write.node, call.node, read.node)
    ]
    return any(
        event.effect in _MEETS
        for call in between
        for one in (call, *model.reached(call.node))
        for event in model.effects.by_call(one)
    ) or any(_may_meet(call) for call in between)


def _may_meet(call: CallSite) -> bool:
    """``barrier()``, ``utils.synchronize()`` of a file that nobody has read."""
    words = ("barrier", "rendezvous", "synchron", "wait")
    return call.target is None and any(word in call.last.lower() for word in words)
