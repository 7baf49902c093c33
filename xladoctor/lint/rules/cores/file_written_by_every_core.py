"""XLA406: one file that all cores write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rewrites.moves import under_condition
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._appends import appended_path
from xladoctor.lint.rules._cores import differs, entry_places, every_core
from xladoctor.lint.rules._downloads import IS_THERE, fetched_by_master, fetches, is_dataset
from xladoctor.lint.rules._own_locks import own_locks
from xladoctor.lint.rules._read_early import read_early
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._same import same_everywhere
from xladoctor.lint.rules._writes import (
    PRETRAINED,
    RUNS,
    SAVE,
    done_once,
    fetching_command,
    uploaded_path,
    written_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, Entry, FileModel, Guard, Problem

_SERIAL = re.compile(r"\.MpSerialExecutor$")
#: Contexts that hold back the other processes until the first has been through, and locks.
_FIRST = re.compile(r"(?i)(process|rank|zero|master|main|leader)\w*_first$|lock$")
#: Methods of Lightning's Trainer that start the cores.
_STARTS = ("fit", "validate", "test", "predict")
#: What is made by each process of a launcher, which runs all of the script.
_JOINS = ("accelerate.Accelerator", "optimum.neuron.", "torch.distributed.init_process_group")
_BY_MASTER = (
    "{} on the master core while the others wait: `if not xm.is_master_ordinal(): "
    "xm.rendezvous(tag)` before it, `if xm.is_master_ordinal(): xm.rendezvous(tag)` after it"
)

_TOGETHER = (
    "every core downloads and unpacks into one folder: where the data is not there yet, one core "
    "may read what another has half written"
)
_ALONE = (
    "the master core downloads here while the others go on: where the data is not there yet, they "
    "raise RuntimeError (Dataset not found), or read what is half written"
)
_REMOVED = (
    "every core removes {}: FileNotFoundError on a later one, or another core's file is gone",
    "remove it before the cores are started",
)
#: What happens where each core does what can be done once, and what to write instead.
_ONCE = {
    "make": ("every core makes {}: FileExistsError on all but the first", "exist_ok=True"),
    "remove": _REMOVED,
    "remove all": _REMOVED,
    "move": (
        "every core moves {}: FileNotFoundError on all but the first",
        "move it under `if xm.is_master_ordinal(local=False):`",
    ),
}


@rule("XLA406")
def file_written_by_every_core(model: FileModel) -> Iterator[Problem]:
    """Find files with one name that every core opens for writing."""
    for call, path, entry in _shared(model, written_path):
        yield model.problem(
            call.node,
            f"every core writes {snippet(model, path)}: they overwrite each other, and a core "
            "that reads it may find a partial file",
            suggestion=_advice(call),
            related=entry_places(model, entry),
            fix=_fix(model, call),
        )
    yield from _appended(model)
    yield from _uploaded(model)
    yield from _done_once(model)
    yield from _downloads(model)
    yield from _commands(model)
    yield from own_locks(model)
    yield from _read_early(model)


def _read_early(model: FileModel) -> Iterator[Problem]:
    """``xm.save(state, path)``, and ``torch.load(path)`` right behind it."""
    for read, write, entry in read_early(model):
        yield model.problem(
            read.node,
            "only the master core has written this file, and no core waits for it: one that comes "
            "here first finds none, an older one, or half of it",
            suggestion='xm.rendezvous("written") behind what writes it',
            related=[model.place(write.node, "written here"), *entry_places(model, entry)],
        )


def _appended(model: FileModel) -> Iterator[Problem]:
    """``with open("log.txt", "a") as log: log.write(...)`` on all cores."""
    for call, path, entry in _shared(model, appended_path):
        yield model.problem(
            call.node,
            f"every core appends to {snippet(model, path)}: it gets each line once from every "
            "core, in any order",
            suggestion=_advice(call),
            related=entry_places(model, entry),
        )


def _uploaded(model: FileModel) -> Iterator[Problem]:
    """``blob.upload_from_filename(path)`` on all cores, of what the master has to write first."""
    for call, path, entry in _shared(model, uploaded_path):
        yield model.problem(
            call.node,
            f"every core uploads {snippet(model, path)}, as often as there are cores; what the "
            "master writes (xm.save) may not be there yet: no core waits for it",
            suggestion='xm.rendezvous("written"), and upload it under '
            "`if xm.is_master_ordinal(local=False):`",
            related=entry_places(model, entry),
        )


def _done_once(model: FileModel) -> Iterator[Problem]:
    """``os.makedirs(path)`` and ``shutil.rmtree(path)`` on all cores: the first one alone can."""

    def path_of(_: FileModel, call: CallSite) -> cst.BaseExpression | None:
        once = done_once(model, call)
        if once is None or _is_caught(model, call.node):
            return None
        asks = once.does != "remove all" and any(
            _asks_for_file(model, guard) for guard in model.guards(call.node)
        )
        return None if asks else once.path

    for call, path, entry in _shared(model, path_of):
        once = done_once(model, call)
        what, suggestion = _ONCE[once.does if once is not None else "remove"]
        yield model.problem(
            call.node,
            what.format(snippet(model, path)),
            suggestion=suggestion,
            related=entry_places(model, entry),
        )


def _is_caught(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether what a call raises is caught around it: ``try: os.makedirs(path)``."""
    inner = node
    for parent in model.tree.ancestors(node):
        if isinstance(parent, cst.Try) and parent.body is inner and parent.handlers:
            return True
        if isinstance(parent, cst.With) and any(
            isinstance(item.item, cst.Call) and model.call(item.item).last == "suppress"
            for item in parent.items
        ):
            return True
        inner = parent
    return False


