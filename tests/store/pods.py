"""Invented parts of hosts, written as ``xladoctor profile`` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.invented import InventedRun
from xladoctor.store.launchers import Identity
from xladoctor.store.locations import located
from xladoctor.store.upload import Uploader

if TYPE_CHECKING:
    from pathlib import Path

#: When the first host of a run begins, unix seconds; the machine's clock says 1 s then.
START = 1_763_670_000.0


def host_run(cores: int = 2, steps: int = 12, *, late: float = 0.0, **manifest: Any) -> InventedRun:
    """A run of one host: ``late`` seconds of each step it works while the others wait."""
    run = InventedRun(cores, **manifest)
    for core in range(cores):
        run.compilation(core, 1)
        for step in range(1, steps + 1):
            run.step(core, step, execute=0.5 - late, trace=0.1 + late)
    run.end()
    return run


def write_host(
    address: str | Path,
    folder: Path,
    run: InventedRun,
    host: str | int,
    *,
    name: str | None = "job-41",
    hosts: int | None = None,
    hostname: str | None = None,
    started: float = START,
    pid: int = 5,
    restart: int | None = None,
    ended: bool = True,
) -> None:
    """Write a host's part, as the uploader of that host does."""
    run.rows[0]["time"] = started
    if run.manifest is not None:
        run.manifest |= {"started": started}
    run.write(folder)
    who = Identity(name, str(host), hosts, None, restart, "SLURM", hostname or f"node-{host}")
    uploader = Uploader(
        folder, located(address), who, started=started, pid=pid, version="0.1.0", every=60.0,
        clock=lambda: started + 60.0,
    )  # fmt: skip
    uploader.start()
    if ended:
        assert uploader.finish() is None
    else:
        uploader._over.set()  # the host is gone: nobody says that nothing more will come
