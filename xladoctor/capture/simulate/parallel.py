"""``torch.distributed`` on simulated cores, where its graphs or its C++ need help.

``scatter`` sums what the source has with zeros of the others. On a TPU each core runs a graph of
its own for that; collectives of different graphs never meet on the CPU. So the source's tensors are
computed first and the zeros are uploaded: then the graph is the same on all cores.

The C++ of ``DistributedDataParallel`` reads what the cores have gathered: the shapes of the
parameters in the constructor, the order of the buckets at the second forward pass. Such a read
would launch a graph with a collective where nothing can make the cores meet first, and XLA would
end the process after 10 seconds. So the process group launches those collectives itself, through
the launch scheduler; C++ then finds values that have been computed. The reductions in the backward
pass and the buffers that a forward pass broadcasts are not read and stay part of the step.

``send`` and ``recv`` are permutations of one pair each, which only these two cores launch
(torch_xla 2.9.0). Several pairs at once would be several graphs that have to meet, so the values go
through memory, as those of ``xm.send`` do.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any

from ..agent import tensors, xla
from .places import user_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cores import Core
    from .places import Place

_thread = threading.local()


def install() -> None:
    """Put the launches in; a torch whose parts have other names is left as it is."""
    try:
        parallel: Any = importlib.import_module("torch.nn.parallel.distributed")
        backend: Any = importlib.import_module("torch_xla.distributed.xla_backend")
        group, ddp = backend.ProcessGroupXla, parallel.DistributedDataParallel
        verify, forward = parallel._verify_param_shape_across_processes, ddp._pre_forward
        buffers = ddp._sync_buffers
        begin, gather, broadcast = ddp.__init__, group.allgather, group.broadcast
    except (ImportError, AttributeError):
        return
    parallel._verify_param_shape_across_processes = _read_by_cpp(verify)
    ddp._pre_forward = _read_by_cpp(forward)
    ddp._sync_buffers = _read_by_cpp(buffers, reads=False)
    ddp.__init__ = _refusing(begin)
    group.allgather = _launching(gather)
    group.broadcast = _launching(broadcast)
    if hasattr(group, "scatter"):
        group.scatter = _alike(group.scatter)
    if hasattr(group, "send") and hasattr(group, "recv"):
        group.send = _sent(group.send)
        group.recv = _received(group.recv)


@contextlib.contextmanager
def _reading(reads: bool) -> Iterator[None]:
    before = getattr(_thread, "reading", False)
    _thread.reading = reads
    try:
        yield
    finally:
        _thread.reading = before


def _read_by_cpp(original: Callable[..., Any], *, reads: bool = True) -> Any:
    """Around what reads the results of its collectives in C++; or not, inside of what does."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        with _reading(reads):
            return original(*args, **kwargs)

    return function


def bucket_views() -> Place | None:
    """Where this core has made the gradients views of what ``DistributedDataParallel`` reduces."""
    place: Place | None = getattr(_thread, "bucket_views", None)
    return place


def _launching(original: Callable[..., Any]) -> Any:
    """Around a collective of the process group: compute its result at once if C++ will read it."""

    @functools.wraps(original)
    def collective(self: Any, *args: Any, **kwargs: Any) -> Any:
        work = original(self, *args, **kwargs)
        if getattr(_thread, "reading", False):
            import torch_xla

            outputs = (*args, *kwargs.values())[0]
            values = [one for each in outputs for one in _flat(each) if one.is_xla]
            torch_xla._XLAC._xla_sync_multi(values, [], wait=True, sync_xla_data=True)
        return work

    return collective


def _sent(original: Callable[..., Any]) -> Any:
    """Around ``ProcessGroupXla.send``."""

    @functools.wraps(original)
    def send(self: Any, tensors: Any, dst_rank: int, tag: int = 0) -> Any:
        core = _through_memory()
        if core is None:
            return original(self, tensors, dst_rank, tag)
        import torch_xla
        import torch_xla.core.xla_model as xm

        torch_xla.sync()  # where torch_xla launches the permutation
        return _done([xm.send(one, (core.number, dst_rank, tag)) for one in tensors])

    return send


def _received(original: Callable[..., Any]) -> Any:
    """Around ``ProcessGroupXla.recv``."""

    @functools.wraps(original)
    def recv(self: Any, out_tensors: Any, src_rank: int, tag: int = 0) -> Any:
        core = _through_memory()
        if core is None:
            return original(self, out_tensors, src_rank, tag)
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm

        torch_xla.sync()
        results = []
        for one in out_tensors:
            results.append(xm.recv(one, (src_rank, core.number, tag)))
            with torch.no_grad():
                one.copy_(results[-1])
        return _done(results)

    return recv


def _through_memory() -> Core | None:
    """The core of this thread, if all cores are in this process: pairs need not meet in a graph."""
    from . import installed

    running = installed()
    return running.here if running is not None and running.crossing is None else None


def _done(results: list[Any]) -> Any:
    backend: Any = importlib.import_module("torch_xla.distributed.xla_backend")
    return backend._ret_work(results)


def _alike(original: Callable[..., Any]) -> Any:
    """Around ``ProcessGroupXla.scatter``: a graph that is equal on the source and on the others."""

    @functools.wraps(original)
    def scatter(self: Any, output_tensor_list: Any, input_tensors_list: Any, opts: Any) -> Any:
        if xla.core_of_thread() is None:
            return original(self, output_tensor_list, input_tensors_list, opts)
        import torch
        import torch_xla
        from torch_xla import runtime

        if runtime.global_ordinal() == opts.rootRank:
            computed = [one for each in input_tensors_list for one in each]
            torch_xla._XLAC._xla_sync_multi(computed, [], wait=False, sync_xla_data=True)
        else:
            with tensors.unseen():
                input_tensors_list = [
                    [
                        torch.zeros(one.shape, dtype=one.dtype).to(one.device)
                        for _ in range(self.size())
                    ]
                    for one in output_tensor_list
                ]
        reduced: Any = importlib.import_module("torch.distributed")
        options = reduced.ReduceScatterOptions()
        options.reduceOp = reduced.ReduceOp.SUM
        return self.reduce_scatter(output_tensor_list, input_tensors_list, options)

    return scatter


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _refusing(original: Callable[..., None]) -> Any:
    """Say in one sentence what cannot run: then C++ reads in the backward pass."""

    @functools.wraps(original)
    def init(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("find_unused_parameters") and any(
            parameter.is_xla for parameter in module.parameters()
        ):
            raise RuntimeError(
                "xladoctor: DistributedDataParallel(find_unused_parameters=True) cannot run on "
                "simulated cores: leave it out if all parameters are used, step with "
                "xm.optimizer_step(optimizer) instead, or profile on real devices"
            )
        if kwargs.get("gradient_as_bucket_view"):
            _thread.bucket_views = user_frame(threading.get_ident())
        original(self, module, *args, **kwargs)

    return init
