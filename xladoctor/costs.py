"""What the steps of a run would cost on a TPU, as its compiler says: the types that reports show.

``tpu`` makes them from recorded graphs, ``diagnosis`` makes findings of them, ``report`` shows
them. Cycles are the compiler's estimate for one core; seconds are cycles by the core's clock.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xladoctor.findings import Location


#: How the module of what an optimizer does begins.
OPTIMIZER = "optimizer "

#: Kinds of operation by name: what they are called.
KINDS = {
    "product": "matrix products and convolutions",
    "elementwise": "element by element",
    "reduction": "reductions",
    "copy": "copies and transposes",
    "gather": "gathers",
    "scatter": "scatters",
    "sort": "sorting",
    "random": "random numbers",
    "collective": "collectives",
    "emulation": "64-bit values in halves",
}


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceOperation:
    """One step of a graph's schedule on one core.

    Attributes:
        location: The user's line; None for what has none (what the compiler adds by itself).
        operation: torch's name where it is known ("aten::mm"), else XLA's ("copy").
        kind: "product", "copy", "gather", "scatter", "sort", "collective", "random", "reduction",
            "emulation" or "elementwise".
        cycles: Of all its runs in one run of the graph; None where the compiler makes no estimate.
        memory_bytes: Bytes that it moves between the device's memory and the core, at most.
        shape: Of its result, as it is stored ("f32[1000,1025]{1,0:T(8,128)}").
        backward: Whether it belongs to the backward pass; the line is then that of the forward
            operation.
        products: Types of the factors of a product, as the program has them ("f32").
        wide: The 64-bit type that the program asked for, which a TPU computes in halves; "" if
            none.
        padding: "3 -> 128", where a product's dimension is rounded up to the tile; "" if none.
        padded: How many times the stored elements of its operands are of those the program has.
        module: The modules of the model around it, the outermost first ("Net.encoder", "Block");
            empty if it is of none, or not known.
        flops: Floating point operations of its matrix products and convolutions, of all its runs.
        runs: How often it runs in one run of the graph.
        sent: Bytes that one core gives to the others in a collective, of all its runs.
        wave: Collectives of one wave could be one; "" of what is no collective.
        counted_once: Whether it is in a loop whose number of iterations is not known.
    """

    location: Location | None
    operation: str
    kind: str
    cycles: int | None
    memory_bytes: int
    shape: str
    backward: bool = False
    products: str = ""
    wide: str = ""
    padding: str = ""
    padded: float = 1.0
    module: tuple[str, ...] = ()
    flops: float = 0.0
    runs: int = 1
    sent: int = 0
    wave: str = ""
    counted_once: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceTensor:
    """One of the largest tensors of a graph in device memory.

    Attributes:
        kind: "argument", "output" or "temporary".
        shape: As it is stored.
        size: Bytes that it takes.
        unpadded: Bytes of its elements; None if not known.
        location: The line that makes it, if known.
        operation: torch's name of what makes it; "" if not known.
        first: When it comes into being, as a share of the schedule's operations; None if not known.
        last: When it has been used for the last time, likewise.
    """

    kind: str
    shape: str
    size: int
    unpadded: int | None
    location: Location | None
    operation: str
    first: float | None = None
    last: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class GraphCost:
    """One graph on one target.

    Attributes:
        graph: Its hash, as in the compilations of the report; None if it has none.
        location: The line that ends it.
        trigger: What ends it, as in the compilations of the report.
        per_step: How often it runs in the typical step; 0 if it is not of it.
        cycles, device_seconds, flops: Of one run; None if there is no program.
        fits: Whether one core can run it; None if that is not known.
        error: Why there is no program, as one sentence; None if there is one.
        refusal: Kind of the error: "memory", "refused", "crashed", "too-slow" or "not-asked".
        error_location: The line that the compiler refuses, if it names one.
        memory: Bytes by kind: arguments, temporary, output, aliased, code; None without a program.
        needed: Bytes that it needs in all; None if not known.
        operations: Its schedule.
        tensors: Its largest tensors.
        picture: Temporary bytes along the schedule.
        compile_seconds: How long the compiler took.
    """

    graph: str | None
    location: Location | None
    trigger: str | None
    per_step: float
    cycles: int | None = None
    device_seconds: float | None = None
    flops: float | None = None
    fits: bool | None = None
    error: str | None = None
    refusal: str | None = None
    error_location: Location | None = None
    memory: Mapping[str, int] | None = None
    needed: int | None = None
    operations: tuple[DeviceOperation, ...] = ()
    tensors: tuple[DeviceTensor, ...] = ()
    picture: tuple[int, ...] = ()
    compile_seconds: float | None = None

    @property
    def lines(self) -> tuple[LineCost, ...]:
        """Cycles by line and operation, the most costly first."""
        found: dict[tuple[Location | None, str, bool], tuple[int, float]] = {}
        for one in self.operations:
            if one.cycles:
                key = (one.location, one.operation, one.backward)
                cycles, flops = found.get(key, (0, 0.0))
                found[key] = (cycles + one.cycles, flops + one.flops)
        rows = [LineCost(*key, *counted) for key, counted in found.items()]
        return tuple(sorted(rows, key=lambda row: -row.cycles))

    @property
    def modules(self) -> Mapping[tuple[str, ...], int]:
        """Cycles by module of the model, the most costly first."""
        found: dict[tuple[str, ...], int] = {}
        for one in self.operations:
            if one.cycles:
                found[one.module] = found.get(one.module, 0) + one.cycles
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def not_estimated(self) -> int:
        """How many steps of the schedule the compiler makes no estimate for."""
        return sum(one.cycles is None for one in self.operations)

    @property
    def not_estimated_bytes(self) -> int:
        """Bytes that these move in device memory, at most."""
        return sum(one.memory_bytes for one in self.operations if one.cycles is None)


@dataclasses.dataclass(frozen=True, slots=True)
class LineCost:
    """Cycles of one operation of one line in one run of a graph, and the flops of its products."""

    location: Location | None
    operation: str
    backward: bool
    cycles: int
    flops: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class StepCost:
    """The typical step after warm-up on one core of one target; None means not known.

    Attributes:
        device_seconds: Estimated time of its graphs.
        host_seconds: Python, tracing and waiting for input on the machine that recorded the run.
            Simulated cores trace in threads of one Python; then it is the least that one core
            alone would take: its time by the number of cores.
        host_seconds_at_most: The same as it was measured, waiting for other threads included.
        tracing_seconds: Python and tracing in ``host_seconds``.
        input_wait_seconds: Waiting for input in ``host_seconds``.
        idle_share: Part of the step in which the device waits for the host, at least, if the host
            never waits for the device.
        memory_bytes: Of the graph that needs most.
        memory_limit_bytes: Of one core.
        fits: Whether all its graphs do.
        matrix_unit_share: Achieved over peak floating point operations while the device runs.
        bandwidth_share: Bytes moved over what the memory could move while the device runs, at most.
        flops: Of its graphs.
        memory_traffic: Bytes that its graphs move, at most.
        collectives: How often a core talks to the others.
        collectives_needed: How often it would have to: those that do not need one another could be
            one.
        collective_bytes: What it gives to the others.
    """

    device_seconds: float | None = None
    host_seconds: float | None = None
    host_seconds_at_most: float | None = None
    tracing_seconds: float | None = None
    input_wait_seconds: float | None = None
    idle_share: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    fits: bool | None = None
    matrix_unit_share: float | None = None
    bandwidth_share: float | None = None
    flops: float | None = None
    memory_traffic: int | None = None
    collectives: float | None = None
    collectives_needed: float | None = None
    collective_bytes: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TargetCost:
    """A run on one target.

    Attributes:
        target: As Google Cloud names it.
        topology: As libtpu names it.
        compiler: "libtpu 0.0.21".
        cores: XLA devices of the target.
        clock_hz: Of its cores.
        peak_flops: Floating point operations a second of one core's matrix units.
        bandwidth: Bytes a second between a core and its memory.
        step: The typical step.
        graphs: The graphs of the typical step first, then others.
        notes: What is not known or left out, in sentences.
    """

    target: str
    topology: str
    compiler: str
    cores: int
    clock_hz: float
    step: StepCost
    graphs: tuple[GraphCost, ...] = ()
    notes: tuple[str, ...] = ()
    peak_flops: float | None = None
    bandwidth: float | None = None


#: The same step on two targets: a difference in memory from which it is explained.
_OTHER_MEMORY = 0.02

WHY_OTHER_MEMORY = (
    "A step takes more memory where a core has more: the compiler saves only where it has to, and "
    "pads by the tiles of each TPU. The figure is what the step takes there, not the least it "
    "needs."
)


def other_memory(needed: Sequence[int | None]) -> bool:
    """Whether bytes of the same step on several targets differ so much that it must be said."""
    known = [one for one in needed if one is not None]
    return bool(known) and max(known) > (1 + _OTHER_MEMORY) * min(known)


def to_json(cost: TargetCost) -> dict[str, Any]:
    """A target's entry, as the contract writes it (more keys may be added)."""
    return {
        "target": cost.target,
        "topology": cost.topology,
        "compiler": cost.compiler,
        "cores": cost.cores,
        "clock_hz": cost.clock_hz,
        "peak_flops": cost.peak_flops,
        "bandwidth": cost.bandwidth,
        "step": dataclasses.asdict(cost.step),
        "graphs": [_graph_to_json(graph) for graph in cost.graphs],
        "notes": list(cost.notes),
    }


