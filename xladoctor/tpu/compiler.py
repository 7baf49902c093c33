"""Asks the TPU compiler, in processes of its own: with a time limit, and one crash costs one graph.

requests = [Request(modules.read(path), target) for target in targets.find("v3-8,v5e-8")]
for request, answer in compile_all(requests, cache=Cache(folder)):
...
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import platform
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from xladoctor.errors import MissingExtra, XladoctorError
from xladoctor.tpu import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.tpu.cache import Cache
    from xladoctor.tpu.modules import Prepared
    from xladoctor.tpu.targets import Target

#: Seconds that one graph may take, unless said otherwise.
TIME_LIMIT = 600.0

#: Seconds that loading libtpu may take.
_START_LIMIT = 120.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One graph to compile for one target.

    Attributes:
        graph: The graph.
        target: The slice.
        cores: On how many cores the graph was recorded; 1 for a program of one core.
    """

    graph: Prepared
    target: Target
    cores: int = 1

    @property
    def replicas(self) -> int:
        """For how many cores it is compiled: without collectives, each core is by itself.

        A graph whose collectives name their cores is for as many as were recorded; one whose
        collectives are of all cores is compiled for all that the slice has.
        """
        if not self.graph.collectives or self.cores == 1:
            return max(1, self.graph.cores)
        return self.graph.cores or self.target.cores

    @property
    def compiler(self) -> str:
        """The compiler that will be asked ("libtpu 0.0.21")."""
        return compiler_version()


def why_not() -> XladoctorError | None:
    """Why the TPU compiler cannot be asked here, as one sentence; None if it can."""
    machine = platform.machine().lower()
    here = f"{platform.system()} on {machine}, Python {platform.python_version()}"
    if sys.platform != "linux" or machine not in ("x86_64", "amd64"):
        return XladoctorError(
            "--tpu: libtpu exists for Linux on x86-64 only, and this is "
            f"{here}: take the run directory to such a machine and run "
            "'xladoctor report RUN --tpu TARGET' there"
        )
    missing = [name for name in ("jaxlib", "libtpu") if importlib.util.find_spec(name) is None]
    if missing and not (3, 11) <= sys.version_info[:2] <= (3, 12):
        return XladoctorError(
            f"--tpu: jaxlib 0.7.1 and libtpu 0.0.21 exist for Python 3.11 and 3.12, and this is "
            f"{here}: install xladoctor[tpu] with one of these and run "
            "'xladoctor report RUN --tpu TARGET' there"
        )
    if missing:
        return MissingExtra("costs on a TPU (--tpu)", missing[0], "tpu")
    return None


def compiler_version() -> str:
    """Name and version ("libtpu 0.0.21"), or the name alone if it is not installed as a package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"libtpu {importlib.metadata.version('libtpu')}"
    return "libtpu"


def compile_all(
    requests: Sequence[Request],
    *,
    cache: Cache,
    jobs: int = 1,
    time_limit: float = TIME_LIMIT,
    asking: Callable[[Request], object] | None = None,
) -> Iterator[tuple[Request, compiled.Compiled]]:
    """Compile graphs; answers come as they are ready, those that are known from before first.

    Args:
        requests: In the order in which they are to be asked.
        cache: Of answers.
        jobs: How many processes compile at once; each uses all CPUs for part of the time.
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
    problem = why_not()
    if problem is not None:
        raise problem
    # A graph that is asked for twice is compiled once: the second finds it in the cache or here.
    with tempfile.TemporaryDirectory(prefix="xladoctor-tpu-") as folder:
        pool = _Pool(Path(folder), max(1, min(jobs, len(unknown))), time_limit, asking)
        try:
            for request, answer in pool.answers(unknown):
                cache.put(request, answer)
                yield request, answer
        finally:
            pool.close()


def _cannot(request: Request) -> compiled.Compiled | None:
    """The answer to a request that cannot be made."""
    if request.graph.sharded:
        return _failed(
            request,
            "not-asked",
            "the graph is of several devices together (SPMD), and what one of them takes is not "
            "asked: record the program without sharding",
        )
    if request.replicas <= request.target.cores:
        return None
    return _failed(
        request,
        "not-asked",
        f"the graph is of {request.replicas} cores and {request.target.name} has "
        f"{request.target.cores}: take a larger slice, or record with "
        f"--simulate-cores {request.target.cores}",
    )


