"""Where graphs are compiled: in processes on this machine, or by an engine that joblib knows.

``find(None, jobs)`` is this machine. ``find("dask://host:8786", jobs)`` is a Dask cluster,
``find("ray://host:10001", jobs)`` one of Ray, and any other name a backend that joblib has
registered ("loky", "threading"). The workers of an engine need ``xladoctor[tpu]``; this machine
then needs no libtpu.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import queue
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from xladoctor.errors import MissingExtra, UsageError, XladoctorError
from xladoctor.tpu import compiled, remote
from xladoctor.tpu.installed import compiler_version, why_not
from xladoctor.tpu.process import Process, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Seconds in which a cluster must answer.
_REACHED = 15

#: By the scheme of an engine's name: joblib's backend, and the package that brings it.
_CLUSTERS = {"dask": ("dask", "distributed"), "tcp": ("dask", "distributed"), "ray": ("ray", "ray")}


class Engine(Protocol):
    """Compiles graphs somewhere."""

    def compiler(self) -> str:
        """Name and version of the compiler there ("libtpu 0.0.21").

        Raises:
            XladoctorError: It cannot be asked; one sentence.
        """

    def answers(
        self, tasks: Sequence[Task], limit: float, asking: Callable[[int], object]
    ) -> Iterator[tuple[int, compiled.Compiled]]:
        """Compile; places in ``tasks`` with their answers, as they are ready.

        Args:
            tasks: In the order in which they are to be asked.
            limit: Seconds for one graph; then it is given up, and the next goes on.
            asking: Called with a task's place when it is handed over, from any thread.

        Raises:
            XladoctorError: The compiler cannot be asked at all.
        """


def find(name: str | None, jobs: int) -> Engine:
    """An engine by its name; None and "local" are this machine.

    Args:
        name: See the module.
        jobs: Compilations at once, on this machine and in joblib's own backends; a cluster takes as
            many as it has room for.

    Raises:
        UsageError: The name has no meaning.
        MissingExtra: joblib, or what the engine needs, is not installed.
    """
    if name is None or name == "local":
        return Local(jobs)
    if importlib.util.find_spec("joblib") is None:
        raise MissingExtra("engines (--tpu-engine)", "joblib", "tpu")
    return Joblib(name, jobs)


class Local:
    """Worker processes on this machine.

    Args:
        jobs: How many compile at once; each uses all CPUs for part of the time.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def compiler(self) -> str:
        """See :class:`Engine`; what is installed, whether or not it can be used."""
        return compiler_version()

    def answers(
        self, tasks: Sequence[Task], limit: float, asking: Callable[[int], object]
    ) -> Iterator[tuple[int, compiled.Compiled]]:
        """See :class:`Engine`."""
        problem = why_not()
        if problem is not None:
            raise problem
        try:
            folder = tempfile.TemporaryDirectory(prefix="xladoctor-tpu-")
        except OSError as error:
            raise XladoctorError(
                f"--tpu: no folder can be made for what the compiler writes ({error.strerror}): "
                "free some space, or let TMPDIR name another disk"
            ) from error
        with folder as name:
            jobs = max(1, min(self._jobs, len(tasks)))
            processes = [Process(Path(name), number) for number in range(jobs)]
            idle: queue.SimpleQueue[Process] = queue.SimpleQueue()
            for process in processes:
                idle.put(process)

            def ask(at: int) -> compiled.Compiled:
                process = idle.get()
                try:
                    asking(at)
                    return process.ask(tasks[at], limit)
                finally:
                    idle.put(process)

            threads = concurrent.futures.ThreadPoolExecutor(jobs)
            try:
                asked = {threads.submit(ask, at): at for at in range(len(tasks))}
                for done in concurrent.futures.as_completed(asked):
                    yield asked[done], done.result()
            finally:  # also in the middle of a compilation
                threads.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.close()
                threads.shutdown(wait=True)


