"""What a worker of an engine runs: a graph in, an answer out, both as plain values."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.errors import XladoctorError
from xladoctor.tpu import compiled
from xladoctor.tpu.installed import compiler_version, why_not
from xladoctor.tpu.process import Process, Task

if TYPE_CHECKING:
    from collections.abc import Callable


def numbered(at: int, call: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """A call's result with its place: engines answer in any order."""
    return at, call()


def version() -> dict[str, Any]:
    """The compiler here (``compiler``), or why it cannot be asked (``problem``)."""
    problem = why_not()
    return {"compiler": compiler_version()} if problem is None else {"problem": str(problem)}


@dataclasses.dataclass(frozen=True, slots=True)
class Compile:
    """Compiles one graph, in a process of its own that ends with it.

    Attributes:
        task: The graph.
        limit: Seconds.
    """

    task: Task
    limit: float

    def __call__(self) -> dict[str, Any]:
        """The answer as plain values (``answer``), or why there is none (``problem``)."""
        problem = why_not()
        if problem is not None:
            return {"problem": str(problem)}
        if compiler_version() != self.task.compiler:
            return {"problem": f"it has {compiler_version()} and others {self.task.compiler}"}
        try:
            with tempfile.TemporaryDirectory(prefix="xladoctor-tpu-") as folder:
                process = Process(Path(folder), 0)
                try:
                    answer = process.ask(self.task, self.limit)
                finally:
                    process.close()
        except (OSError, XladoctorError) as error:
            return {"problem": str(error)}
        return {"answer": compiled.to_json(answer)}
