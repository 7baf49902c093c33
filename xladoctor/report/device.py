"""What the TPU compiler says of a run, shaped for the formats for people."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import amounts
from xladoctor.costs import KINDS, WHY_OTHER_MEMORY, other_memory
from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.costs import DeviceTensor, GraphCost, TargetCost
    from xladoctor.findings import Location

#: Lines, modules and tensors that are shown; all of them are in the JSON.
LINES, MODULES, TENSORS = 10, 8, 6


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Device time of one line in the typical step.

    Attributes:
        location: The line; None for what has none.
        operations: What it does, the most costly first.
        seconds: Of one step.
        share: Of the step's device time.
        matrix_units: Share of the matrix units' peak that its products reach; None without any.
        memory: Share of the memory's bandwidth that it uses, at most; None if that is not known.
    """

    location: Location | None
    operations: str
    seconds: float
    share: float
    matrix_units: float | None = None
    memory: float | None = None

    @property
    def bound(self) -> str:
        """Which of the two it is near to: "37% of the matrix units"; "" if near to none."""
        matrix, memory = self.matrix_units or 0.0, self.memory or 0.0
        if max(matrix, memory) < _NEAR:
            return "" if matrix < 0.01 else f"{amounts.percent(matrix)} of the matrix units"
        if matrix >= memory:
            return f"{amounts.percent(matrix)} of the matrix units"
        return f"up to {amounts.percent(memory)} of the memory bandwidth"


#: Share of a peak from which an operation is bound by it.
_NEAR = 0.3


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """Device time of one kind of operation in the typical step.

    Attributes:
        kind: As in ``DeviceOperation``.
        name: What it is called.
        seconds: Of one step.
        share: Of the step's device time.
        count: Operations of the schedule in one step.
        silent: Of these, those that the compiler makes no estimate for.
    """

    kind: str
    name: str
    seconds: float
    share: float
    count: float
    silent: float


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """Device time of one module of the model in the typical step, without modules inside it."""

    name: str
    path: str
    seconds: float
    share: float


def facts(costs: Iterable[TargetCost]) -> list[tuple[str, list[str]]]:
    """The targets side by side: label, and a text for each."""
    known = list(costs)
    return [
        ("device time of a step", [time(cost.step.device_seconds) for cost in known]),
        ("Python and tracing", [_host(cost, cost.step.tracing_seconds) for cost in known]),
        ("waiting for input", [_host(cost, cost.step.input_wait_seconds) for cost in known]),
        ("device waits for the host", [_idle(cost) for cost in known]),
        ("memory of a core", [_memory(cost) for cost in known]),
        ("matrix units in use", [_percent(cost.step.matrix_unit_share) for cost in known]),
        ("memory bandwidth in use", [_at_most(cost.step.bandwidth_share) for cost in known]),
        ("the device is bound by", [bound(cost) for cost in known]),
        *([("collectives", talk)] if any(talk := [_collectives(cost) for cost in known]) else []),
        ("graphs that compile", [_compiled(cost) for cost in known]),
    ]


def bound(cost: TargetCost) -> str:
    """What the device takes its time for while it runs, in one word or two."""
    step = cost.step
    if step.device_seconds is None:
        return "-"
    matrix, memory = step.matrix_unit_share or 0.0, step.bandwidth_share or 0.0
    if max(matrix, memory) < _NEAR:
        return "neither: small or padded operations"
    return "the matrix units" if matrix >= memory else "the memory"


def _collectives(cost: TargetCost) -> str:
    """``12 a step, 1.5 MiB; 1 would do``; "" without any."""
    step = cost.step
    if not step.collectives:
        return ""
    fewer = step.collectives_needed is not None and step.collectives_needed < step.collectives
    return f"{step.collectives:.0f} a step, {size(step.collective_bytes)}" + (
        f"; {step.collectives_needed:.0f} would do" if fewer else ""
    )


