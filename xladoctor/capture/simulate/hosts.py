"""Which share of a larger run the cores of this process are, as torchrun's variables tell.

Two forms (torch 2.9, ``torch.distributed.elastic.agent.server``):

* torchrun starts xladoctor, once on each host: a process has N cores, and the program sees a host
  of a pod, where there is no torchrun: its variables are taken away from the program.
* xladoctor starts torchrun: each of its processes is one core, as on devices, where torch_xla
  starts none itself; the program keeps the variables.

The processes find each other through the store of torchrun's agent, under names of their own.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the launcher tells the agent in the first form.
HOSTS = "XLADOCTOR_HOSTS"
#: Which launch of cores of the program this is, counted by the process that starts them.
LAUNCH = "XLADOCTOR_LAUNCH"

#: Threads in which XLA may run operations: one that waits for other processes keeps its thread, and
#: with the default, one for each CPU, two that wait leave none to compute what they wait for. XLA
#: takes the number from this variable (``xla/pjrt/utils.cc``) and no more than 256.
POOL = ("NPROC", "192")

#: Variables of torchrun that no program on a host of a pod has.
_TORCHRUN = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_ELASTIC = "TORCHELASTIC_"
#: By this torchrun's processes are known.
RUN_ID = "TORCHELASTIC_RUN_ID"


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """What part of all cores those of this process are.

    Attributes:
        rank: Number of this process among those that hold cores.
        processes: How many there are.
        cores: Cores in each of them.
        host: Number of this host.
        local_rank: Number of this process on its host.
        local_processes: Processes on this host.
        address: Where torchrun's store is: host,
        port: and port.
        run: What tells this start of this run from others in that store.
        one_each: Whether the program itself is the core, with no launch of its own.
    """

    rank: int
    processes: int
    cores: int
    host: int
    local_rank: int
    local_processes: int
    address: str
    port: int
    run: str
    one_each: bool

    @property
    def first(self) -> int:
        """Number of this process's first core."""
        return self.rank * self.cores

    @property
    def world(self) -> int:
        """Number of all cores."""
        return self.processes * self.cores


def started_by_torchrun(environ: Mapping[str, str]) -> bool:
    """Whether the process is one of several that torchrun has started."""
    return RUN_ID in environ and environ.get("WORLD_SIZE", "1") != "1"


def share(environ: Mapping[str, str]) -> Share | None:
    """The share of a process with these variables.

    Args:
        environ: Of a process of the program.

    Returns:
        None if the process holds all cores.
    """
    given = environ.get(HOSTS)
    if given:
        return Share(**json.loads(given))
    if not started_by_torchrun(environ):
        return None
    return _from_torchrun(environ, 1, one_each=True)


def handed_down(environ: Mapping[str, str], cores: int) -> dict[str, str]:
    """The environment of a program that torchrun starts through us: that of a host of a pod.

    Args:
        environ: Ours.
        cores: Simulated cores of this host.

    Returns:
        The whole environment, as it is if torchrun has not started several of us.
    """
    kept = dict(environ)
    kept.pop(HOSTS, None)
    kept.pop(LAUNCH, None)
    if not started_by_torchrun(environ):
        return kept
    mine = _from_torchrun(environ, cores, one_each=False)
    kept = {
        name: value
        for name, value in kept.items()
        if name not in _TORCHRUN and not name.startswith(_ELASTIC)
    }
    kept[HOSTS] = json.dumps(dataclasses.asdict(mine))
    kept["PJRT_LOCAL_PROCESS_RANK"] = str(mine.local_rank)
    kept["PJRT_LOCAL_PROCESS_COUNT"] = str(mine.local_processes)
    kept.setdefault(*POOL)
    return kept


def refusal(environ: Mapping[str, str], cores: int) -> str | None:
    """Why these processes cannot be the cores that were asked for, as a sentence.

    Args:
        environ: Of a process that torchrun has started.
        cores: What ``--simulate-cores`` says.
    """
    if environ.get(HOSTS):
        return None
    here = environ.get("LOCAL_WORLD_SIZE", "1")
    if here != str(cores):
        plural = "es" if here != "1" else ""
        remedy = f"--nproc-per-node {cores}, or --simulate-cores {here}"
        if here == "1" and cores > 1:
            remedy = (
                f"--nproc-per-node {cores}, or start the program with python and its cores with "
                "torch_xla.launch(fn)"
            )
        return (
            f"torchrun has started {here} process{plural} on this host, and on a device each of "
            f"them is one core: use {remedy}"
        )
    if environ.get("TORCHELASTIC_USE_AGENT_STORE", "True") != "True":
        return (
            "torchrun keeps its store to itself (TORCH_DISABLE_SHARE_RDZV_TCP_STORE), and through "
            "that the cores of several processes find each other: unset the variable"
        )
    return None


def _from_torchrun(environ: Mapping[str, str], cores: int, *, one_each: bool) -> Share:
    def number(name: str, default: int = 0) -> int:
        value = environ.get(name, "")
        return int(value) if value.isdecimal() else default

    run = f"{environ.get(RUN_ID)}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Share(
        rank=number("RANK"),
        processes=number("WORLD_SIZE", 1),
        cores=cores,
        host=number("GROUP_RANK"),
        local_rank=number("LOCAL_RANK"),
        local_processes=number("LOCAL_WORLD_SIZE", 1),
        address=environ.get("MASTER_ADDR", "localhost"),
        port=number("MASTER_PORT", 29500),
        run=run,
        one_each=one_each,
    )
