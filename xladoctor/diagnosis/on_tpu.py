"""What the TPU compiler says of the typical step, as findings: XLA723 to XLA730, XLA601, XLA602.

Evidence is the compiler's own: its estimated cycles, its layouts, its refusals. A finding's
``tpu_seconds`` are seconds of one step on the first target; where the compiler makes no estimate,
they are not known. Facts of the first target; what does not fit or is refused, of each.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.amounts import device_time, size
from xladoctor.costs import OPTIMIZER
from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.input_pipeline import MORE_WORKERS
from xladoctor.diagnosis.tracing import LESS_TRACING
from xladoctor.diagnosis.words import at as place_text
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xladoctor.costs import DeviceOperation, GraphCost, TargetCost
    from xladoctor.findings import Finding, Location


#: Codes that only the TPU compiler's answers give.
COMPILER_ONLY = frozenset(f"XLA{number}" for number in range(723, 731))


def joined(
    measured: Iterable[Finding], costs: tuple[TargetCost, ...], loader: Sequence[Location] = ()
) -> list[Finding]:
    """What was measured, with what the compiler says; waiting for input is told once.

    Args:
        measured: Findings of the run.
        costs: By target.
        loader: Where the loader that feeds the steps is made, and what has to do with it.
    """
    together = list(measured)
    for one in find(costs, loader):
        same = next((at for at, old in enumerate(together) if old.code == one.code), None)
        if one.code == "XLA601" and same is not None:
            old = together[same]
            message = f"{old.message}; {one.message}"
            together[same] = dataclasses.replace(old, message=message, tpu_seconds=one.tpu_seconds)
        else:
            together.append(one)
    return together


def find(costs: tuple[TargetCost, ...], loader: Sequence[Location] = ()) -> Iterator[Finding]:
    """Findings of the typical step."""
    for cost in costs:
        yield from _no_room(cost)
        yield from _refused(cost)
    first = costs[0]
    yield from _idle(first, loader)
    for look in (_padding, _copies, _float32, _wide, _row_by_row):
        yield from look(first)
    yield from _collectives(first)


def order(costs: tuple[TargetCost, ...], steps: int) -> tuple[str, ...]:
    """How findings are ranked, where the compiler has been asked."""
    if not costs or costs[0].step.device_seconds is None:
        return ()
    sentence = (
        f"Findings are ranked by what they cost in these {steps} steps: on {costs[0].target} where "
        "its compiler has an estimate, else as measured here."
    )
    return (sentence,)


def tpu_cost(steps: int) -> Callable[[Finding], float | None]:
    """What a finding costs over a run on a TPU: measured seconds where the compiler says nothing.

    Args:
        steps: Steps of the run.
    """

    def cost(one: Finding) -> float | None:
        return one.seconds if one.tpu_seconds is None else one.tpu_seconds * max(1, steps)

    return cost


# -- what does not run at all ----------------------------------------------------------------------
def _no_room(cost: TargetCost) -> Iterator[Finding]:
    """XLA730: at most one for each target, of the graph that needs most."""
    graphs = [graph for graph in cost.graphs if graph.fits is False]
    if not graphs:
        return
    worst = max(graphs, key=lambda graph: graph.needed or 0)
    limit = cost.step.memory_limit_bytes or 0
    needed = worst.needed or 0
    largest = worst.tensors[0] if worst.tensors else None
    held = ""
    if largest is not None:
        padded = largest.unpadded and largest.size > limits.TPU_PADDED * largest.unpadded
        held = (
            f"; the largest tensor is {_plain(largest.shape)} with {size(largest.size)}"
            + (f" ({size(largest.unpadded or 0)} without padding)" if padded else "")
            + (f", made in {place_text(largest.location)}" if largest.location else "")
        )
    yield finding(
        "XLA730",
        f"does not fit a core of {cost.target}: needs {size(needed)} and there are "
        f"{size(limit)}, {size(max(0, needed - limit))} too few{held}",
        "use a smaller batch, bfloat16, torch_xla.utils.checkpoint around large blocks, or "
        "sharding (FSDP, SPMD)",
        at=[largest.location if largest is not None else None, worst.location],
        count=len(graphs),
    )


def _refused(cost: TargetCost) -> Iterator[Finding]:
    """XLA729: one for each graph."""
    for graph in cost.graphs:
        if graph.refusal == "refused":
            yield finding(
                "XLA729",
                f"{cost.target}: {graph.error}",
                "write it with operations and types that the TPU has, or keep it off the device",
                at=[graph.error_location, graph.location],
            )


# -- host against device ---------------------------------------------------------------------------
def _idle(cost: TargetCost, loader: Sequence[Location]) -> Iterator[Finding]:
    """XLA602, XLA601: the device is done before the host has traced, or has got, the next step."""
    step = cost.step
    if step.idle_share is None or step.device_seconds is None or step.host_seconds is None:
        return
    if step.idle_share < limits.TPU_IDLE_SHARE:
        return
    most = step.host_seconds_at_most or step.host_seconds
    shared = (
        f" (measured {device_time(most)} with all cores sharing this machine; alone it is at least "
        "that by their number)"
        if most > step.host_seconds
        else ""
    )
    waiting = step.input_wait_seconds or 0.0
    of_it = f", at least {device_time(waiting)} of it waiting for input" if waiting else ""
    message = (
        f"a core of {cost.target} runs a step in {device_time(step.device_seconds)} and the host "
        f"needs at least {device_time(step.host_seconds)} for it{of_it}{shared}: the device is "
        f"idle at least {step.idle_share:.0%} of the time"
    )
    place = next((graph.location for graph in cost.graphs if graph.per_step), None)
    if 2 * waiting > step.host_seconds:
        made = loader[0] if loader else place
        found = finding("XLA601", message, MORE_WORKERS, at=made, related=loader[1:])
    else:
        found = finding("XLA602", message, LESS_TRACING, at=place)
    yield dataclasses.replace(found, tpu_seconds=step.host_seconds - step.device_seconds)


# -- what takes time that a change would save ------------------------------------------------------
@dataclasses.dataclass(slots=True)
class _Group:
    """Operations of one line that show the same."""

    location: Location | None
    operations: list[DeviceOperation] = dataclasses.field(default_factory=list)
    cycles: float = 0.0
    count: float = 0.0
    moved: float = 0.0


def _groups(
    cost: TargetCost, wanted: Callable[[DeviceOperation], bool], worth: float
) -> Iterator[tuple[_Group, float]]:
    """By line: operations of the typical step, with their share of its cycles, if worth it."""
    total = sum((graph.cycles or 0) * graph.per_step for graph in cost.graphs)
    groups: dict[tuple[str, int] | None, _Group] = {}
    for graph, one in _of_step(cost.graphs):
        if wanted(one):
            key = (one.location.filename, one.location.row) if one.location else None
            group = groups.setdefault(key, _Group(one.location))
            group.operations.append(one)
            group.cycles += (one.cycles or 0) * graph.per_step
            group.count += graph.per_step
            group.moved += one.memory_bytes * graph.per_step
    for group in sorted(groups.values(), key=lambda group: -group.cycles):
        share = group.cycles / total if total else 0.0
        if share >= worth:
            yield group, share


def _of_step(graphs: Iterable[GraphCost]) -> Iterator[tuple[GraphCost, DeviceOperation]]:
    for graph in graphs:
        if graph.per_step:
            for one in graph.operations:
                yield graph, one


def _slow(
    code: str, cost: TargetCost, group: _Group, share: float, message: str, suggestion: str
) -> Finding:
    """A finding with its device time; information only where the device is not what is slow."""
    seconds = group.cycles / cost.clock_hz
    step = max(cost.step.device_seconds or 0.0, cost.step.host_seconds or 0.0)
    return dataclasses.replace(
        finding(
            code,
            f"{message}: {device_time(seconds)} of the step on {cost.target} ({share:.0%} of its "
            "device time)",
            suggestion,
            at=group.location,
            count=round(group.count) or 1,
            certain=seconds >= limits.TPU_STEP_SHARE * step,
        ),
        tpu_seconds=seconds,
    )


def _padding(cost: TargetCost) -> Iterator[Finding]:
    """XLA723: products whose dimensions are rounded up to the tile."""

    def wanted(one: DeviceOperation) -> bool:
        return one.kind == "product" and bool(one.padding) and one.padded >= limits.TPU_PADDED

    for group, share in _groups(cost, wanted, limits.TPU_SHARE):
        worst = max(group.operations, key=lambda one: (one.cycles or 0, one.padded))
        yield _slow(
            "XLA723", cost, group, share,
            f"{worst.operation} works on tensors that are stored {worst.padded:.1f} times as "
            f"large as they are ({worst.padding})",
            "make the two fastest dimensions multiples of 128 and 8: batch, channels, vocabulary, "
            "sequence length",
        )  # fmt: skip


def _copies(cost: TargetCost) -> Iterator[Finding]:
    """XLA724: copies and transposes between layouts.

    Not those of an optimizer: the products want weights in another order than the program has
    them, and no line of the program asks for that.
    """

    def wanted(one: DeviceOperation) -> bool:
        return one.kind == "copy" and not (one.module and one.module[0].startswith(OPTIMIZER))

    for group, share in _groups(cost, wanted, limits.TPU_SHARE):
        worst = max(group.operations, key=lambda one: one.cycles or 0)
        yield _slow(
            "XLA724", cost, group, share,
            f"{plural(round(group.count) or 1, 'copy', 'copies')} or transposes between layouts "
            f"around {worst.operation}, the largest of {_plain(worst.shape)}",
            "keep one order of dimensions from the input to the loss: no permute, transpose or "
            ".contiguous() between operations, and none of them on each step's input",
        )  # fmt: skip


def _float32(cost: TargetCost) -> Iterator[Finding]:
    """XLA725: products that read float32 and are bound by memory."""
    bound = cost.step.bandwidth_share or 0.0
    if bound < limits.TPU_MEMORY_BOUND:
        return

    def wanted(one: DeviceOperation) -> bool:
        return one.kind == "product" and one.products == "f32"

    for group, share in _groups(cost, wanted, limits.TPU_SHARE):
        worst = max(group.operations, key=lambda one: one.cycles or 0)
        yield _slow(
            "XLA725", cost, group, share,
            f"{worst.operation} reads and writes float32 ({size(group.moved)} a step), and the "
            f"step moves up to {bound:.0%} of what the memory can; bfloat16 is half of that",
            "run the forward pass under torch.autocast('xla', dtype=torch.bfloat16), or keep the "
            "model in bfloat16; products are computed in bfloat16 on a TPU by default anyway",
        )  # fmt: skip


def _wide(cost: TargetCost) -> Iterator[Finding]:
    """XLA726: 64-bit arithmetic, which a TPU does in several 32-bit operations."""
    for group, share in _groups(cost, lambda one: bool(one.wide), limits.TPU_SHARE):
        worst = max(group.operations, key=lambda one: one.cycles or 0)
        kind = {"f64": "float64", "s64": "int64", "u64": "uint64"}.get(worst.wide, worst.wide)
        yield _slow(
            "XLA726", cost, group, share,
            f"{worst.operation} computes with {kind}, which a TPU does in several 32-bit "
            "operations",
            "convert to float32 or int32 before the tensor is sent to the device",
        )  # fmt: skip


def _row_by_row(cost: TargetCost) -> Iterator[Finding]:
    """XLA727: gathers and scatters of many bytes; the compiler makes no estimate of most."""

    def wanted(one: DeviceOperation) -> bool:
        return one.kind in ("gather", "scatter") and (
            one.cycles is not None or one.memory_bytes >= limits.TPU_GATHER_BYTES
        )

    for group, share in _groups(cost, wanted, 0.0):
        if share < limits.TPU_SHARE and group.moved < limits.TPU_GATHER_BYTES:
            continue
        worst = max(group.operations, key=lambda one: (one.cycles or 0, one.memory_bytes))
        known = f", {share:.0%} of the step's estimated cycles" if group.cycles else ""
        does = "written" if worst.kind == "scatter" else "fetched"
        yield dataclasses.replace(
            finding(
                "XLA727",
                f"{worst.operation} is a {worst.kind} on {cost.target}: rows of "
                f"{_plain(worst.shape)} are {does} one after the other "
                f"({size(group.moved)} a step{known or '; the compiler makes no estimate of it'})",
                "where the table is small, multiply by a one-hot matrix instead; sort or group "
                "indices; take slices where the rows are neighbours",
                at=group.location,
                count=round(group.count) or 1,
                certain=share >= limits.TPU_SHARE,
            ),
            tpu_seconds=group.cycles / cost.clock_hz or None,
        )


def _collectives(cost: TargetCost) -> Iterator[Finding]:
    """XLA728: many small collectives, and how many of them could be one."""
    lines: dict[tuple[str, int] | None, list[tuple[GraphCost, DeviceOperation]]] = {}
    for graph, one in _of_step(cost.graphs):
        if one.wave and one.sent < limits.TPU_SMALL_COLLECTIVE * one.runs:
            key = (one.location.filename, one.location.row) if one.location else None
            lines.setdefault(key, []).append((graph, one))
    for found in lines.values():
        count = sum(graph.per_step * one.runs for graph, one in found)
        if count < limits.TPU_MANY_COLLECTIVES:
            continue
        sent = sum(graph.per_step * one.sent for graph, one in found)
        waves = {(graph.graph, one.wave): graph.per_step * one.runs for graph, one in found}
        needed = sum(waves.values())
        fewer = needed < count
        yield finding(
            "XLA728",
            f"{count:.0f} collectives a step of {size(sent / count)} each are left after the "
            "compiler has joined what it can, and each costs its latency: "
            + (
                f"{needed:.0f} would do, the others need no result of one another"
                if fewer
                else "each needs the result of one before it, so they cannot be one"
            ),
            "reduce all gradients in one call (xm.optimizer_step, xm.reduce_gradients, or one "
            "xm.all_reduce of a list)"
            if fewer
            else "reduce less often: SyncBatchNorm in fewer layers, metrics once an epoch",
            at=found[0][1].location,
            count=round(count),
            certain=fewer,
        )


def _plain(shape: str) -> str:
    """A shape without its layout; of a tuple its first array."""
    first = shape.lstrip("(").partition("{")[0].rstrip(",) ")
    return f"{first} and others" if shape.startswith("(") else first
