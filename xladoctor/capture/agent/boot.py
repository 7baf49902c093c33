"""Starts the agent in a process that has just imported torch_xla, or torch_tpu."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NoReturn

from . import measure, torch_tpu, wrapping
from .children import see_deaths
from .hlo import Dumps
from .points import Points
from .process import Process, see_uncaught
from .recorder import Recorder
from .writer import Writer

if TYPE_CHECKING:
    from ..simulate.running import Running
    from ..verify import Verifying

#: What the launcher tells the agent.
RUN_DIR = "XLADOCTOR_RUN_DIR"
SIMULATE = "XLADOCTOR_SIMULATE_CORES"
#: Set if steps are only to be traced.
DRY_RUN = "XLADOCTOR_DRY_RUN"
#: "low", "normal" or "high": what is measured beyond counts and times.
DETAIL = "XLADOCTOR_DETAIL"

_NOT_SIMULATED = (
    "it is a program for TorchTPU, and the cores that xladoctor simulates are torch_xla's: leave "
    "out --simulate-cores and --dry-run, and profile it where its TPU is"
)

#: The recorder of this process, by its id: a forked child has one of its own.
started: dict[int, Recorder] = {}


def boot() -> Recorder | None:
    """Put the recorder, the simulation and the meter around the points of this process.

    Called once per process by the bootstrap. Nothing is written before the process uses a device.

    Returns:
        The recorder; None outside a profiled command.
    """
    run_dir = os.environ.get(RUN_DIR)
    if not run_dir or os.getpid() in started:
        return None
    cores = _simulated_cores(os.environ.get(SIMULATE))
    if cores is not None:
        _refuse(run_dir, cores)
    writer = Writer(run_dir)
    if os.environ.get(DRY_RUN):
        _dry_run(writer, cores or 1)
        return None
    recorder = Recorder(writer, simulated_cores=cores)
    points = Points(on_failure=recorder.process.hook_off)
    for missing in wrapping.install(points):
        recorder.process.hook_off(missing, None)
    recorder.install(points)
    see_uncaught(recorder.ended_by)
    with contextlib.suppress(Exception):  # no such processes on this system
        see_deaths(run_dir)
    meter = measure.Meter(
        simulated=cores is not None, note=recorder.process.note, dumps=_dumps(writer)
    )
    meter.install(points)
    recorder.left_over = meter.left_over
    verifying = _verifying(points, recorder)
    running = _simulate(points, cores, recorder) if cores is not None else None
    if verifying is not None:
        verifying.complete(running)
    started[os.getpid()] = recorder
    os.register_at_fork(after_in_child=lambda: _after_fork(recorder, meter))
    return recorder


def boot_torch_tpu() -> None:
    """Put the recorder around the points of a process that has just imported torch_tpu.

    One that has imported torch_xla before is recorded as torch_xla's. Cores are not simulated, and
    nothing is traced only: the launcher says so when nothing was recorded, for a program may import
    both and use torch_xla.
    """
    run_dir = os.environ.get(RUN_DIR)
    if not run_dir or os.getpid() in started:
        return
    if os.environ.get(SIMULATE) or os.environ.get(DRY_RUN):
        with open(os.path.join(run_dir, f"torch-tpu-{os.getpid()}.txt"), "w") as out:
            out.write(_NOT_SIMULATED + "\n")
        return
    recorder = Recorder(Writer(run_dir), simulated_cores=None, device=torch_tpu.KIND)
    points = Points(on_failure=recorder.process.hook_off)
    recorder.install(points)
    for missing in torch_tpu.install(points, recorder):
        recorder.process.hook_off(missing, None)
    with contextlib.suppress(Exception):  # no such processes on this system
        see_deaths(run_dir)
    started[os.getpid()] = recorder
    os.register_at_fork(after_in_child=lambda: _after_fork(recorder, None))


def step() -> None:
    """The program says that a step of the calling core is over; never raises."""
    with contextlib.suppress(Exception):
        started[os.getpid()].step_over()


def _dumps(writer: Writer) -> Dumps | None:
    level = os.environ.get(DETAIL, "normal")
    if level == "low":
        return None
    return Dumps(writer, lines="always" if level == "high" else "settling")


def _refuse(run_dir: str, cores: int) -> None:
    """End a process in which the cores cannot be simulated: its results would be wrong in silence.

    Raises:
        SystemExit: It is one of several.
    """
    from ..simulate.environment import refusal

    sentence = refusal(os.environ, cores)
    if sentence is not None:
        _end_refused(run_dir, sentence)


def _end_refused(run_dir: str, sentence: str) -> NoReturn:
    # The launcher says it, once for all processes.
    with open(os.path.join(run_dir, f"refused-{os.getpid()}.txt"), "w") as out:
        out.write(sentence + "\n")
    raise SystemExit(2)


def _verifying(points: Points, recorder: Recorder) -> Verifying | None:
    """Take part in 'xladoctor verify', if this is what the program runs for."""
    from .. import verify

    settings = verify.read()
    if settings is None:
        return None
    verifying = verify.Verifying(settings, recorder.close)
    verifying.begin(points)
    return verifying


def _simulate(points: Points, cores: int, recorder: Recorder) -> Running | None:
    from .. import simulate

    try:
        missing = simulate.install(points, cores=cores, on_event=recorder.on_event)
    except simulate.RefusedError as refused:
        _end_refused(os.environ[RUN_DIR], f"--simulate-cores {cores} does not run here: {refused}")
    if missing:
        recorder.process.note(
            f"this torch_xla cannot run on simulated cores, it has no {', '.join(missing)}: "
            'pip install "xladoctor[xla]"'
        )
        return None
    return simulate.installed()


def _dry_run(writer: Writer, cores: int) -> None:
    from .. import dryrun

    process = Process(writer, cores)
    points = Points(on_failure=process.hook_off)
    for missing in wrapping.install(points):
        process.hook_off(missing, None)
    lacking = dryrun.install(points, writer, process, cores)
    if lacking:
        raise RuntimeError(f"this torch_xla cannot be traced, it has no {', '.join(lacking)}")


def _simulated_cores(value: str | None) -> int | None:
    return int(value) if value else None


def _after_fork(recorder: Recorder, meter: Any) -> None:
    """A forked child is a process of its own: its own folder, its own counts."""
    try:
        recorder.start_over()
        if meter is not None:
            meter.start_over()
        started.clear()
        started[os.getpid()] = recorder
    except Exception:
        pass