def _shared(
    model: FileModel, path_of: Callable[[FileModel, CallSite], cst.BaseExpression | None]
) -> Iterator[tuple[CallSite, cst.BaseExpression, Entry]]:
    """The calls whose path is the same on all cores, which all come there; from where they do."""
    for call in model.calls():
        path = path_of(model, call)
        if path is None or _is_nowhere(model, path):
            continue
        entry = every_core(model, call.node)
        if entry is None or not same_everywhere(model, path, entry.call):
            continue
        if _lets_one_first(model, call.node):
            continue
        if not _there_before(model, call):
            yield call, path, entry


def _advice(call: CallSite) -> str:
    if call.name == "torch.save":
        return "xm.save(data, path) writes once: call it on all cores"
    if call.method == PRETRAINED:
        return (
            "of a model: save_pretrained(path, is_main_process=...) on all cores; of a tokenizer: "
            "under `if xm.is_master_ordinal(local=False):`"
        )
    return (
        "write it under `if xm.is_master_ordinal(local=False):` (read device values before, on all "
        "cores)"
    )


def _downloads(model: FileModel) -> Iterator[Problem]:
    """``torchvision.datasets.CIFAR10(root, download=True)`` on all cores at once, and torchaudio's.

    The test part comes with the training part: the first of both is told, if it always runs too.
    """
    told: dict[object, list[set[tuple[cst.BaseExpression, bool]]]] = {}
    for call in model.giving("download"):
        download, root = call.keywords["download"], call.argument(0, "root")
        alone = fetched_by_master(model, download) and not _was_waited_for(model, call)
        if not is_dataset(model, call) or not (alone or fetches(model, download)):
            continue
        if root is not None and differs(model, root):
            continue
        entry = every_core(model, call.node)
        if entry is None or _one_by_one(model, call) or _there_before(model, call):
            continue
        under = {(guard.test, guard.when) for guard in model.guards(call.node)}
        before = told.setdefault((model.tree.text(call.node.func), call.function), [])
        if any(one <= under for one in before):
            continue
        before.append(under)
        yield model.problem(
            call.node,
            _ALONE if alone else _TOGETHER,
            suggestion=_BY_MASTER.format("download"),
            related=entry_places(model, entry),
        )


def _was_waited_for(model: FileModel, call: CallSite, depth: int = 2) -> bool:
    """Whether cores meet before what the master downloads, or somebody else has downloaded it."""
    order = model.tree.order
    meets = any(
        other.function is call.function and order[other.node] < order[call.node]
        for other in model.calls()
        if (name := model.effects.name(other)) is not None and name.empty
    )
    others = (x for x in model.giving("download") if x is not call and is_dataset(model, x))
    is_there = any(
        fetches(model, other.keywords["download"]) and every_core(model, other.node) is None
        for other in others
    )
    callers = model.callers(call.function) if call.function is not None and depth else ()
    here = (one for one in callers if model.is_here(one.node))
    return meets or is_there or any(_was_waited_for(model, one, depth - 1) for one in here)


def _commands(model: FileModel) -> Iterator[Problem]:
    """``os.system("wget https://...")`` on all cores at once."""
    for call in model.calls(*RUNS):
        command = fetching_command(model, call)
        if command is None or differs(model, command) or _one_by_one(model, call):
            continue
        parts = (part for part in walk(command) if isinstance(part, cst.BaseExpression))
        entry = every_core(model, call.node)
        local = any(model.value(part).local for part in parts)
        if entry is not None and not local and not _there_before(model, call):
            yield model.problem(
                call.node,
                "every core runs this command, which writes files: they overwrite each other, "
                "and a core that reads them may find a partial file",
                suggestion=_BY_MASTER.format("run it"),
                related=entry_places(model, entry),
            )


