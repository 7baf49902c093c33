"""The environment in which one process can hold N XLA cores that exchange data on the CPU.

Set by the launcher before the program starts, because torch_xla reads each of these once, when it
is loaded or when its runtime starts. All facts: torch_xla 2.9.0, seen by running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import hosts

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many cores can be simulated in one process.
MAX_CORES = 32

#: What other launchers of processes would do, and what to do.
ONE_PROCESS = (
    "such processes would train apart, each on all the data: start them with torchrun, or the "
    "program with python and the cores in it with torch_xla.launch(fn)"
)


def refusal(environ: Mapping[str, str], cores: int) -> str | None:
    """Why the cores cannot be simulated in a process with these variables, as a sentence.

    Under torchrun ``torch_xla.launch`` starts no cores, since it takes the process for one of them
    (torch_xla 2.9.0): so each process is one.

    Args:
        environ: The process's variables.
        cores: How many cores are simulated.

    Returns:
        The sentence; None if they can.
    """
    if environ.get(hosts.HOSTS) and hosts.RUN_ID in environ:
        return (
            f"--simulate-cores {cores} does not run here: torchrun has started xladoctor, and the "
            "program starts torchrun again: use one of the two"
        )
    if hosts.RUN_ID in environ:
        if environ.get("WORLD_SIZE", "1") == "1" and cores == 1:
            return None
        why = hosts.refusal(environ, cores)
        return None if why is None else f"--simulate-cores {cores} does not run here: {why}"
    processes = environ.get("WORLD_SIZE", "1")
    if processes.isdecimal() and int(processes) > 1:
        return (
            f"--simulate-cores {cores} does not run here: WORLD_SIZE={processes} says that this is "
            f"one process of {processes}, and {ONE_PROCESS}"
        )
    return None


def environment(cores: int, *, several: bool = False) -> dict[str, str]:
    """The variables to set for a run on simulated cores.

    Args:
        cores: Number of cores, 1 to :data:`MAX_CORES`.
        several: Whether they are some of those of several processes.

    Returns:
        Variable to value; the launcher adds them to the program's environment.
    """
    # The CPU client of the runtime, with one device for each core.
    client = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(cores)}
    if cores == 1 and not several:
        return client  # nobody to wait for: all is as in a process of its own
    return client | {
        # A core that waits inside a collective occupies a thread of torch_xla's pool. The default
        # is one thread for each CPU: with 2 CPUs only 2 cores would ever arrive, and XLA ends the
        # process after 10 seconds.
        "XLA_THREAD_POOL_SIZE": str(max(64, 8 * cores)),
        # With aliasing, a launch releases the donated input buffers, which waits for the core's
        # execution while it holds what the other cores need to start theirs.
        "XLA_ENABLE_PARAM_ALIASING": "0",
    }