def _graph_to_json(graph: GraphCost) -> dict[str, Any]:
    return {
        "graph": graph.graph,
        "location": _place(graph.location),
        "trigger": graph.trigger,
        "per_step": graph.per_step,
        "cycles": graph.cycles,
        "device_seconds": graph.device_seconds,
        "flops": graph.flops,
        "fits": graph.fits,
        "error": graph.error,
        "refusal": graph.refusal,
        "error_location": _place(graph.error_location),
        "memory": None if graph.memory is None else dict(graph.memory),
        "memory_bytes": graph.needed,
        "compile_seconds": graph.compile_seconds,
        "not_estimated": graph.not_estimated,
        "not_estimated_bytes": graph.not_estimated_bytes,
        "lines": [
            {
                "filename": row.location.filename,
                "row": row.location.row,
                "function": row.location.function,
                "operation": row.operation,
                "backward": row.backward,
                "cycles": row.cycles,
                "flops": row.flops,
            }
            for row in graph.lines
            if row.location is not None
        ],
        "without_line": [
            {"operation": row.operation, "backward": row.backward, "cycles": row.cycles}
            for row in graph.lines
            if row.location is None
        ],
        "kinds": _kinds(graph),
        "modules": [
            {"module": list(module), "cycles": cycles} for module, cycles in graph.modules.items()
        ],
        "largest": [
            {
                "kind": tensor.kind,
                "shape": tensor.shape,
                "bytes": tensor.size,
                "unpadded_bytes": tensor.unpadded,
                "operation": tensor.operation or None,
                "location": _place(tensor.location),
                "alive_from": tensor.first,
                "alive_to": tensor.last,
            }
            for tensor in graph.tensors
        ],
        "temporary_bytes_along_schedule": list(graph.picture),
    }


def _kinds(graph: GraphCost) -> dict[str, dict[str, int]]:
    """By kind of operation: cycles, number, and how many have no estimate."""
    found: dict[str, dict[str, int]] = {}
    for one in graph.operations:
        row = found.setdefault(one.kind, {"cycles": 0, "count": 0, "not_estimated": 0})
        row["cycles"] += one.cycles or 0
        row["count"] += 1
        row["not_estimated"] += one.cycles is None
    return found


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    return {
        "filename": location.filename,
        "row": location.row,
        "function": location.function,
    }