def _there_before(model: FileModel, call: CallSite) -> bool:
    """Whether the process that starts the cores has made a file that they make if it is missing.

    ``if not os.path.exists(path): fetch(path)`` in a method that the script calls before, too, or
    that stands in both.
    """
    if call.function is None or not any(_asks_for_file(model, x) for x in model.guards(call.node)):
        return False
    before = (one.function for one in model.callers(call.function) if one.function is not None)
    if "lightning" in model.frameworks and any(one.name == "prepare_data" for one in before):
        return True  # Lightning calls it on one process, before all else
    entry = every_core(model, call.node)
    if entry is None or entry.call is None:
        return False
    text = model.tree.text(call.node).strip()
    alike = (x for x in model.calls() if x.last == call.last and x.node is not call.node)
    same = [x for x in alike if model.tree.text(x.node).strip() == text]
    return any(_starts_later(model, x, entry.call) for x in (*model.callers(call.function), *same))


def _asks_for_file(model: FileModel, guard: Guard) -> bool:
    """``if not os.path.exists(path):``, ``if not path.is_file():``."""
    asked = (part for part in walk(guard.test) if isinstance(part, cst.Call))
    return any(model.call(part).last in IS_THERE for part in asked)


def _starts_later(model: FileModel, call: CallSite, start: cst.CSTNode) -> bool:
    """Whether a call stands before what starts the cores: of Lightning's Trainer, its fit.

    What joins the other processes starts none: a launcher has, and each of them runs the lines
    before.
    """
    if isinstance(start, cst.Call) and (model.call(start).name or "").startswith(_JOINS):
        return False
    home, order = model.function_of(start), model.tree.order
    if call.function is not home or not model.is_here(call.node) or not model.is_here(start):
        return False
    fits = [one.node for one in model.methods(*_STARTS) if one.function is home]
    runs = fits if "lightning" in model.frameworks and fits else [start]
    return all(order[call.node] < order[one] for one in runs)


def _one_by_one(model: FileModel, call: CallSite, depth: int = 2) -> bool:
    """Whether cores come to a call one after the other: some of them wait before it.

    Or before all calls of its function, or it stands in one that somebody else runs.
    """
    order = model.tree.order
    here = call.function
    if here is not None and isinstance(here.node, cst.Lambda) and not model.callers(here):
        return True  # ``SERIAL_EXEC.run(lambda: CIFAR10(root, download=True))``
    if any(_SERIAL.search(name) for name in model.named) or _lets_one_first(model, call.node):
        return True
    held = any(
        other.function is call.function
        and order[other.node] < order[call.node]
        and model.core_guard(other.node) is not None
        for other in model.calls()
        if (name := model.effects.name(other)) is not None and name.empty
    )
    callers = model.callers(here) if here is not None and depth else ()
    near = [one for one in callers if model.is_here(one.node)]
    return held or (bool(near) and all(_one_by_one(model, one, depth - 1) for one in near))


def _lets_one_first(model: FileModel, node: cst.CSTNode, depth: int = 3) -> bool:
    """Whether ``with accelerator.main_process_first():`` or a lock is around, or around callers."""
    for parent in model.tree.ancestors(node):
        items = parent.items if isinstance(parent, cst.With) else ()
        for item in items:
            text = dotted_text(item.item.func if isinstance(item.item, cst.Call) else item.item)
            if text is not None and _FIRST.search(text):
                return True
    function = model.function_of(node)
    callers = model.callers(function) if function is not None and depth else ()
    return bool(callers) and all(
        _lets_one_first(model, caller.node, depth - 1) for caller in callers
    )


def _is_nowhere(model: FileModel, path: cst.BaseExpression) -> bool:
    """``open(os.devnull, "w")``, to be rid of what the other cores print."""
    return model.name(path) == "os.devnull" or model.literal(path) in {"/dev/null", "nul"}


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``torch.save`` as ``xm.save``; another writer under a test for the master core."""
    if call.has_star or call.method == PRETRAINED:
        return None
    if call.name == "torch.save":
        spelled = model.spelled(SAVE, call.node)
        if spelled is None or len(call.node.args) != 2 or call.keywords:
            return None
        return model.fix("Write it once", model.replace(call.node.func, spelled), safe=False)
    spelled = model.spelled("torch_xla.core.xla_model.is_master_ordinal", call.node)
    if spelled is None or call.name == SAVE or call.name == "builtins.open":
        return None
    if not isinstance(model.parent(call.node), cst.Expr) or _reads_device(model, call):
        return None  # all cores have to read what is on the device, so the test cannot go here
    edit = under_condition(model, call.node, f"{spelled}(local=False)")
    return model.fix("Write it on the master core", edit, safe=False)


def _reads_device(model: FileModel, call: CallSite) -> bool:
    """Whether anything that is written may be on the device."""
    parts = [part for part in walk(call.node) if isinstance(part, cst.BaseExpression)]
    return any(model.value(part).is_device_tensor for part in parts)