def lines(cost: TargetCost) -> list[Line]:
    """Lines of the typical step, the most costly first."""
    total = _total(cost)
    found: dict[tuple[str, int] | None, tuple[Location | None, dict[str, float]]] = {}
    flops: dict[tuple[str, int] | None, float] = {}
    moved: dict[tuple[str, int] | None, float] = {}
    for graph in cost.graphs:
        for one in graph.operations if graph.per_step else ():
            if one.cycles:
                key = (one.location.filename, one.location.row) if one.location else None
                moved[key] = moved.get(key, 0.0) + one.memory_bytes * graph.per_step
        for row in graph.lines if graph.per_step else ():
            at = row.location
            key = (at.filename, at.row) if at else None
            flops[key] = flops.get(key, 0.0) + row.flops * graph.per_step
            _, operations = found.setdefault(key, (at, {}))
            name = row.operation.partition("::")[2] or row.operation
            operations[name] = operations.get(name, 0.0) + row.cycles * graph.per_step
    out = []
    for key, (location, operations) in found.items():
        cycles = sum(operations.values())
        peak = cycles / cost.clock_hz * (cost.peak_flops or 0.0)
        bandwidth = cycles / cost.clock_hz * (cost.bandwidth or 0.0)
        names = sorted(operations, key=operations.__getitem__, reverse=True)
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        out.append(
            Line(
                location,
                ", ".join(names[:2]) + more,
                cycles / cost.clock_hz,
                cycles / total if total else 0.0,
                flops[key] / peak if peak and flops[key] else None,
                min(1.0, moved.get(key, 0.0) / bandwidth) if bandwidth else None,
            )
        )
    return sorted(out, key=lambda line: -line.seconds)


def kinds(cost: TargetCost) -> list[Kind]:
    """Kinds of operation of the typical step, the most costly first."""
    total = _total(cost)
    found: dict[str, list[float]] = {}
    for graph in cost.graphs:
        for one in graph.operations if graph.per_step else ():
            row = found.setdefault(one.kind, [0.0, 0.0, 0.0])
            row[0] += (one.cycles or 0) * graph.per_step
            row[1] += graph.per_step
            row[2] += graph.per_step * (one.cycles is None)
    return [
        Kind(kind, KINDS.get(kind, kind), cycles / cost.clock_hz, cycles / total, count, silent)
        for kind, (cycles, count, silent) in sorted(found.items(), key=lambda item: -item[1][0])
        if total
    ]


def modules(cost: TargetCost) -> list[Module]:
    """Modules of the model in the typical step, the most costly first.

    What is of no module stands together; without any module the list is empty.
    """
    total = _total(cost)
    found: dict[tuple[str, ...], float] = {}
    for graph in cost.graphs:
        for path, cycles in graph.modules.items() if graph.per_step else ():
            found[path] = found.get(path, 0.0) + cycles * graph.per_step
    if not total or not any(found):
        return []
    return [
        Module(
            path[-1] if path else "outside of the model's modules",
            " > ".join(path),
            cycles / cost.clock_hz,
            cycles / total,
        )
        for path, cycles in sorted(found.items(), key=lambda item: -item[1])
    ]


def largest(cost: TargetCost) -> tuple[GraphCost | None, tuple[DeviceTensor, ...]]:
    """The graph that needs most memory, and its largest tensors."""
    known = [graph for graph in cost.graphs if graph.needed is not None]
    if not known:
        return None, ()
    most = max(known, key=lambda graph: (graph.fits is False, graph.needed or 0))
    return most, most.tensors[:TENSORS]


