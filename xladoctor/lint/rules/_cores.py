"""What rules about several cores share: who runs a node, what differs from core to core."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Entry, Function, Kind, children, walk
from xladoctor.lint.model.apart import alone
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import WITHOUT_NUMBER
from xladoctor.lint.model.turns import refuses
from xladoctor.lint.rules._fabric import fabric_of_cores, launched
from xladoctor.lint.rules._given_to_master import given_to_master
from xladoctor.lint.rules._lightning import (
    COMMAND_LINES,
    TRAINERS,
    for_xla,
    several_cores,
)
from xladoctor.lint.rules._lightning_gone import FROM_OPTIONS
from xladoctor.lint.rules._lightning_hooks import run_by_lightning
from xladoctor.lint.rules._reads import never
from xladoctor.lint.rules._sources import is_made_in, the_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from xladoctor.lint.model import CallSite, FileModel, Guard
    from xladoctor.lint.model.problems import Place

_NUMBER_CALLS = frozenset(
    {
        "torch_xla.core.xla_model.get_ordinal",
        "torch_xla.core.xla_model.get_local_ordinal",
        "torch_xla.core.xla_model.is_master_ordinal",
        "torch_xla.core.xla_model.xla_device",
        "torch_xla.device",
        "torch_xla.runtime.global_ordinal",
        "torch_xla.runtime.local_ordinal",
        "torch_xla.runtime.process_index",
        "torch.distributed.get_rank",
        "os.getpid",
        "multiprocessing.current_process",
        "threading.get_ident",
    }
)
#: What makes a Trainer of Lightning.
_TRAINERS = ("lightning.pytorch.Trainer", FROM_OPTIONS, *COMMAND_LINES)
#: Calls whose result is another one each time, on each core.
_UNIQUE_CALLS = ("uuid.", "tempfile.", "time.", "datetime.", "random.", "secrets.")
#: What starts the cores as processes, and where it is told how (spawned unless it says so).
_STARTS = {"torch_xla.distributed.xla_multiprocessing.spawn": 5, "torch_xla.launch": 2}
#: Words of a line that says from which core it comes.
_CORE_WORDS = re.compile(r"\b(core|device|ordinal|process|rank|replica|worker)s?\b")
_PLAIN_TEXT = (cst.SimpleString, cst.ConcatenatedString)
_TEXTS = (
    *_PLAIN_TEXT,
    *(cst.FormattedString, cst.FormattedStringExpression, cst.BinaryOperation, cst.Tuple),
)
#: Names of settings that say how many cores there are: ``num_cores``, ``TPU_WORKERS``.
COUNT_NAME = re.compile(
    r"^(num_|n_|nb_)?(tpu_)?(cores?|tpus?|replicas|tpu_workers|tpu_cores)$|^world_size$"
    r"|^(num|n|nb)_process(es)?$",
    re.IGNORECASE,
)
#: Calls that say how many cores there are.
_COUNTS = re.compile(r"world_size|device_count$")
_WORDS = frozenset({"rank", "ordinal", "core", "index", "replica", "worker", "shard", "pid"})


def every_core(
    model: FileModel, node: cst.CSTNode, *, in_turn: bool = False, some_way: bool = False
) -> Entry | None:
    """The entry from which all cores reach a node, unless a condition asks which core it is.

    A condition on data (``if loss < best``) holds back no core in particular: all may come.

    Args:
        model: The file.
        node: Any node.
        in_turn: Whether cores that get there one after another count too.
        some_way: Whether it is enough that one of the ways there is open to all: what only the
            master evaluates, all train.
    """
    if model.spmd or not model.is_xla:
        return None
    entry = model.on_every_core(node) or _lightning_entry(model, node)
    if entry is None or model.master_only(node) is not None:
        return None
    guards = [*model.guards(node)]
    outer = model.core_guard(node, every=some_way)
    if outer is not None:
        guards.append(outer)
    if in_turn:
        guards = [guard for guard in guards if not _is_turn(model, guard)]
    if any(
        (guard.master is not None or differs(model, guard.test))
        and not ends_the_run(model, guard, node)
        for guard in guards
    ):
        return None
    if any(_has_one_core(model, guard) or never(model, guard) for guard in guards):
        return None
    return None if given_to_master(model, node) else entry


def _has_one_core(model: FileModel, guard: Guard) -> bool:
    """``if world_size == 1:``, and behind ``if world_size > 1: ... return``."""
    if not isinstance(guard.test, cst.Comparison) or alone(guard.test) is not guard.when:
        return False
    return model.literal(guard.test.comparisons[0].comparator) in {1, 2}


def _is_turn(model: FileModel, guard: Guard) -> bool:
    """``for i in range(world): if rank == i: ...``: each core gets there, when it is its turn."""
    test = guard.test
    if not guard.when or not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    if not isinstance(test.comparisons[0].operator, cst.Equal):
        return False
    sides = (test.left, test.comparisons[0].comparator)
    return any(
        isinstance(loop, cst.For)
        and is_made_in(model, loop.iter, {"builtins.range"})
        and isinstance(loop.target, cst.Name)
        and any(is_name(side, loop.target.value) for side in sides)
        for loop in model.tree.ancestors(guard.node)
    )


def _lightning_entry(model: FileModel, node: cst.CSTNode) -> Entry | None:
    """The ``Trainer`` on several TPU cores that runs methods of modules and callbacks there.

    Or ``Fabric``, of what it launches.
    """
    function = model.function_of(node)
    if "lightning" not in model.frameworks or function is None:
        return None
    method = run_by_lightning(model, function)
    if method is not None:
        trainer = trainer_of_cores(model)
        return None if trainer is None else Entry(method, trainer.node)
    started = launched(model, function)
    fabric = fabric_of_cores(model, sharded=True) if started is not None else None
    return None if fabric is None else Entry(started, fabric.node)


@dataclasses.dataclass(frozen=True)
class CoresOfTrainer:
    """Lightning's ``Trainer`` on several TPU cores.

    Attributes:
        call: What makes it; None where Hydra makes it of the project's settings.
    """

    call: CallSite | None = None

    @property
    def node(self) -> cst.CSTNode | None:
        """What makes it, as a node."""
        return None if self.call is None else self.call.node

    def places(self, model: FileModel) -> list[Place]:
        """Where it is made, as related places."""
        return [] if self.call is None else [model.place(self.call.node, "several cores")]


def trainer_of_cores(model: FileModel) -> CoresOfTrainer | None:
    """Lightning's ``Trainer`` on several TPU cores, here, in a linked file or of settings."""
    parts = (model, *model.linked)
    for part in parts:
        found = part.once(_trainer_of_cores)
        if found is not None:
            return CoresOfTrainer(found)
    by_settings = model.started.on_tpus and model.started.several
    made = any(True for part in parts for _ in part.calls(*_TRAINERS))
    return CoresOfTrainer() if by_settings and not made else None


