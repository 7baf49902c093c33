"""What torch_xla says in a process that holds some of all simulated cores.

All facts: torch_xla 2.9.0. Its ordinals, counts and the rendezvous of ``torch.distributed`` are
those of the runtime's client, which knows of this process alone.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.points import SIMULATE, START
from . import hosts, reductions
from .callbacks import NotPossibleError
from .crossing import Crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..agent.points import Call
    from .hosts import Share
    from .running import Running

_SPMD = (
    "SPMD does not run on the simulated cores of several processes, since XLA's CPU "
    "client knows the devices of one process only: start one process and give it all cores with "
    "--simulate-cores"
)
_VARIABLE = "XLA_USE_SPMD"
#: Values of a variable that torch_xla takes for yes (``torch_xla.utils.utils.check_env_flag``).
_YES = ("ON", "1", "YES", "TRUE", "Y")


def refusal(running: Running, share: Share) -> str | None:
    """Put in what a process of several needs.

    Args:
        running: The cores that run.
        share: Which of all cores those of this process are.

    Returns:
        Why it cannot run, as a sentence; None if it can.
    """
    if _wants_spmd():
        return f"{_VARIABLE}={os.environ[_VARIABLE]}: {_SPMD}"
    distributed: Any = importlib.import_module("torch.distributed")
    if not distributed.is_available() or not hasattr(distributed, "ProcessGroupGloo"):
        return "cores of several processes need a torch with gloo, which this one has not"
    try:
        crossing = Crossing(running, share)
    except NotPossibleError as error:
        return (
            "cores of several processes need a torch_xla whose XLA can be asked for functions "
            f"({error}): pip install torch_xla==2.9.0, or simulate all cores in one process"
        )
    crossing.install()
    running.crossing = crossing
    running.share = share
    reductions.see_crossings()
    _answer(share)
    _count_launches(running)
    return None


def _answer(share: Share) -> None:
    xlac = importlib.import_module("torch_xla")._XLAC
    runtime: Any = importlib.import_module("torch_xla.runtime")
    for name in ("_xla_get_device_ordinal", "_xla_get_default_device_ordinal"):
        _shift(xlac, name, share.first)
    xlac._xla_get_process_index = _saying(share.rank)
    xlac._xla_get_num_processes = _saying(share.processes)
    answers: dict[str, Any] = {
        "global_device_count": share.world,
        "global_runtime_device_count": share.world,
        "host_index": share.host,
        "get_master_ip": share.address,
    }
    for name, value in answers.items():
        if hasattr(runtime, name):
            setattr(runtime, name, _saying(value))
    runtime.use_spmd = xlac._xla_mark_sharding = _refused
    if not share.one_each:
        _meet_through_our_store(runtime)


def _shift(xlac: Any, name: str, first: int) -> None:
    """Let a binding that gives a number of this process's cores give that of the run's."""
    original = xla.binding(name)

    def shifted(*args: Any) -> int:
        return int(original(*args)) + first

    xla.originals[name] = shifted
    setattr(xlac, name, shifted)


def _saying(value: Any) -> Callable[[], Any]:
    def say() -> Any:
        return value

    return say


def _wants_spmd() -> bool:
    """Whether the variable asks for SPMD, which torch_xla still obeys without ``use_spmd``."""
    return os.environ.get(_VARIABLE, "").upper() in _YES


def _refused(*_args: Any, **_options: Any) -> None:
    raise RuntimeError(f"xladoctor: {_SPMD}")


def _meet_through_our_store(runtime: Any) -> None:
    """``init_method="xla://"``: the cores are threads, and one client of a store waits for one."""
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    from . import installed

    def meet(_url: str, *_args: Any, **_options: Any) -> Iterator[Any]:
        running = installed()
        pod = running.pod if running is not None else None
        if pod is None:
            raise RuntimeError("xladoctor: torch.distributed begins where the cores run")
        yield pod.link.client("program"), runtime.global_ordinal(), runtime.world_size()

    for name in ("xla", "pjrt"):
        rendezvous._rendezvous_handlers[name] = meet


def _count_launches(running: Running) -> None:
    """Number the launches of the program, so that each meets the same one elsewhere."""

    def start(_call: Call, proceed: Callable[[], Any]) -> Any:
        if _wants_spmd():  # set by the program, behind the import of torch_xla
            _refused()
        os.environ[hosts.LAUNCH] = str(int(os.environ.get(hosts.LAUNCH, "0")) + 1)
        return proceed()

    running.points.around(START, SIMULATE, start, "hosts")
