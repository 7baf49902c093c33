"""A host's own part of a run: copied to where the run lives while the program runs.

The run directory stays as it is on this machine. What grows (``events.jsonl``) goes out in
segments, since objects cannot be appended to: the last one is written anew while it grows, and
never again when it is full. What has arrived stays, whatever becomes of the host.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from xladoctor.store.launchers import Identity
    from xladoctor.store.locations import Location

VERSION = 1

#: Bytes after which a segment is full.
SEGMENT = 4 * 2**20

#: Files of a run directory that say nothing to a reader.
_NOT_SENT = frozenset({"lock", ".gitignore", "attached"})

#: Seconds that a command waits at most for the first copy, by which a refusal is known.
FIRST = 20.0

#: Bytes of a file beyond which it is no file of a run.
_LARGEST = 256 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class PartFacts:
    """What ``part.json`` says of a part.

    Attributes:
        run: The run's name; None if the launcher gave none.
        host, hosts, local, restart, launcher, hostname: As in ``launchers.Identity``.
        started: Unix seconds of this host.
        flushed: When it was last written, unix seconds of this host.
        ended: Whether nothing more will come.
        xladoctor: The version that wrote it.
    """

    run: str | None
    host: str
    hosts: int | None
    local: str | None
    restart: int | None
    launcher: str | None
    hostname: str
    started: float
    flushed: float
    ended: bool
    xladoctor: str
    schema_version: int = VERSION


class Uploader:
    """Copies a run directory, now and then and at its end.

    Args:
        run_dir: The run directory on this machine.
        location: Where the run of all hosts lives.
        who: Which host this is.
        started: Unix seconds; with ``pid`` the name of this incarnation of the host.
        pid: Of the process that writes.
        version: Of xladoctor.
        every: Seconds between two copies.
        clock: Gives unix seconds.
    """

    def __init__(
        self,
        run_dir: Path,
        location: Location,
        who: Identity,
        *,
        started: float,
        pid: int,
        version: str,
        every: float,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self.name = f"hosts/{who.label}/{int(started * 1000)}-{pid}"
        self.problem: str | None = None
        self._run_dir = run_dir
        self._location = location
        self._facts = PartFacts(
            **{field.name: getattr(who, field.name) for field in dataclasses.fields(who)},
            started=started,
            flushed=started,
            ended=False,
            xladoctor=version,
        )
        self._every = every
        self._sent: dict[str, tuple[int, int]] = {}
        self._segments: dict[str, list[int]] = {}  # file: bytes in full segments, their number
        self._refused: StorageError | None = None
        self._begun = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="xladoctor-upload", daemon=True)

    def start(self) -> None:
        """Begin: the first copy is written at once, so that a place that refuses is known.

        One that only does not answer now (``problem`` says it) is tried again later: what is to be
        recorded must not wait for it.

        Raises:
            StorageError: It refuses.
        """
        self._thread.start()
        if not self._begun.wait(FIRST):
            self.problem = f"{self._location.url}: this has not answered in {FIRST:.0f} s"
        if self._refused is not None:
            self._over.set()
            raise self._refused

    def finish(self) -> str | None:
        """Copy what is left; says why the part is incomplete, None if it is whole."""
        self._over.set()
        self._thread.join()
        self._facts = dataclasses.replace(self._facts, ended=True)
        self._try()
        return self.problem

    def _go_on(self) -> None:
        try:
            self._try()
        finally:
            self._begun.set()
        while not self._over.wait(self._every):
            self._try()

    def _try(self) -> None:
        try:
            self._copy()
            self.problem = None
        except StorageError as error:
            self.problem = str(error)
            if not self._begun.is_set() and not error.passing:
                self._refused = error
        except OSError as error:
            self.problem = f"{self._run_dir}: this cannot be read ({error.strerror})"

    def _copy(self) -> None:
        for file in sorted(self._run_dir.rglob("*")):
            name = file.relative_to(self._run_dir).as_posix()
            if file.name in _NOT_SENT or file.suffix == ".new" or not file.is_file():
                continue
            if file.name == "events.jsonl":
                self._copy_events(file, name)
            else:
                self._copy_whole(file, name)
        self._facts = dataclasses.replace(self._facts, flushed=self._clock())
        text = json.dumps(dataclasses.asdict(self._facts), indent=1)
        self._location.write(f"{self.name}/part.json", text.encode())

    def _copy_whole(self, file: Path, name: str) -> None:
        try:
            state = file.stat()
            mark = (state.st_size, state.st_mtime_ns)
            if self._sent.get(name) == mark:
                return
            data = files.read_bytes(file, _LARGEST)
        except FileNotFoundError:
            return  # replaced meanwhile
        self._location.write(f"{self.name}/{name}", data)
        self._sent[name] = mark

    def _copy_events(self, file: Path, name: str) -> None:
        full, number = self._segments.setdefault(name, [0, 0])
        folder = name.rpartition("/")[0]
        with file.open("rb") as events:
            events.seek(full)
            while True:
                data = events.read(SEGMENT)
                data = data[: data.rfind(b"\n") + 1]  # a row in the making comes next time
                sent = f"{folder}/events.{number:05d}.jsonl"
                if data and self._sent.get(sent) != (len(data), full):
                    self._location.write(f"{self.name}/{sent}", data)
                    self._sent[sent] = (len(data), full)
                if len(data) < SEGMENT // 2:
                    break
                full, number = full + len(data), number + 1
                events.seek(full)
        self._segments[name] = [full, number]
