"""A recorded run on TPU targets: its graphs compiled, and what the typical step costs."""

from __future__ import annotations

import collections
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor import amounts
from xladoctor.costs import (
    KINDS,
    DeviceOperation,
    DeviceTensor,
    GraphCost,
    StepCost,
    TargetCost,
)
from xladoctor.errors import SourceError
from xladoctor.readings.places import location
from xladoctor.tpu import compiler, layers, modules, shapes, typical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xladoctor.findings import Location
    from xladoctor.readings.tables import Run
    from xladoctor.tpu.cache import Cache
    from xladoctor.tpu.compiled import Allocation, Compiled, Operation
    from xladoctor.tpu.engines import Engine
    from xladoctor.tpu.targets import Target

#: Graphs of one run that are compiled for each target, unless said otherwise.
MOST_GRAPHS = 24

#: A product's dimension counts as padded if it is stored so many times as large.
_PADDED = 1.1

_WIDE = ("s64", "u64", "f64", "c128")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A graph to compile: where it is in the run, and itself."""

    used: typical.Used
    graph: modules.Prepared


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How the compiler is asked.

    Attributes:
        cache: Of its answers.
        engine: Where graphs are compiled; None for one process on this machine.
        time_limit: Seconds for one graph.
        most: Graphs for each target: those of the typical step first, then the largest.
        asking: Called when a compilation begins, with the target's name, the graph's place and how
            many there are at most.
    """

    cache: Cache
    engine: Engine | None = None
    time_limit: float = compiler.TIME_LIMIT
    most: int = MOST_GRAPHS
    asking: Callable[[str, Location | None, int], object] | None = None


def study(run: Run, targets: Sequence[Target], settings: Settings) -> tuple[TargetCost, ...]:
    """What a run would cost on each target.

    Raises:
        XladoctorError: The compiler cannot be asked, or the run has no graphs; one sentence.
    """
    chosen, notes = _chosen(run, settings.most)
    cores = max(1, run.manifest.simulated_cores or len({row.core for row in run.cores}))
    cores = max(cores, *(row.devices for row in run.shardings), 1)
    version = settings.engine.compiler() if settings.engine is not None else None
    requests = {
        (target.name, index): compiler.Request(one.graph, target, cores, version)
        for target in targets
        for index, one in enumerate(chosen)
    }
    places = {request: chosen[key[1]].used for key, request in requests.items()}

    def asking(request: compiler.Request) -> None:
        if settings.asking is not None:
            place = location(places[request].frames, run.manifest.cwd)
            settings.asking(request.target.name, place, len(requests))

    answers = dict(
        compiler.compile_all(
            list(requests.values()),
            cache=settings.cache,
            engine=settings.engine,
            time_limit=settings.time_limit,
            asking=asking,
        )
    )
    if settings.cache.problem is not None:
        notes.append(settings.cache.problem)
    model = layers.Layers()
    return tuple(
        _target_cost(
            run,
            target,
            [(one, answers[requests[target.name, index]]) for index, one in enumerate(chosen)],
            notes,
            model,
        )
        for target in targets
    )


def _chosen(run: Run, most: int) -> tuple[list[Asked], list[str]]:
    """The graphs that are compiled, and sentences on those that are not."""
    folder = Path(run.manifest.path)

    def path(one: typical.Used) -> Path:
        return folder / one.process / f"{one.hlo}.pb.z"

    found: dict[str, Asked] = {}
    notes: list[str] = []
    # To prepare a graph takes time as well: no more of them than are compiled.
    # What matters first: of the typical step, most executed and largest.
    waiting = sorted(
        typical.used(run),
        key=lambda one: (not one.per_step, -(one.per_step or 1.0) * _size(path(one))),
    )
    while waiting and len(found) < most:
        one = waiting.pop(0)
        graph = _read(path(one), one.donates)
        if isinstance(graph, modules.Prepared):
            found.setdefault(graph.digest, Asked(one, graph))
        else:
            notes.append(f"{graph}.")
    if not found:
        raise SourceError(
            f"{folder}: this run has no graphs for the TPU compiler: record it with "
            "'xladoctor profile' and --detail normal (the default)"
            + (f" ({notes[0].rstrip('.')})" if notes else "")
        )
    if waiting:
        missed = sum(one.per_step > 0 for one in waiting)
        notes.append(
            f"{len(waiting)} of {len(waiting) + len(found)} graphs were not compiled (--tpu-graphs "
            f"{most}): "
            + (
                f"the typical step runs {missed} of them too, and its device time is without those."
                if missed
                else "those of the typical step come first, then the largest."
            )
        )
    return list(found.values()), notes


