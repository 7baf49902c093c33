"""The environment in which one process can hold N XLA cores that exchange data on the CPU.

Set by the launcher before the program starts, because torch_xla reads each of these once, when it
is loaded or when its runtime starts. All facts: torch_xla 2.9.0, seen by running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many cores can be simulated in one process.
MAX_CORES = 32

#: Why a launcher of processes and simulated cores do not go together, and what to do.
ONE_PROCESS = (
    "simulated cores are threads of one process, so the processes would train apart, each on all "
    "the data: start the program with python, and the cores in it with torch_xla.launch(fn), which "
    "works under torchrun too"
)


def refusal(environ: Mapping[str, str], cores: int) -> str | None:
    """Why the cores cannot be simulated in a process with these variables, as a sentence.

    torchrun marks its processes with ``TORCHELASTIC_RUN_ID``; there ``torch_xla.launch`` starts no
    cores, since it takes the process for one of them (torch_xla 2.9.0).

    Args:
        environ: The process's variables.
        cores: How many cores are simulated.

    Returns:
        The sentence; None if they can.
    """
    processes = environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in environ:
        if processes == "1" and cores == 1:
            return None
        started = f"torchrun has started {processes} process{'es' if processes != '1' else ''}"
    elif processes.isdecimal() and int(processes) > 1:
        started = f"WORLD_SIZE={processes} says that this is one process of {processes}"
    else:
        return None
    return f"--simulate-cores {cores} does not run here: {started}, and {ONE_PROCESS}"


def environment(cores: int) -> dict[str, str]:
    """The variables to set for a run on simulated cores.

    Args:
        cores: Number of cores, 1 to :data:`MAX_CORES`.

    Returns:
        Variable to value; the launcher adds them to the program's environment.
    """
    # The CPU client of the runtime, with one device for each core.
    client = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(cores)}
    if cores == 1:
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