def _trainer_of_cores(model: FileModel) -> CallSite | None:
    for call in model.calls(*_TRAINERS):
        if for_xla(model, call) is not None and several_cores(model, call):
            return call
    return None


def entry_places(model: FileModel, entry: Entry) -> list[Place]:
    """Where the cores start, as related places."""
    return [model.place(entry.call, "the cores are started here")] if entry.call is not None else []


def differs(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether anything in an expression may differ from core to core, as a path may."""
    return any(tells_core(model, part) or is_unique(model, part) for part in walk(node))


def is_unique(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a call gives something else each time, as the time and random numbers."""
    return isinstance(node, cst.Call) and (model.call(node).name or "").startswith(_UNIQUE_CALLS)


def asks_for_core(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether anything in a piece of code asks for the core's number."""
    return any(
        isinstance(part, cst.Call) and (model.call(part).name or "") in _NUMBER_CALLS
        for part in walk(node)
    )


def tells_core(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether a node tells which core it is: by what it is, or by its name."""
    if isinstance(node, cst.Call):
        return (model.call(node).name or "") in _NUMBER_CALLS
    if isinstance(node, cst.Name | cst.Attribute):
        value = model.value(node)
        if value.kind in {Kind.CORE_NUMBER, Kind.IS_MASTER, Kind.NOT_MASTER, Kind.DEVICE}:
            return True
        word = node.attr.value if isinstance(node, cst.Attribute) else node.value
        return bool(_WORDS & set(word.lower().split("_")))
    return False


def says_core(model: FileModel, shown: Iterable[cst.CSTNode]) -> bool:
    """Whether what is shown or written says from which core it comes: then it was meant."""
    nodes = list(shown)
    if all(_is_plain(model, node) for node in nodes):
        return False  # the same line on each core, whatever its words are
    parts = [part for node in nodes for part in _shown(model, node)]
    if any(tells_core(model, part) or _is_text_of_core(model, part) for part in parts):
        return True
    texts = (
        part.value.lower()
        for node in nodes
        for part in walk(node)
        if isinstance(part, cst.SimpleString | cst.FormattedStringText)
    )
    return any(_CORE_WORDS.search(text) for text in texts)


def _is_plain(model: FileModel, node: cst.CSTNode) -> bool:
    """A text with nothing in it that could be another one on each core; their number is one."""
    if isinstance(node, cst.SimpleString | cst.FormattedStringText):
        return True
    if isinstance(node, cst.Call) and model.call(node).method == "format":
        return isinstance(model.call(node).receiver, _PLAIN_TEXT) and all(
            _is_plain(model, argument.value) for argument in node.args
        )
    if isinstance(node, cst.Call | cst.Name | cst.Attribute):
        made = the_call(model, node)
        return made is not None and bool(_COUNTS.search(made.last))
    kept = isinstance(node, _TEXTS) or not isinstance(node, cst.BaseExpression)
    return kept and all(_is_plain(model, part) for part in children(node))


def _is_text_of_core(model: FileModel, node: cst.CSTNode) -> bool:
    """``path``, of ``path = f"{folder}/part-{rank}.pt"``: a text that was made with the number."""
    return any(
        isinstance(text, cst.FormattedString | cst.BinaryOperation | cst.Call)
        and any(isinstance(part, cst.FormattedString | cst.SimpleString) for part in walk(text))
        and any(tells_core(model, part) for part in walk(text))
        for text in model.assigned_to(node)
    )


def _shown(model: FileModel, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The parts of what is shown: of a call of the program's its name, not what it is given.

    And the text that it gives back: ``f"{device}/{ordinal}"`` of ``_get_device_spec(device)``.
    """
    target = model.call(node).target if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call) and isinstance(target, Function):
        yield node.func
        for one in returned(target):
            if any(isinstance(part, cst.SimpleString | cst.FormattedString) for part in walk(one)):
                yield from walk(one)
        return
    yield node
    for part in children(node):
        yield from _shown(model, part)


def is_main(model: FileModel, guard: Guard) -> bool:
    """``if __name__ == "__main__":``, which only the process that was started gets past."""
    return guard.when and "__name__" in model.tree.text(guard.test)


def starts_anew(model: FileModel, call: CallSite) -> bool:
    """Whether ``xmp.spawn`` or ``torch_xla.launch`` starts new processes, as unless forked."""
    if call.name not in _STARTS or call.has_star:
        return False
    start = call.argument(_STARTS[call.name], "start_method")
    if asks_for_one(model, call) or "debug_single_process" in call.keywords:
        return False
    return start is None or model.literal(start) in {"spawn", "forkserver"}


def runs_here(model: FileModel, start: CallSite) -> bool:
    """Whether a start runs its function in this process, on one core, or may: ``nprocs=1``."""
    debug = start.keywords.get("debug_single_process")
    if start.has_star or (debug is not None and model.literal(debug) is not False):
        return True
    return asks_for_one(model, start)


def asks_for_one(model: FileModel, start: CallSite) -> bool:
    """``nprocs=1``, ``num_processes=1``; ``torch_xla.launch`` has the method of starting there."""
    if start.name == "torch_xla.launch":
        return False
    count = start.argument(2, "num_processes" if start.name in WITHOUT_NUMBER else "nprocs")
    return count is not None and model.literal(count) == 1


def is_forked(model: FileModel, entry: Entry) -> bool:
    """Whether the cores are forked: each process goes on with the numbers of the one before it.

    As Lightning starts them (2.6, ``strategies/launchers/xla.py``).
    """
    start = model.call(entry.call) if isinstance(entry.call, cst.Call) else None
    if start is not None and start.name in {*TRAINERS, FROM_OPTIONS}:
        return True
    method = start.keywords.get("start_method") if start is not None else None
    return method is not None and model.literal(method) == "fork"


def ends_the_run(model: FileModel, guard: Guard, node: cst.CSTNode) -> bool:
    """``if torch.isnan(loss): raise ValueError()`` before a node: it ends the other cores too."""
    return refuses(guard.node) and guard.node not in model.tree.ancestors(node)