def _size(path: Path) -> int:
    """Bytes of a graph's file; 0 if it is not there."""
    return path.stat().st_size if path.is_file() else 0


def _read(path: Path, donates: bool) -> modules.Prepared | str:
    """A graph, or why it cannot be read."""
    try:
        return modules.read(path, donate=donates)
    except SourceError as error:
        return str(error)


def _target_cost(
    run: Run,
    target: Target,
    answers: list[tuple[Asked, Compiled]],
    notes: Iterable[str],
    model: layers.Layers,
) -> TargetCost:
    graphs = tuple(_graph_cost(run, target, asked, answer, model) for asked, answer in answers)
    step = _step(run, target, graphs)
    return TargetCost(
        target=target.name,
        topology=target.topology,
        compiler=answers[0][1].compiler,
        cores=target.cores,
        clock_hz=target.clock_hz,
        peak_flops=target.peak_flops,
        bandwidth=target.bandwidth,
        step=step,
        graphs=graphs,
        notes=(*notes, *_notes(run, target, graphs)),
    )


def _notes(run: Run, target: Target, graphs: Sequence[GraphCost]) -> list[str]:
    step = [graph for graph in graphs if graph.per_step]
    notes = _silent(target, step)
    if any(one.counted_once for graph in step for one in graph.operations):
        notes.append(
            f"{target.name}: the step has a loop whose number of iterations the compiler does not "
            "know: it is counted once, so device time is too low."
        )
    if run.manifest.simulated_cores:
        notes.append(
            "The graphs were recorded on the CPU: torch_xla traces some operations otherwise on a "
            "TPU, and donated inputs are taken to be those that results replace."
        )
    return notes


def _silent(target: Target, step: Iterable[GraphCost]) -> list[str]:
    """What the compiler makes no estimate of, and how much that may be."""
    ones = [one for graph in step for one in graph.operations if one.cycles is None]
    if not ones:
        return []
    moved = sum(one.memory_bytes for one in ones)
    kinds = collections.Counter(one.kind for one in ones).most_common()
    sent = sum(one.sent for one in ones)
    links = f", and send {amounts.size(sent)} to other cores" if sent else ""
    return [
        f"{target.name}: the compiler makes no estimate of {len(ones)} operations of the step ("
        + ", ".join(f"{KINDS.get(kind, kind)} {count}" for kind, count in kinds)
        + f"). They move at most {amounts.size(moved)}, "
        f"{amounts.device_time(moved / target.bandwidth)} at full memory bandwidth{links}: device "
        "time is without them."
    ]


def _step(run: Run, target: Target, graphs: Sequence[GraphCost]) -> StepCost:
    """The typical step; if it is not known, nothing of it is."""
    parts = [graph for graph in graphs if graph.per_step]
    if not parts:
        return StepCost(memory_limit_bytes=target.memory_bytes)
    device = _sum(graph.device_seconds and graph.device_seconds * graph.per_step for graph in parts)
    flops = _sum(None if graph.flops is None else graph.flops * graph.per_step for graph in parts)
    complete = all(graph.cycles is not None for graph in parts)
    traffic = (
        round(sum(sum(o.memory_bytes for o in g.operations) * g.per_step for g in parts))
        if complete
        else None
    )
    host = typical.host(run)
    least = host.alone(host.working)
    needed = [graph.needed for graph in parts if graph.needed is not None]
    fits = [graph.fits for graph in parts]
    return StepCost(
        device_seconds=device,
        host_seconds=least,
        host_seconds_at_most=host.working,
        tracing_seconds=host.alone(host.tracing),
        input_wait_seconds=host.alone(host.input_wait),
        idle_share=None
        if device is None or least is None or max(device, least) <= 0
        else 1 - device / max(device, least),
        memory_bytes=max(needed, default=None),
        memory_limit_bytes=target.memory_bytes,
        fits=False if False in fits else None if None in fits else True,
        matrix_unit_share=flops / (device * target.peak_flops) if flops and device else None,
        bandwidth_share=min(1.0, traffic / (device * target.bandwidth))
        if traffic is not None and device
        else None,
        flops=flops,
        memory_traffic=traffic,
        **(_collectives(parts) if complete else {}),
    )


