"""Classes of a program that read files and make the batches of a step loop, on every core alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Class, LoopKind
from xladoctor.lint.rules._cores import asks_for_core, differs, every_core
from xladoctor.lint.rules._shares import SHARES, says_any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, Entry, FileModel, Loop

#: What lists files, and what reads one, by the last part of its name.
_LISTS = frozenset({"glob", "iglob", "rglob", "listdir", "iterdir", "scandir", "list_blobs", "ls"})
_READS = frozenset(
    {"open", "read_table", "ParquetFile", "read_parquet", "read_csv", "load", "memmap", "fromfile",
     "read_text", "read_bytes", "download_as_bytes", "download_as_string", "download_as_text"}
)  # fmt: skip
#: Words of what shares files out, or draws them.
_SHARES = SHARES | {"stride", "host", "hosts", "permutation", "partition"}


def over_all_files(model: FileModel) -> Iterator[tuple[CallSite, Loop, Entry]]:
    """Objects that go over all files in one order, and feed a step loop of each core.

    Args:
        model: The file.

    Yields:
        The calls that make such objects, with the loop, and where the cores start.
    """
    for call in model.calls():
        cls = call.target
        if not isinstance(cls, Class) or model.is_module(cls) or call.has_star:
            continue
        if not _lists_and_reads(model, cls) or _may_share(model, call, cls):
            continue
        loop, entry = _fed(model, cls), every_core(model, call.node)
        if loop is not None and entry is not None and every_core(model, loop.node) is not None:
            yield call, loop, entry


def _lists_and_reads(model: FileModel, cls: Class) -> bool:
    """Whether a class has ``self.files = sorted(glob(...))``, and opens them one by one."""
    if any((base or "").startswith("torch.") for base in model.library_bases(cls)):
        return False  # a loader of torch goes over it
    called = {call.last for call in model.calls_in(cls.node)}
    lists = any(
        one.last in _LISTS
        for values in model.kept(cls).values()
        for value in values
        for one in model.calls_in(value)
    )
    return lists and not _READS.isdisjoint(called)


def _may_share(model: FileModel, call: CallSite, cls: Class) -> bool:
    """Whether the class, or what it is given, may be this core's part."""
    given = [*call.positional, *call.keywords.values()]
    if says_any([cls.node, *given], _SHARES):
        return True
    return asks_for_core(model, cls.node) or any(differs(model, one) for one in given)


def _fed(model: FileModel, cls: Class) -> Loop | None:
    """The step loop in each turn of which a method of the class runs."""
    for method in cls.methods.values():
        for call in model.calls_of(method):
            loop = model.step_loop(call.node)
            if loop is not None and loop.kind is LoopKind.STEP and not loop.implicit:
                return loop
    return None
