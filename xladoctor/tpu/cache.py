"""Answers of the TPU compiler from before, one file each; nothing here is ever needed.

An answer depends on the graph, the topology, the number of cores, the compiler's version and on
the modules that read what it says. What cannot be read is as good as not there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.tpu import compiled

if TYPE_CHECKING:
    from xladoctor.tpu.compiler import Request

#: Files that are kept; the oldest go first.
MOST = 2000

_READERS = (
    "adapter",
    "allocations",
    "compiled",
    "donors",
    "optimized",
    "products",
    "shapes",
    "worker",
)


class Cache:
    """Answers by what they depend on.

    Args:
        folder: Where they are kept; made when there is something to keep. None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        #: Why answers could not be kept, as one sentence; None if they could.
        self.problem: str | None = None

    def get(self, request: Request) -> compiled.Compiled | None:
        """The answer from before, None if there is none."""
        if self._folder is None:
            return None
        path = self._path(self._folder, request)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, zlib.error):
            data = json.loads(zlib.decompress(path.read_bytes()))
            answer = compiled.from_json(data, cached=True, target=request.target.name)
            with contextlib.suppress(OSError):
                os.utime(path)
            return answer
        return None

    def put(self, request: Request, answer: compiled.Compiled) -> None:
        """Keep an answer that another compilation would give again."""
        settled = answer.refusal is None or answer.refusal.kind in ("memory", "refused")
        if self._folder is None or not settled or self.problem is not None:
            return
        data = zlib.compress(json.dumps(compiled.to_json(answer)).encode())
        path = self._path(self._folder, request)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(data)
            Path(file.name).replace(path)
            self._prune(self._folder)
        except OSError as error:
            self.problem = (
                f"what the TPU compiler said could not be kept in {self._folder} "
                f"({error.strerror}), so it will be asked again"
            )

    @staticmethod
    def _path(folder: Path, request: Request) -> Path:
        parts = [
            request.graph.digest,
            request.target.topology,
            sorted(request.target.options.items()),
            request.replicas,
            request.partitions,
            request.compiler,
            _readers(),
        ]
        return folder / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.z"

    @staticmethod
    def _prune(folder: Path) -> None:
        files = list(folder.glob("*.z"))
        if len(files) > MOST:
            files.sort(key=lambda path: path.stat().st_mtime)
            for path in files[: len(files) - MOST]:
                path.unlink(missing_ok=True)


@functools.cache
def _readers() -> str:
    """The state of the modules whose work an answer is."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _READERS:
        digest.update((here / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