def _collectives(parts: Sequence[GraphCost]) -> dict[str, float]:
    """How often a core talks to the others in a step, how often it would have to, and bytes."""
    count = needed = sent = 0.0
    for graph in parts:
        ones = [one for one in graph.operations if one.wave]
        count += graph.per_step * sum(one.runs for one in ones)
        sent += graph.per_step * sum(one.sent for one in ones)
        needed += graph.per_step * sum({one.wave: one.runs for one in ones}.values())
    return {"collectives": count, "collectives_needed": needed, "collective_bytes": sent}


def _sum(values: Iterable[float | None]) -> float | None:
    """None if one is not known."""
    known = list(values)
    return None if None in known else math.fsum(value for value in known if value is not None)


def _graph_cost(
    run: Run, target: Target, asked: Asked, answer: Compiled, model: layers.Layers
) -> GraphCost:
    def place(number: int | None) -> Location | None:
        source = asked.graph.source(number)
        return location(source.frames, run.manifest.cwd) if source is not None else None

    refusal = answer.refusal
    memory = answer.memory
    cycles = answer.cycles
    return GraphCost(
        graph=asked.used.graph,
        location=location(asked.used.frames, run.manifest.cwd),
        trigger=asked.used.trigger,
        per_step=asked.used.per_step,
        cycles=cycles,
        device_seconds=None if cycles is None else cycles / target.clock_hz,
        flops=answer.flops,
        fits=answer.fits(target.memory_bytes),
        error=None if refusal is None else refusal.message,
        refusal=None if refusal is None else refusal.kind,
        error_location=None if refusal is None else place(refusal.source),
        memory=None if memory is None else dataclasses.asdict(memory),
        needed=memory.total if memory is not None else refusal.used if refusal else None,
        operations=tuple(
            _operation(one, asked.graph.source(one.source), place(one.source), model)
            for one in answer.operations
        ),
        tensors=tuple(
            _tensor(one, asked.graph.source(one.source), place(one.source))
            for one in answer.allocations
        ),
        picture=answer.picture,
        compile_seconds=answer.seconds,
    )


def _operation(
    one: Operation, source: modules.Source | None, place: Location | None, model: layers.Layers
) -> DeviceOperation:
    padding, padded = _padding(one)
    return DeviceOperation(
        location=place,
        operation=source.operation if source is not None and source.operation else one.opcode,
        kind=one.kind,
        cycles=None if one.cycles is None else one.total_cycles,
        memory_bytes=one.memory_bytes * one.runs,
        shape=one.shape,
        backward=source is not None and source.backward,
        products=_factors(one),
        wide=_wide(one, source),
        padding=padding,
        padded=padded,
        flops=one.flops * one.runs,
        runs=one.runs,
        sent=one.sent * one.runs,
        wave=one.wave,
        counted_once=one.counted_once,
        module=model.path(source.frames) if source is not None else (),
    )


def _factors(one: Operation) -> str:
    """The type of a product's factors: the narrowest of what it takes."""
    if one.kind != "product":
        return ""
    types = [array.dtype for shape in one.operands for array in shapes.arrays(shape)]
    floats = [dtype for dtype in types if dtype in ("f32", "bf16", "f16", "f64")]
    return "f32" if floats and all(dtype == "f32" for dtype in floats) else next(iter(floats), "")


def _wide(one: Operation, source: modules.Source | None) -> str:
    """The 64-bit type that an operation of the program computes with; "" if none."""
    dtype = source.shape.partition("[")[0] if source is not None else ""
    computes = source is not None and source.opcode not in ("parameter", "constant", "iota")
    if dtype in _WIDE and (computes or one.kind == "emulation"):
        return dtype
    return ""


def _padding(one: Operation) -> tuple[str, float]:
    """The dimensions that are rounded up to the tile, in words, and how much that makes."""
    if one.kind not in ("product", "copy", "elementwise", "reduction"):
        return "", 1.0
    words: dict[str, None] = {}
    stored = real = 0
    for shape in (one.shape, *one.operands):
        for array in shapes.arrays(shape):
            stored += array.padded
            real += array.unpadded
            if len(array.sizes) > 1:
                for size, rounded in zip(array.sizes, array.stored, strict=False):
                    if rounded > size * _PADDED:
                        words[f"{size} -> {rounded}"] = None
    return ", ".join(list(words)[:3]), stored / real if real else 1.0


def _tensor(one: Allocation, source: modules.Source | None, place: Location | None) -> DeviceTensor:
    return DeviceTensor(
        kind=one.kind,
        shape=one.shape,
        size=one.size,
        unpadded=one.unpadded,
        location=place,
        operation=source.operation if source is not None else "",
        first=one.first,
        last=one.last,
    )