def _failed(request: Request, kind: str, message: str, seconds: float = 0.0) -> compiled.Compiled:
    return compiled.Compiled(
        digest=request.graph.digest,
        target=request.target.name,
        replicas=request.replicas,
        compiler=request.compiler,
        seconds=seconds,
        refusal=compiled.Refusal(kind, message),
    )


class _Pool:
    """Threads that each hold one worker process."""

    def __init__(
        self, folder: Path, jobs: int, time_limit: float, asking: Callable[[Request], object] | None
    ) -> None:
        self._folder = folder
        self._limit = time_limit
        self._asking = asking
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(folder, number) for number in range(jobs)]
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = concurrent.futures.ThreadPoolExecutor(jobs)

    def answers(self, requests: Sequence[Request]) -> Iterator[tuple[Request, compiled.Compiled]]:
        asked = {self._threads.submit(self._ask, request): request for request in requests}
        for done in concurrent.futures.as_completed(asked):
            yield asked[done], done.result()

    def _ask(self, request: Request) -> compiled.Compiled:
        worker = self._idle.get()
        try:
            if self._asking is not None:
                self._asking(request)
            return worker.ask(request, self._limit)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers, also in the middle of a compilation."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(wait=True)


class _Worker:
    """One worker process, started when it is needed and again when it has died."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._log = folder / f"worker-{number}.log"
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def ask(self, request: Request, limit: float) -> compiled.Compiled:
        """The answer; a refusal of kind "crashed" or "too-slow" if there is none.

        Raises:
            XladoctorError: The compiler cannot be loaded.
        """
        process = self._process or self._start()
        module = self._folder / f"{request.graph.digest}.pb"
        try:
            module.write_bytes(request.graph.module)
        except OSError as error:
            return _failed(
                request,
                "not-asked",
                f"the graph could not be written to {self._folder} ({error.strerror})",
            )
        row = {
            "module": str(module),
            "folder": str(self._folder),
            "digest": request.graph.digest,
            "target": request.target.name,
            "topology": request.target.topology,
            "options": dict(request.target.options),
            "replicas": request.replicas,
            "compiler": request.compiler,
        }
        answer, late = _converse(process, row, limit)
        if answer is not None:
            return compiled.from_json(answer)
        code = self.stop()
        if late:
            return _failed(
                request,
                "too-slow",
                f"not compiled within {limit:g} s: give --tpu-time-limit more seconds",
                limit,
            )
        return _failed(
            request, "crashed", f"the compiler's process died{_how(code)}{self._last_words()}"
        )

    def _start(self) -> subprocess.Popen[str]:
        if self._stopped:
            raise XladoctorError("the compilation was given up")
        with self._log.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "xladoctor.tpu.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
        self._process = process
        hello, late = _converse(process, None, _START_LIMIT)
        if hello is None or "problem" in hello:
            code = self.stop()
            why = hello["problem"] if hello else f"its process died{_how(code)}"
            if late:
                why = f"it was not loaded within {_START_LIMIT:g} s"
            raise XladoctorError(
                f"--tpu: the TPU compiler cannot be used: {why}{self._last_words()}; it needs "
                'jaxlib 0.7.1 and libtpu 0.0.21: pip install "xladoctor[tpu]"'
            )
        return process

    def close(self) -> None:
        """End the process for good."""
        self._stopped = True
        self.stop()

    def stop(self) -> int | None:
        """End the process, whatever it does; returns how it had ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        code = process.poll()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return code if code is not None else process.returncode

    def _last_words(self) -> str:
        """The line of the log that says why the process died, if there is one."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in reversed(lines):
                if "Check fail" in line or line.startswith("F0"):
                    return f": {line.strip()[:300]}"
        return ""


def _converse(
    process: subprocess.Popen[str], row: dict[str, Any] | None, limit: float
) -> tuple[dict[str, Any] | None, bool]:
    """Ask and wait; returns the answer (None if the process ended), and whether it was too late."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit, give_up)
    timer.daemon = True
    timer.start()
    try:
        if row is not None:
            _write(process.stdin, json.dumps(row) + "\n")
        said = process.stdout.readline()
    finally:
        timer.cancel()
    if not said.endswith("\n"):
        process.wait()
        return None, late.is_set()
    found = json.loads(said)
    return (found if isinstance(found, dict) else None), False


def _write(stream: IO[str], text: str) -> None:
    with contextlib.suppress(OSError):  # it has died: there will be no answer
        stream.write(text)
        stream.flush()


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return "" if code is None else f" with exit code {code}"
    with contextlib.suppress(ValueError):
        return f" by {signal.Signals(-code).name}"
    return f" by signal {-code}"
