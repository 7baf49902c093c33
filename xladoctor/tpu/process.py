"""A process of its own for the TPU compiler: with a time limit, and one crash costs one graph."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from xladoctor.errors import XladoctorError
from xladoctor.tpu import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Seconds that loading libtpu may take.
_START_LIMIT = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One graph to compile, as plain values that can go to another process or machine.

    Attributes:
        module: ``HloModuleProto``.
        digest: Of the graph.
        target: Name of the target.
        topology: As libtpu names it.
        options: Arguments of the topology besides its name.
        replicas: For how many cores.
        compiler: The compiler that is to be asked ("libtpu 0.0.21").
        partitions: Among how many devices it divides the graph (SPMD).
    """

    module: bytes
    digest: str
    target: str
    topology: str
    options: Mapping[str, Any]
    replicas: int
    compiler: str
    partitions: int = 1

    def failed(self, kind: str, message: str, seconds: float = 0.0) -> compiled.Compiled:
        """The answer where there is no program."""
        return compiled.Compiled(
            digest=self.digest,
            target=self.target,
            replicas=self.replicas,
            compiler=self.compiler,
            seconds=seconds,
            refusal=compiled.Refusal(kind, message),
        )


class Process:
    """One worker process, started when it is needed and again when it has died.

    Args:
        folder: For what the compiler writes.
        number: Of this process among those that share the folder.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._log = folder / f"worker-{number}.log"
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def ask(self, task: Task, limit: float) -> compiled.Compiled:
        """The answer; a refusal of kind "crashed" or "too-slow" if there is none.

        Raises:
            XladoctorError: The compiler cannot be loaded.
        """
        module = self._folder / f"{task.digest}.pb"
        try:
            process = self._process or self._start()
            module.write_bytes(task.module)
        except OSError as error:
            return task.failed(
                "not-asked",
                f"the graph could not be written to {self._folder} ({error.strerror}): free some "
                "space, or let TMPDIR name another disk",
            )
        row = {
            "module": str(module),
            "folder": str(self._folder),
            "digest": task.digest,
            "target": task.target,
            "topology": task.topology,
            "options": dict(task.options),
            "replicas": task.replicas,
            "compiler": task.compiler,
            "partitions": task.partitions,
        }
        answer, late = _converse(process, row, limit)
        if answer is not None:
            return compiled.from_json(answer)
        code = self.stop()
        if late:
            return task.failed(
                "too-slow",
                f"not compiled within {limit:g} s: give --tpu-time-limit more seconds",
                limit,
            )
        return task.failed(
            "crashed", f"the compiler's process died{_how(code)}{self._last_words()}"
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