class Joblib:
    """A backend of joblib: a cluster of Dask or Ray, or one of its own.

    Raises:
        UsageError: There is no such backend.
        MissingExtra: The package that brings it is not installed.
    """

    def __init__(self, name: str, jobs: int) -> None:
        self._name = name
        scheme, separator, address = name.partition("://")
        backend, package = _CLUSTERS.get(scheme, (scheme, None))
        if separator and package is None:
            known = "dask://HOST:PORT, tcp://HOST:PORT (Dask) and ray://HOST:PORT"
            raise UsageError(f"--tpu-engine {name}: there is no such engine; clusters are {known}")
        if package is not None and importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--tpu-engine {name}: it needs {package}, which is not installed: pip install "
                + ('"dask[distributed]"' if backend == "dask" else '"ray"')
            )
        self._backend = backend
        self._jobs = jobs if package is None else -1
        self._how: dict[str, Any] = {}
        if backend == "dask":
            self._how["client"] = self._dask(f"tcp://{address}" if address else None)
        elif backend == "ray":
            self._ray(name if address else None)
        elif backend not in importlib.import_module("joblib.parallel").BACKENDS:
            raise UsageError(
                f"--tpu-engine {name}: joblib has no such backend; give dask://HOST:PORT, "
                "ray://HOST:PORT, or loky"
            )

    def _dask(self, address: str | None) -> Any:
        """A client of the cluster; without an address of the one that Dask's settings name."""
        distributed = importlib.import_module("distributed")
        if address is None:
            address = importlib.import_module("dask").config.get("scheduler-address", None)
            if address is None:
                raise UsageError(
                    "--tpu-engine dask: no scheduler is named; give dask://HOST:PORT or set "
                    "DASK_SCHEDULER_ADDRESS"
                )
        try:
            client = distributed.Client(address, timeout=_REACHED, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise self._unreachable("Dask scheduler", error) from error
        if not client.scheduler_info()["workers"]:
            client.close()
            raise XladoctorError(f"--tpu-engine {self._name}: this Dask cluster has no workers")
        return client

    def _ray(self, address: str | None) -> None:
        ray = importlib.import_module("ray")
        try:
            if not ray.is_initialized():
                ray.init(address or "auto", logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as error:
            raise self._unreachable("Ray cluster", error) from error
        importlib.import_module("ray.util.joblib").register_ray()

    def _unreachable(self, what: str, error: Exception) -> XladoctorError:
        why = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        return XladoctorError(f"--tpu-engine {self._name}: no {what} answers there ({why})")

    def compiler(self) -> str:
        """See :class:`Engine`; asks one worker."""
        ((_, found),) = self._run([remote.version], lambda _: None)
        if "problem" in found:
            raise XladoctorError(
                f"--tpu-engine {self._name}: its workers cannot compile for TPUs: "
                f"{found['problem'].removeprefix('--tpu: ')}"
            )
        return str(found["compiler"])

    def answers(
        self, tasks: Sequence[Task], limit: float, asking: Callable[[int], object]
    ) -> Iterator[tuple[int, compiled.Compiled]]:
        """See :class:`Engine`."""
        calls = [remote.Compile(task, limit) for task in tasks]
        for at, found in self._run(calls, asking):
            if "problem" in found:
                yield (
                    at,
                    tasks[at].failed("not-asked", f"a worker of {self._name}: {found['problem']}"),
                )
            else:
                yield at, compiled.from_json(found["answer"])

    def _run(
        self, calls: Sequence[Callable[[], dict[str, Any]]], asking: Callable[[int], object]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        joblib = importlib.import_module("joblib")

        def handed_over() -> Iterator[Any]:
            for at, call in enumerate(calls):
                asking(at)
                yield joblib.delayed(remote.numbered)(at, call)

        try:
            with joblib.parallel_config(self._backend, n_jobs=self._jobs, **self._how):
                try:
                    parallel = joblib.Parallel(batch_size=1, return_as="generator_unordered")
                except ValueError:  # Ray's backend gives all answers at the end
                    parallel = joblib.Parallel(batch_size=1)
                yield from parallel(handed_over())
        except XladoctorError:
            raise
        except Exception as error:
            why = str(error).strip().partition("\n")[0][:300] or type(error).__name__
            raise XladoctorError(
                f"--tpu-engine {self._name}: its workers failed ({why}); each needs "
                'Python with xladoctor of this version: pip install "xladoctor[tpu]"'
            ) from error
