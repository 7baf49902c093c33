"""N simulated XLA cores as threads of one process on the CPU; runs inside the user's process.

torch_xla starts one child process with a thread for each device of the CPU client. That is a
complete run, except that its collectives dead-lock. :func:`install` puts gates around the points of
the agent, so that they do not:

``environment``  the variables to set before the program starts
``cores``        who runs, who waits for whom, who has failed; ``running`` gives the cores that run
``scheduler``    when a core may launch, read and wait
``calls``        what the launch scheduler reads from arguments
``divergence``   which core builds another graph
``mismatch``     what differs, and whether the cores can go on; ``comparison`` reads their graphs
``deadlock``     who waits where and for whom, in words
``agreement``    whether the cores' models are still equal; ``reductions``, ``owners`` help it
``checks``       what trains wrong without an error
``exchange``     rendezvous and all-gather
``bfloat16``     reductions that XLA's CPU client lacks
``variables``    what torch_xla must not see
``compiled``     graphs of ``torch.compile``
``tracing``      what ``torch.fx`` replaces while a core traces
``replaced``     what frameworks replace for a while
``randomness``   each core its own random numbers
``accounts``     torch_xla's metrics of launches, by core
``modes``        what torch_xla keeps for a process: eager mode, names of graphs
``threads``      what a core's own threads belong to
``arguments``    what the program gives to its cores
``belongings``   what a program keeps in its process: output, variables, loggers
``workers``      processes of data loaders that start quickly
``answers``      what torch_xla says on TPUs only
``frameworks``   what Lightning asks before it agrees to run
``hosts``        which share of a larger run the cores of this process are
``pod``          cores that are spread over several processes; ``link`` is how these talk,
                 ``spread`` what torch_xla says in each of them
``crossing``     collectives between processes; ``callbacks`` lets graphs call back, ``transport``
                 says what goes where
``launchers``    begin, end and failure of the cores; ``lines`` keeps what they print apart
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import hosts
from .environment import MAX_CORES, environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..agent.points import Points
    from .hosts import Share
    from .running import Running

__all__ = ["DEFAULT_HANG_TIMEOUT", "MAX_CORES", "environment", "hosts", "install", "installed"]

#: Seconds without progress of any core after which the run is called a hang.
DEFAULT_HANG_TIMEOUT = 300.0


def install(
    points: Points,
    cores: int,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
) -> list[str]:
    """Simulate the cores of this process; call it once, after ``agent.wrapping.install``.

    Args:
        points: The process's points.
        cores: How many cores; the environment must be that of :func:`environment`.
        on_event: Told what the run directory should know, as ``on_event(kind, facts)``. Kinds:
            "core-failed" (core, error); "core-left", "cores-differ" and "hang" (message, and what
            ``deadlock.stands`` gives); "graphs-differ", "collectives-differ", "graphs-vary"
            (the cores go on) and "tags-differ" (message, cores, place, cause_place; see
            ``mismatch``); "cores-part" (see ``agreement``); "silent" (check,
            core, step, place, and what the check knows, see ``checks``); "not-compared" and
            "graphs-not-compared" (error); "not-obeyed" (message), "interrupted",
            "process-ended" (core, error, left), "stopped" (message: another process cannot go
            on). Called from any thread;
            exceptions of it are ignored.

    Returns:
        The names that this torch_xla lacks and the simulation needs; if there are any, nothing
        was installed.

    Raises:
        RefusedError: The cores are spread over several processes, and cannot be here.
    """
    from ..agent import xla
    from . import (
        accounts,
        answers,
        belongings,
        bfloat16,
        checks,
        compiled,
        exchange,
        frameworks,
        modes,
        randomness,
        replaced,
        threads,
        tracing,
        variables,
        workers,
    )
    from .agreement import Agreement
    from .launchers import Launcher, give_each_core_its_model, refuse_shared_models
    from .running import Running
    from .scheduler import LaunchScheduler

    missing = [name for name in _NEEDED if xla.binding(name) is None]
    if missing:
        return missing
    tell = on_event or _ignore
    share = hosts.share(os.environ)
    here = cores if share is None else share.cores
    several = cores > 1 or share is not None
    if several:
        variables.take_hidden(tell)
    running = Running(points)
    _installed.append(running)
    if share is not None:
        _spread(running, share)
    scheduler = LaunchScheduler(running)
    launcher = Launcher(running, scheduler, here, _hang_timeout(), tell)
    launcher.install()
    if share is not None and share.one_each:
        running.begin_here = launcher.begin_here
    if several:
        # Before the scheduler, so around it: comparing must not hold up launches of other cores.
        Agreement(running).install()
    # Before the checks, which put themselves around what seeds: numpy's functions are known here by
    # the instance that they belong to.
    randomness.install()
    every = bool(os.environ.get("XLADOCTOR_CHECK"))
    checks.install(running, several=several, every=every)
    scheduler.install()
    if several:  # one core alone exchanges with itself as torch_xla has it
        exchange.install(running)
        bfloat16.install(running)
        modes.install(running, tell)
        accounts.install(running, scheduler.alone)
        compiled.install(running)
        tracing.install(running)
        replaced.install()
    threads.install()
    belongings.install()
    workers.install()
    answers.install(tell)
    frameworks.install(here)
    give_each_core_its_model()
    refuse_shared_models()
    locate = xla.binding("_set_ir_debug")
    if locate is not None:
        locate(True)  # graphs know the lines that made them; their hashes stay the same
    return []


#: The cores of this process, once they are simulated.
_installed: list[Running] = []


def installed() -> Running | None:
    """The simulated cores of this process; None if there are none."""
    return _installed[-1] if _installed else None


class RefusedError(Exception):
    """The cores of several processes cannot be simulated here; the text says why."""


def _spread(running: Running, share: Share) -> None:
    """Prepare a process that holds some of all cores.

    Raises:
        RefusedError: It cannot run here.
    """
    from . import spread

    if share.one_each:  # as on a device; the launcher's number is that of all of this host
        os.environ["CPU_NUM_DEVICES"] = "1"
        os.environ.setdefault(*hosts.POOL)
    sentence = spread.refusal(running, share)
    if sentence is not None:
        raise RefusedError(sentence)


_NEEDED = (
    "_xla_step_marker",
    "_xla_sync_multi",
    "_xla_wait_device_ops",
    "_xla_get_cpu_tensors",
    "_get_xla_tensors_text",
    "_xla_get_replication_devices_count",
    "_xla_counter_value",
    "_xla_get_default_device",
    "_xla_set_default_device",
)


def _hang_timeout() -> float:
    try:
        return float(os.environ["XLADOCTOR_HANG_TIMEOUT"])
    except (KeyError, ValueError):
        return DEFAULT_HANG_TIMEOUT


def _ignore(kind: str, facts: dict[str, Any]) -> None:
    """The default listener."""
