"""What Fabric refuses on several XLA devices: work that nothing launched, optimizers by themselves.

Read in Lightning 2.6 (``fabric.py``, ``cli.py``): the command line of Fabric starts no TPU cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function, OnXla
from xladoctor.lint.model.dotted import assignments, is_name
from xladoctor.lint.rules._fabric import MADE, is_fabric
from xladoctor.lint.rules._lightning import asks_for_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: What raises before the cores are started.
_SETS_UP = ("setup", "setup_module", "setup_optimizers", "setup_dataloaders", "barrier",
            "all_reduce", "all_gather", "broadcast")  # fmt: skip


def unlaunched(model: FileModel) -> Iterator[Problem]:
    """Fabric on several XLA devices that is set up in the process that made it."""
    for made in _made(model):
        launches = _launches(model, made)
        if not launches and _is_kept_here(model, made) and _is_set_up(model):
            yield _never_launched(model, made)
        for part, call in launches:
            given = call.positional or call.keywords or call.has_star
            if part is model and not given and _makes(part, call) is made.node:
                yield _launched_for_nothing(model, call)


def apart(model: FileModel) -> Iterator[Problem]:
    """``fabric.setup_optimizers(optimizer)`` under the XLAStrategy."""
    calls = list(model.methods("setup_optimizers"))
    parts = (model, *model.linked) if calls else ()
    made = {call.node for part in parts for call in _made(part, sharded=False)}
    others = {call.node for part in parts for call in part.calls(*MADE)} - made
    for call in calls if made else ():
        if call.receiver is None or not is_fabric(model, call.receiver):
            continue
        of = _makes(model, call)
        if of in made or (of is None and not others):
            yield from _set_up_apart(model, call)


def _set_up_apart(model: FileModel, call: CallSite) -> Iterator[Problem]:
    if model.on_xla(call.node) is not OnXla.NO:
        yield model.problem(
            call.node,
            "Fabric's XLAStrategy sets up model and optimizer together or not at all: "
            "setup_optimizers raises RuntimeError",
            suggestion="model, optimizer = fabric.setup(model, optimizer)",
        )


def _made(model: FileModel, *, sharded: bool = True) -> Iterator[CallSite]:
    """Fabric that is told to take several XLA devices, whatever the machine has."""
    for call in model.calls(*MADE):
        if asks_for_processes(model, call, sharded=sharded) and (
            model.on_xla(call.node) is not OnXla.NO
        ):
            yield call


def _never_launched(model: FileModel, made: CallSite) -> Problem:
    work = _handed_to(model, made)
    target = work.target if work is not None else None
    name = target.name if isinstance(target, Function) else "main"
    return model.problem(
        made.node if work is None else work.node,
        "Fabric is never launched: on several XLA devices setup raises RuntimeError, and nothing "
        "starts the cores",
        suggestion=f"fabric.launch({name}, ...) with what is done on each core as a function of "
        "fabric",
        related=[] if work is None else [model.place(made.node, "made here")],
    )


def _launched_for_nothing(model: FileModel, call: CallSite) -> Problem:
    return model.problem(
        call.node,
        "launch() without a function raises TypeError under Fabric's XLA strategies: each core is "
        "a process, which needs to be told what to run",
        suggestion="fabric.launch(main, ...) with what is done on each core as a function of "
        "fabric",
    )


def _launches(model: FileModel, made: CallSite) -> list[tuple[FileModel, CallSite]]:
    """What may launch this Fabric: not what launches another one."""
    return [
        (part, call)
        for part in (model, *model.linked)
        for call in part.methods("launch")
        if call.receiver is not None
        and (_makes(part, call) in {None, made.node})
        and part.on_xla(call.node) is not OnXla.NO
    ]


def _makes(model: FileModel, call: CallSite) -> cst.Call | None:
    """The call that makes the Fabric of which a method is called; None if it is not known."""
    assert call.receiver is not None
    origin = model.value(call.receiver).origin
    if isinstance(origin, cst.Call) and model.call(origin).name in MADE:
        return origin
    return None


def _is_kept_here(model: FileModel, made: CallSite) -> bool:
    """Whether Fabric has a name here, and is handed to nothing but functions of the program."""
    name = _name(model, made)
    if name is None:
        return False
    for use in model.names_in(made.function):
        if use.value != name or use is _target(model, made):
            continue
        parent = model.parent(use)
        if isinstance(parent, cst.Attribute):
            continue
        call = model.parent(parent) if isinstance(parent, cst.Arg) else None
        if not isinstance(call, cst.Call) or not isinstance(model.call(call).target, Function):
            return False
    return True


def _handed_to(model: FileModel, made: CallSite) -> CallSite | None:
    """``main(fabric)`` behind it: what is to be launched."""
    name = _name(model, made)
    for call in model.calls_of(made.function):
        if not isinstance(call.target, Function):
            continue
        if call.positional and name is not None and is_name(call.positional[0], name):
            return call
    return None


def _name(model: FileModel, made: CallSite) -> str | None:
    target = _target(model, made)
    return None if target is None else target.value


def _target(model: FileModel, made: CallSite) -> cst.Name | None:
    parent = model.parent(made.node)
    targets = [target for target, _ in assignments(parent)] if parent is not None else []
    [target] = targets if len(targets) == 1 else [None]
    return target if isinstance(target, cst.Name) else None


def _is_set_up(model: FileModel) -> bool:
    return any(
        call.receiver is not None and is_fabric(part, call.receiver)
        for part in (model, *model.linked)
        for call in part.methods(*_SETS_UP)
    )
