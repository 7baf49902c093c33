"""The environment in which one process can hold N XLA cores that exchange data on the CPU.

Set by the launcher before the program starts, because torch_xla reads each of these once, when it
is loaded or when its runtime starts. All facts: torch_xla 2.9.0, seen by running.
"""

from __future__ import annotations

#: How many cores can be simulated in one process.
MAX_CORES = 16


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
