"""Asks the TPU compiler: what is known from before, then an engine for the rest.

requests = [Request(modules.read(path), target) for target in targets.find("v3-8,v5e-8")]
for request, answer in compile_all(requests, cache=Cache(folder)):
...
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.tpu.engines import Engine, Local
from xladoctor.tpu.installed import compiler_version
from xladoctor.tpu.process import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.tpu import compiled
    from xladoctor.tpu.cache import Cache
    from xladoctor.tpu.modules import Prepared
    from xladoctor.tpu.targets import Target

#: Seconds that one graph may take, unless said otherwise.
TIME_LIMIT = 600.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One graph to compile for one target.

    Attributes:
        graph: The graph.
        target: The slice.
        cores: On how many cores (or devices of an SPMD program) the graph was recorded; 1 for a
            program of one core.
        version: The compiler that will be asked; None for the one that is installed here.
    """

    graph: Prepared
    target: Target
    cores: int = 1
    version: str | None = None

    @property
    def replicas(self) -> int:
        """For how many cores it is compiled: without collectives, each core is by itself.

        A graph whose collectives name their cores is for as many as were recorded; one whose
        collectives are of all cores is compiled for all that the slice has.
        """
        if self.partitions > 1:
            return 1
        if not self.graph.collectives or self.cores == 1:
            return max(1, self.graph.cores)
        return self.graph.cores or self.target.cores

    @property
    def partitions(self) -> int:
        """Among how many devices the compiler divides it: 1 if it is whole on each (no SPMD)."""
        return self.cores if self.graph.sharded else 1

    @property
    def compiler(self) -> str:
        """The compiler that will be asked ("libtpu 0.0.21")."""
        return self.version or compiler_version()

    @property
    def task(self) -> Task:
        """The request as plain values."""
        return Task(
            self.graph.module,
            self.graph.digest,
            self.target.name,
            self.target.topology,
            dict(self.target.options),
            self.replicas,
            self.compiler,
            self.partitions,
        )


def compile_all(
    requests: Sequence[Request],
    *,
    cache: Cache,
    engine: Engine | None = None,
    time_limit: float = TIME_LIMIT,
    asking: Callable[[Request], object] | None = None,
) -> Iterator[tuple[Request, compiled.Compiled]]:
    """Compile graphs; answers come as they are ready, those that are known from before first.

    Args:
        requests: In the order in which they are to be asked.
        cache: Of answers.
        engine: Where they are compiled; None for one process on this machine.
        time_limit: Seconds for one graph; then its process is ended, and the next goes on.
        asking: Called when a compilation begins, from any thread.

    Raises:
        XladoctorError: The compiler cannot be asked at all.
    """
    unknown = []
    for request in requests:
        answer = _cannot(request) or cache.get(request)
        if answer is None:
            unknown.append(request)
        else:
            yield request, answer
    if not unknown:
        return

    # The same graph from two commands, or for slices of one topology, is compiled once.
    same: dict[object, list[Request]] = {}
    for request in unknown:
        task = dataclasses.replace(request.task, target="", options={})
        key = (*dataclasses.astuple(task)[1:], *sorted(request.target.options.items()))
        same.setdefault(repr(key), []).append(request)
    groups = list(same.values())

    def begins(at: int) -> None:
        if asking is not None:
            asking(groups[at][0])

    tasks = [group[0].task for group in groups]
    for at, answer in (engine or Local(1)).answers(tasks, time_limit, begins):
        cache.put(groups[at][0], answer)
        for request in groups[at]:
            yield request, dataclasses.replace(answer, target=request.target.name)


def _cannot(request: Request) -> compiled.Compiled | None:
    """The answer to a request that cannot be made."""
    if request.graph.sharded and request.partitions == 1:
        return request.task.failed(
            "not-asked",
            "the graph is of several devices together (SPMD), and among how many it is to be "
            "divided was not recorded: profile the program with --simulate-cores",
        )
    cores = max(request.replicas, request.partitions)
    if cores <= request.target.cores:
        return None
    return request.task.failed(
        "not-asked",
        f"the graph is of {cores} cores and {request.target.name} has "
        f"{request.target.cores}: take a larger slice, or record with "
        f"--simulate-cores {request.target.cores}",
    )
