"""Where the hosts of a pod write what they record, and how a host says which one it is."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xladoctor import __version__
from xladoctor.capture import rundir
from xladoctor.errors import UsageError, XladoctorError
from xladoctor.store import compact, launchers, parts
from xladoctor.store.locations import is_address, located
from xladoctor.store.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

#: In an address: the launcher's name of the run.
_RUN = "{run}"


class Output(click.ParamType[Path | str]):
    """A run directory (a path), or an address (text)."""

    name = "output"

    def convert(
        self, value: Path | str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """An address stays text; anything else is a path."""
        del param, ctx
        return value if isinstance(value, Path) or is_address(value) else Path(value)


class Shared:
    """This host's part of a run that several hosts write.

    Args:
        address: Where the run lives; may hold ``{run}``.
        every: Seconds between two copies.
        now: Unix seconds.
        words: The command.
        console: For what is to be said.

    Attributes:
        local: The run directory on this machine.

    Raises:
        UsageError: The address is none, or asks for a name that nobody has given the run.
        MissingExtra: What the address needs is not installed.
    """

    def __init__(
        self, address: str, every: float, now: float, words: Sequence[str], console: Console
    ) -> None:
        self._who = launchers.identity(os.environ, socket.gethostname())
        if _RUN in address and self._who.run is None:
            raise UsageError(
                f"{address}: no launcher has given this run a name: set XLADOCTOR_RUN to the same "
                "name on all hosts, or name the run in the address"
            )
        self._location = located(address.replace(_RUN, self._who.run or ""))
        self._every = every
        self._now = now
        self._console = console
        self._uploader: Uploader | None = None
        # Hosts may share their home, and so the folder of runs.
        name = rundir.default_directory(words, now).name
        self.local = rundir.RUNS / f"{name}-host-{self._who.label}-{os.getpid()}"

    @property
    def first(self) -> bool:
        """Whether this is the first host, or nothing numbers them: one report is enough."""
        numbers = self._who.label.replace("-", ".").split(".")
        return self._who.launcher is None or not any(part.strip("0") for part in numbers)

    def begin(self, run_dir: Path) -> None:
        """Write the first of it, so that an address that refuses is known before the command runs.

        Raises:
            StorageError: It cannot be written.
        """
        self._uploader = Uploader(
            run_dir,
            self._location,
            self._who,
            started=self._now,
            pid=os.getpid(),
            version=__version__,
            every=self._every,
            clock=time.time,
        )
        self._uploader.start()
        who = f"host {self._who.label}"
        if self._who.hosts:
            who += f" of {self._who.hosts}"
        by = f", as {self._who.launcher} says" if self._who.launcher else ""
        self._say(f"{who}{by}; its part goes to {self._location.url}")
        if self._uploader.problem is not None:
            self._say(f"{self._uploader.problem}; it is tried again while the command runs")

    def end(self) -> None:
        """Copy what is left, and compact this host's own part where that can be done."""
        assert self._uploader is not None
        problem = self._uploader.finish()
        if problem is not None:
            self._say(f"{problem}; the part of this host is whole in {self.local}")
            return
        try:
            self._compact()
        except (XladoctorError, OSError) as error:
            self._say(f"the part was not compacted ({error}): 'xladoctor compact' does it later")
        self._say(f"for the report of all hosts: xladoctor report {self._location.url}")

    def _compact(self) -> None:
        import importlib.util

        if importlib.util.find_spec("pyarrow") is None:
            return
        assert self._uploader is not None
        name = self._uploader.name
        sizes = {
            file.removeprefix(f"{name}/"): size for file, size in self._location.sizes(name).items()
        }
        part = parts.Part(label=self._who.label, name=name, files=sizes)
        with tempfile.TemporaryDirectory(prefix="xladoctor-compact-") as folder:
            digest = compact.digest_name(part)
            for file, place in compact.one_part(
                self.local, Path(folder), name, digest, columns=True
            ):
                self._location.write(place, file.read_bytes())

    def _say(self, words: str) -> None:
        self._console.print(f"xladoctor: {words}", soft_wrap=True, markup=False)
