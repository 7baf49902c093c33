"""Whether a step that reduces gradients runs on several cores, as far as the program says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.library import Effect, Returns
from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.rewrites.moves import line_of
from xladoctor.lint.rules._exact import in_order
from xladoctor.lint.rules._protocol import OPTIMIZER_STEP

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel, Function

#: Ends of names that count the cores, or give each its part of the data.
_SEVERAL = (".DistributedSampler", ".world_size", ".xrt_world_size", ".global_runtime_device_count")
#: Backends of process groups that hold no XLA cores.
_OTHER_BACKENDS = frozenset({"nccl", "gloo", "mpi", "cuda:nccl"})
#: Functions of other files that tell which process this is, or how many there are.
_PROCESSES = frozenset({"get_rank", "get_world_size", "get_local_rank", "is_main_process"})


def several_cores(model: FileModel, step: CallSite) -> bool:
    """Whether the reduction matters: known to run on several cores, or nothing says otherwise.

    A file that only defines the training function is called from elsewhere. ``barrier=True``, or a
    ``mark_step()`` behind it, is how programs for a single core write it, and proves nothing: what
    asks for the other cores does.
    """
    if model.on_every_core(step.node) is not None:
        return True
    starts = any(True for _ in model.calls(*SPAWNERS))
    if model.multi_core and (starts or _runs_alone(model, step.function)):
        return False
    plain = "barrier" not in step.keywords and len(step.positional) == 1
    plain = plain and not _runs_alone(model, step.function) and not _ended_by_hand(model, step)
    return plain or any(_asks_for_cores(model, call) for call in model.calls())


def _ended_by_hand(model: FileModel, step: CallSite) -> bool:
    """``xm.optimizer_step(optimizer)``, then ``xm.mark_step()`` in the same block."""
    block = model.parent(line) if (line := line_of(model, step.node)) is not None else None
    return block is not None and any(
        call.node is not step.node
        and model.effects.ends_graph(call)
        and in_order(model, step.node, call.node)
        and (other := line_of(model, call.node)) is not None
        and model.parent(other) is block
        for call in model.calls_of(step.function)
    )


def _runs_alone(model: FileModel, function: Function | None) -> bool:
    """Whether the file itself runs a function, and starts nothing: there is one core then."""
    waiting = [function]
    seen: set[Function | None] = set()
    while waiting:
        one = waiting.pop()
        if one is None:
            return True
        if one not in seen:
            seen.add(one)
            waiting += [caller.function for caller in model.callers(one)]
    return False


def _asks_for_cores(model: FileModel, call: CallSite) -> bool:
    """Whether a call is one that only programs for several cores make."""
    tells = model.library.returning(Returns.CORE_NUMBER)
    if (call.name or "").startswith("torch.distributed.") and model.once(_groups_others):
        return False
    if call.name in tells or (call.name or "").endswith(_SEVERAL):
        return True
    if call.target is None and call.last in _PROCESSES:
        return True
    events = model.effects.by_call(call)
    return call.name != OPTIMIZER_STEP and any(x.effect is Effect.COLLECTIVE for x in events)


def _groups_others(model: FileModel) -> bool:
    """Whether all process groups of a file are for other devices: it groups no XLA cores."""
    made = list(model.calls("torch.distributed.init_process_group"))
    backends = [call.argument(0, "backend") for call in made]
    return bool(made) and all(
        backend is not None and model.literal(backend) in _OTHER_BACKENDS for backend in backends
    )
