"""What frameworks ask before they agree to run on XLA devices, answered for simulated cores.

Lightning (2.6) takes ``accelerator="tpu"`` when ``torch_xla._internal.tpu.num_available_devices``
counts some, and that number for ``devices="auto"``; it looks at the PCI bus, so on the CPU it
finds none. Its launcher and its strategy work on any XLA device.

Accelerate (1.15) asks torch_xla for the number of a core on its host only on a TPU; elsewhere it
takes ``LOCAL_RANK``, and without it no core is the one that prints. Lightning keeps the number of
the core that logs and writes in an attribute of a function, one for the process.

``torch.distributed`` keeps one default process group for a process. torch has a form of it with
one for each thread, made for its own tests, and torch_xla uses it where a process has several
devices (``torch_xla/experimental/pjrt_backend.py``).

tqdm keeps a lock in its class, see :func:`_keep_lock`; transformers parses the command line by
dataclasses that it changes meanwhile, see :func:`_parse_in_turn`.

torch wraps ``step`` of a class of optimizers when the first one is made, without a lock, see
:func:`_wrap_optimizers_once`.

torch keeps the classes that it may load in one set, see :func:`_trust_as_long_as_any`.

Gradient checkpointing of torch_xla has one flag for the process, see
:func:`_checkpoints_by_thread`.
"""

from __future__ import annotations

import collections
import functools
import importlib
import sys
import threading
from typing import Any

from ..agent import xla
from . import parallel

_lock = threading.Lock()
_patched: list[Any] = []


def install(cores: int) -> None:
    """Let the simulated cores be found; what this torch_xla does not have is left alone."""
    _count_cores(cores)
    _groups_by_thread()
    _checkpoints_by_thread()
    parallel.install()
    _wrap_optimizers_once()
    _trust_as_long_as_any()
    _explain_cuda()


def _trust_as_long_as_any() -> None:
    """Let ``torch.serialization.safe_globals`` end for a class when it ends on the last core.

    torch 2.9 keeps one set of them for the process: the core that ends first would take from the
    others what they are about to load (``Trainer`` loads its random state in this way).
    """
    try:
        unpickler: Any = importlib.import_module("torch._weights_only_unpickler")
        manager = unpickler._safe_globals
        enter, leave = manager.__enter__, manager.__exit__
    except (ImportError, AttributeError):
        return
    lock = threading.Lock()
    inside: collections.Counter[Any] = collections.Counter()

    @functools.wraps(enter)
    def enter_here(self: Any) -> Any:
        with lock:
            inside.update(self.safe_globals)
            return enter(self)

    @functools.wraps(leave)
    def leave_here(self: Any, *error: Any, **named: Any) -> Any:
        with lock:
            inside.subtract(self.safe_globals)
            self.safe_globals = [one for one in self.safe_globals if inside[one] <= 0]
            return leave(self, *error, **named)

    manager.__enter__, manager.__exit__ = enter_here, leave_here


def _wrap_optimizers_once() -> None:
    """Let one core after the other make its optimizer.

    Two that are the first of their class at the same moment would both wrap its ``step``, and from
    then on hooks that the program has registered ran twice for a step (torch 2.9.0,
    ``Optimizer._patch_step_function``).
    """
    from torch.optim import Optimizer

    original = getattr(Optimizer, "_patch_step_function", None)
    if original is None:
        return  # an older torch
    lock = threading.Lock()

    @functools.wraps(original)
    def patch(self: Any) -> None:
        with lock:
            original(self)

    Optimizer._patch_step_function = patch


def _explain_cuda() -> None:
    """Where torch.cuda fails for want of a device, say so in words of this run."""
    import torch

    original = torch.cuda._lazy_init

    @functools.wraps(original)
    def lazy_init() -> Any:
        try:
            return original()
        except (AssertionError, RuntimeError) as error:
            raise type(error)(
                "xladoctor: the program calls torch.cuda, but the simulated cores are XLA devices "
                "and there is no CUDA device here: use torch_xla.device() and leave out torch.cuda "
                f"(torch says: {str(error).partition('. ')[0]})"
            ) from None

    torch.cuda._lazy_init = lazy_init


def prepare_core() -> None:
    """Answer the frameworks that the program has imported; called when a core begins."""
    for module, name, answer in (
        ("accelerate.state", "PartialState", _number_local_cores),
        ("lightning_utilities.core.rank_zero", "rank_zero_only", _rank_by_core),
        ("tqdm.std", "tqdm", _keep_lock),
        ("transformers.hf_argparser", "HfArgumentParser", _parse_in_turn),
    ):
        found = getattr(sys.modules.get(module), name, None)
        with _lock:
            if found is not None and found not in _patched:
                _patched.append(found)
                answer(found)


