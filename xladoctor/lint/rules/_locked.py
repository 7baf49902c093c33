"""What is given to the cores and cannot be sent to them: it holds a lock, a file or a thread.

``xmp.spawn`` runs its processes by an executor, which pickles what they are given, also where they
are forked. Measured on torch_xla 2.9.0, with both start methods, of its own two classes and of a
queue; of the others ``pickle.dumps`` was measured with Python 3.11, tensorboard 2.21 and
tensorboardX 2.6: ``RuntimeError`` or ``TypeError``. What ``multiprocessing.Manager()`` gives can be
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.knowledge import MODEL_WRAPPER, XMP
from xladoctor.lint.rules._cores import asks_for_one
from xladoctor.lint.rules._exact import given_last, given_true, in_order
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

_OPEN = "builtins.open"
_OF_PROCESSES = (
    *("Queue", "JoinableQueue", "SimpleQueue", "Lock", "RLock", "Event", "Condition"),
    *("Semaphore", "BoundedSemaphore", "Barrier", "Value", "Array"),
)
_OF_THREADS = ("Lock", "RLock", "Event", "Condition", "Semaphore", "Barrier", "Thread", "Timer")
#: What keeps a process from being given an object, by what makes it.
_KEPT_BACK = {
    **dict.fromkeys([MODEL_WRAPPER, f"{XMP}.MpSerialExecutor"], "a lock"),
    **{
        f"{module}.{name}": "a lock"
        for module in ("multiprocessing", "torch.multiprocessing")
        for name in _OF_PROCESSES
    },
    **{f"threading.{name}": "a lock" for name in _OF_THREADS},
    **{f"queue.{name}": "a lock" for name in ("Queue", "LifoQueue", "PriorityQueue")},
    **dict.fromkeys(
        [
            "torch.utils.tensorboard.SummaryWriter",
            "torch.utils.tensorboard.writer.SummaryWriter",
            "tensorboardX.SummaryWriter",
        ],
        "a queue and its thread",
    ),
    **{f"tqdm{module}.tqdm": "an open file" for module in ("", ".auto", ".std")},
    _OPEN: "an open file",
}
_CONTEXTS = frozenset({"multiprocessing.get_context", "torch.multiprocessing.get_context"})


class Locked(NamedTuple):
    """An argument for the cores, what makes the object in it, its class, and what it holds."""

    given: cst.BaseExpression
    made: cst.Call
    which: str
    holds: str


def locked(model: FileModel, start: CallSite) -> Iterator[Locked]:
    """What a start gives to its processes and cannot be sent: by itself, or kept in it."""
    args = start.argument(1, "args")
    if args is None or _is_alone(model, start):
        return
    whole = the_source(model, args)
    for element in whole.elements if isinstance(whole, cst.Tuple | cst.List) else ():
        for part in (element.value, *_kept_in(model, element.value, start)):
            made = the_source(model, part)
            name = _class_of(model, made) if isinstance(made, cst.Call) else ""
            if isinstance(made, cst.Call) and name in _KEPT_BACK:
                which = "file" if name == _OPEN else name.rpartition(".")[2]
                yield Locked(element.value, made, which, _KEPT_BACK[name])
                break


def _is_alone(model: FileModel, start: CallSite) -> bool:
    """Whether a start runs its function in this process: nothing is sent."""
    debug = given_true(model, start, "debug_single_process")
    return debug is not None or asks_for_one(model, start)


def _class_of(model: FileModel, made: cst.Call) -> str:
    """The full name of what a call makes; of a context of multiprocessing as of the module."""
    call = model.call(made)
    if call.name is None and call.method in _OF_PROCESSES and call.receiver is not None:
        context = the_source(model, call.receiver)
        named = model.call(context).name if isinstance(context, cst.Call) else None
        if named in _CONTEXTS:
            return f"multiprocessing.{call.method}"
    return call.name or ""


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