def held(graph: GraphCost) -> str:
    """What the memory of a graph is for: "arguments 1.1 MiB, temporary 7.6 MiB, ..."; or ""."""
    memory = graph.memory
    if memory is None:
        return ""
    donated = (
        f" ({size(memory['aliased'])} of them in the place of donated arguments)"
        if memory["aliased"]
        else ""
    )
    return (
        f"arguments {size(memory['arguments'])}, temporary {size(memory['temporary'])}, results "
        f"{size(memory['output'])}{donated}, program {size(memory['code'])}"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Band:
    """One kind of memory along the schedule, as a path of SVG."""

    name: str
    color: str
    path: str
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """Memory along the schedule of the graph that needs most.

    Attributes:
        bands: From the bottom up.
        limit: Height (SVG units) of what a core has; None if it is far above.
        top: Bytes at the upper edge.
        tensors: The largest.
        location: Where the graph ends.
        held: What the memory is for, in words.
        idle: Bytes of temporary memory that are assigned and hold nothing at the peak: space
            between tensors; 0 if they are few.
        ticks: Heights (SVG units) with the bytes that they stand for.
    """

    bands: tuple[Band, ...]
    limit: float | None
    top: int
    tensors: tuple[DeviceTensor, ...]
    location: Location | None
    ticks: tuple[tuple[float, str], ...]
    idle: int = 0
    held: str = ""
    width: int = 900
    height: int = 180


#: Share of the picture's height that is not worth a word.
_FEW = 0.02

#: A limit that is so many times what is needed would press the picture flat.
_FAR = 4


def picture(cost: TargetCost) -> Picture | None:
    """The picture of one target; None without a program."""
    graph, tensors = largest(cost)
    if graph is None or graph.memory is None or graph.needed is None:
        return None
    memory = graph.memory
    along = graph.picture or (0, 0)
    steady = (
        ("arguments", "input_wait", memory["arguments"]),
        ("results", "compile", memory["output"] - memory["aliased"]),
        ("program", "other", memory["code"]),
    )
    base = sum(most for _, _, most in steady)
    limit = cost.step.memory_limit_bytes
    top = max(graph.needed, base + max(along), 1)
    shown = limit if limit is not None and limit <= _FAR * top else None
    top = max(top, shown or 0)
    bands = []
    floor = [0] * len(along)
    for name, color, most in steady:
        ceiling = [low + most for low in floor]
        bands.append(Band(name, color, _band(floor, ceiling, top), most))
        floor = ceiling
    ceiling = [low + more for low, more in zip(floor, along, strict=True)]
    bands.append(Band("temporary", "execute", _band(floor, ceiling, top), max(along)))
    return Picture(
        tuple(bands),
        None if shown is None else round(180 * (1 - shown / top), 1),
        top,
        tensors,
        graph.location,
        tuple((180 * (1 - share), size(round(share * top))) for share in (0.0, 0.5, 1.0)),
        idle if (idle := memory["temporary"] - max(along)) > _FEW * top else 0,
        held(graph),
    )


def _band(floor: list[int], ceiling: list[int], top: int) -> str:
    """The area between two curves."""
    step = 900 / max(1, len(floor) - 1)

    def points(curve: list[int]) -> list[str]:
        return [f"{i * step:.1f},{180 * (1 - value / top):.1f}" for i, value in enumerate(curve)]

    return f"M{' L'.join([*points(ceiling), *reversed(points(floor))])} Z"


def notes(costs: Iterable[TargetCost]) -> list[str]:
    """What is not known or left out, each sentence once."""
    known = list(costs)
    differ = other_memory([cost.step.memory_bytes for cost in known])
    every = [note for cost in known for note in cost.notes]
    return list(dict.fromkeys([*([WHY_OTHER_MEMORY] if differ else []), *every]))


def failures(cost: TargetCost) -> list[str]:
    """Graphs without a program: where, and why."""
    return [
        f"{words.place(graph.location)}: {graph.error}"
        for graph in cost.graphs
        if graph.error is not None
    ]


def time(value: float | None) -> str:
    """``427 us``, ``1.2 ms``; a dash for what is not known."""
    return "-" if value is None else amounts.device_time(value)


def size(value: float | None) -> str:
    """Bytes for people."""
    return words.amount(value, "B")


def shape(text: str) -> str:
    """A shape without its layout ("f32[6,4,16,16]")."""
    return text.lstrip("(").partition("{")[0].rstrip(",) ")


def _total(cost: TargetCost) -> float:
    return sum((graph.cycles or 0) * graph.per_step for graph in cost.graphs)


def _host(cost: TargetCost, seconds: float | None) -> str:
    """Time of the host; on simulated cores it is the least that one core alone would take."""
    if not seconds:
        return "-" if seconds is None else "none"
    sure = cost.step.host_seconds == cost.step.host_seconds_at_most
    return time(seconds) if sure else f"at least {time(seconds)}"


def _idle(cost: TargetCost) -> str:
    share = cost.step.idle_share
    if not share:
        return "-" if share is None else "no"
    return f"at least {share:.0%}" if share < 0.995 else "over 99%"


def _memory(cost: TargetCost) -> str:
    step = cost.step
    limit = size(step.memory_limit_bytes)
    if step.memory_bytes is None:
        return f"- of {limit}"
    verdict = {True: "fits", False: "does not fit", None: "not known"}[step.fits]
    over = step.memory_bytes - (step.memory_limit_bytes or step.memory_bytes)
    if step.fits is False and over > 0:
        verdict = f"{size(over)} too much"
    return f"{size(step.memory_bytes)} of {limit}, {verdict}"


def percent(share: float) -> str:
    """A share of the device time; a dash for none."""
    return amounts.percent(share) if share else "-"


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return amounts.percent(share)


def _at_most(share: float | None) -> str:
    return _percent(share) if share is None or share < 0.005 else f"at most {share:.0%}"


def _compiled(cost: TargetCost) -> str:
    done = sum(graph.error is None for graph in cost.graphs)
    return f"{done} of {len(cost.graphs)}"