def _parse_in_turn(parser: Any) -> None:
    """Let one core after the other make a parser of the program's dataclasses.

    It narrows the types of their fields in place, from what is annotated to what it parses
    (transformers 5.23, ``_parse_dataclass_field``): another core that looks meanwhile finds half of
    it, and now and then a type without what it asks for.
    """
    original = parser._add_dataclass_arguments
    lock = threading.Lock()

    @functools.wraps(original)
    def add(self: Any, dtype: Any) -> Any:
        with lock:
            return original(self, dtype)

    parser._add_dataclass_arguments = add


def _keep_lock(progress: Any) -> None:
    """Give tqdm's classes their lock before the cores use it.

    ``tqdm.contrib.concurrent`` makes one for a while and deletes it, if there is none: what one
    core deletes another still uses. (Hugging Face's data sets look at their files in this way.)
    """
    progress.get_lock()


class _RankByCore:
    """Lightning's ``rank_zero_only`` with a ``rank`` for each core."""

    def __init__(self, original: Any) -> None:
        functools.update_wrapper(self, original, updated=())
        self._original = original
        self._ranks: dict[int, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Decorate, as ever: what is decorated asks for the rank when it is called."""
        return self._original(*args, **kwargs)

    def __reduce__(self) -> str:
        """By its name, as a function: Lightning copies its trainer for each core."""
        return "rank_zero_only"

    @property
    def rank(self) -> Any:
        """The rank that this core's strategy has set, else the process's."""
        core = xla.core_of_thread()
        before = getattr(self._original, "rank", None)
        return before if core is None else self._ranks.get(core, before)

    @rank.setter
    def rank(self, rank: int) -> None:
        core = xla.core_of_thread()
        if core is None:
            self._original.rank = rank
        else:
            self._ranks[core] = rank


def _rank_by_core(original: Any) -> None:
    """Put it in the place of the original in all modules that have imported that."""
    by_core = _RankByCore(original)
    _patched.append(by_core)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("rank_zero_only") is original:
            module.__dict__["rank_zero_only"] = by_core


def _number_local_cores(state: Any) -> None:
    """Give Accelerate the number of the core on its host, as it has it on a TPU."""
    make = state.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if getattr(self, "backend", None) == "xla" and self.local_process_index == -1:
            from torch_xla import runtime

            self.local_process_index = runtime.local_ordinal()

    state.__init__ = init


def _groups_by_thread() -> None:
    """Give each core a default process group of its own, from the cores' begin on."""
    try:
        pjrt: Any = importlib.import_module("torch_xla._internal.pjrt")
        backend: Any = importlib.import_module("torch_xla.distributed.xla_backend")
        original, group = pjrt._run_thread_per_device, backend.ProcessGroupXla
    except (ImportError, AttributeError):
        return
    make = group.__init__

    # functools.wraps keeps the name by which torch_xla pickles the function.
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            world: Any = importlib.import_module(
                "torch.testing._internal.distributed.multi_threaded_pg"
            )
            distributed: Any = importlib.import_module("torch.distributed.distributed_c10d")
            distributed._world = world.ThreadLocalWorld()
            bindings: Any = importlib.import_module("torch")._C
            bindings._distributed_c10d._set_thread_isolation_mode(True)
            _meet_in_memory()
        except (ImportError, AttributeError):
            pass  # only torch.distributed will not work then, and says so itself
        return original(*args, **kwargs)

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        import torch

        make(self, *args, **kwargs)
        # DDP reduces in the backward pass: in this core's thread, where its device is known.
        torch.autograd.set_multithreading_enabled(False)

    pjrt._run_thread_per_device = run
    group.__init__ = init


def _meet_in_memory() -> None:
    """Let ``init_method="xla://"`` meet without a port: two runs on one machine would share it."""
    rendezvous: Any = importlib.import_module("torch_xla._internal.rendezvous")
    distributed: Any = importlib.import_module("torch.distributed")
    if getattr(rendezvous, "_store", "") is None:
        rendezvous._store = distributed.HashStore()


def _checkpoints_by_thread() -> None:
    """Let each core know for itself whether it runs checkpointed layers again.

    torch_xla 2.9 keeps that in one flag of the process, and FSDP does not gather a layer's weights
    while it is set: a core whose backward pass began while another one's layers ran again would
    use weights of shape [1]. A core's backward pass has a thread of its own.
    """
    try:
        status: Any = importlib.import_module("torch_xla.utils.checkpoint").CheckpointStatus
    except (ImportError, AttributeError):
        return
    own = threading.local()

    def get(_status: Any) -> bool:
        return getattr(own, "again", False)

    def put(_status: Any, again: bool) -> None:
        own.again = again

    status.in_chkpt_bwd = property(get, put)


def _count_cores(cores: int) -> None:
    try:
        tpu: Any = importlib.import_module("torch_xla._internal.tpu")
    except ImportError:
        return

    def num_available_devices() -> int:
        """The simulated cores stand for the devices of a TPU host."""
        return cores

    if hasattr(tpu, "num_available_devices"):
        tpu.num_available_devices = num_available_devices
