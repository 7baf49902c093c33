"""torch_xla's lazy tensors: which are pending, their graph, and placeholders in their place.

The one module of the dry run that knows torch_xla's bindings, written against torch_xla 2.9.0.

Facts used (torch_xla 2.9.0, source and seen by running):

* A sync takes all live tensors of a device whose value is still a graph, in the order of their
  numbers (``XLAGraphExecutor::GetLiveTensors``, ``CollectSyncTensors``). No binding gives them to
  Python; but a tensor that Python can still reach is known to the garbage collector, and
  ``_check_device_tensor_need_materialization`` tells how many there are in all.
* What is then missing are the bases of views: the gradient of a linear layer's weight is the
  transpose of a matrix that is live as well, behind the functionalization's wrapper.
* ``_clear_pending_irs`` gives every pending tensor a placeholder without memory. Afterwards a sync
  finds nothing to run, and only begins the next step (the seed of the random numbers, the scopes).
* A sync donates the buffer of a parameter that some pending tensor replaces: the number of the
  parameter's tensor is that tensor's *alias id* (``GetBufferDonorIndexForStepMarker``).
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.alive import instances
from ..agent.causes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Bindings without which nothing can be traced and left.
NEEDED = (
    "_check_tensor_need_materialization",
    "_check_device_tensor_need_materialization",
    "_clear_pending_irs",
    "_get_graph_hash",
    "_get_tensors_xla_device_data_node",
    "_get_xla_tensor_debug_info",
    "_get_xla_tensors_text",
    "_xla_create_placeholder_tensor",
    "_xla_get_tensor_id",
    "_xla_get_replication_devices_count",
    "lowering",
)

_ALIAS = re.compile(r"^AliasID: (\d+)$", re.MULTILINE)
#: Operations that wait for the other cores, as torch_xla names their nodes.
_EXCHANGE = re.compile(
    r" xla::(cross_replica_sum|all_gather|all_to_all|reduce_scatter|collective_\w+|send|recv)\w*\("
)
_PLACEHOLDER = "Data Handle: None"

#: HloProto.hlo_module, HloModuleProto.buffer_donor and its parts (xla/service/hlo.proto).
_MODULE, _DONORS, _ENTRY, _PARAMETER = 1, 18, 1, 1


def pending(device: str) -> tuple[list[Any], int]:
    """The tensors that a sync of a device would compute, in its order.

    Args:
        device: Of the form "xla:0".

    Returns:
        The tensors, and how many more there are that could not be reached.
    """
    found: dict[int, Any] = {}
    for tensor in _reachable():
        if tensor.is_xla and str(tensor.device) == device:
            # AOTAutograd (scan, torch.compile) leaves tensors that only say that they are there.
            with contextlib.suppress(RuntimeError):
                found[xla.binding("_xla_get_tensor_id")(tensor)] = tensor
    tensors = waiting([found[number] for number in sorted(found)])
    missing = left(device) - len(tensors)
    if missing > 0:
        bases = _bases(tensors)[:missing]
        tensors += bases
        missing -= len(bases)
    return tensors, max(0, missing)


def waiting(tensors: Sequence[Any]) -> list[Any]:
    """Those of some tensors whose value is still a graph."""
    needed = xla.binding("_check_tensor_need_materialization")(list(tensors))
    return [tensor for tensor, need in zip(tensors, needed, strict=True) if need]


def left(device: str) -> int:
    """How many tensors of a device a sync would compute."""
    return sum(xla.binding("_check_device_tensor_need_materialization")(device))


def clear(device: str) -> None:
    """Give every pending tensor of a device a placeholder."""
    xla.binding("_clear_pending_irs")(device)


def name_of(tensors: Sequence[Any]) -> str:
    """torch_xla's hash of the graph that would compute some tensors."""
    return str(xla.binding("_get_graph_hash")(list(tensors)).hex())


def graph_of(tensors: Sequence[Any], *, donate: bool) -> bytes:
    """The graph that would compute some tensors, as a serialized ``HloProto``.

    Args:
        tensors: Pending ones.
        donate: Whether buffers that are replaced are given to the graph, as a sync does it.
    """
    context = xla.binding("lowering").LoweringContext("SyncTensorsGraph")
    context.build(list(tensors))
    module = context.hlo()
    donors = _donors(tensors) if donate else []
    if donors:
        entries = b"".join(
            _message(_ENTRY, bytes([_PARAMETER << 3]) + _varint(number)) for number in donors
        )
        module += _message(_DONORS, entries)
    return _message(_MODULE, module)


def placeholder(dtype: Any, shape: Sequence[int]) -> Any:
    """A tensor on this thread's device that holds no memory; None if XLA has no such type."""
    kind = DTYPES.get(str(dtype).removeprefix("torch."))
    if kind is None:
        return None
    asked = {"type": kind, "sizes": tuple(shape)}
    return xla.binding("_xla_create_placeholder_tensor")(asked)


def known(tensors: Sequence[Any], most_bytes: int) -> bool:
    """Whether values can be computed: by one core alone, from little data that is there.

    Args:
        tensors: Those that are to be read.
        most_bytes: Of the data that they are made from.
    """
    _, leaves = xla.binding("_get_tensors_xla_device_data_node")(list(tensors), [])
    size = 0
    for leaf in leaves:
        size += leaf.numel() * leaf.element_size()
        if size > most_bytes or _PLACEHOLDER in xla.binding("_get_xla_tensor_debug_info")(leaf):
            return False
    text = xla.binding("_get_xla_tensors_text")(list(tensors)) if waiting(tensors) else ""
    return not _EXCHANGE.search(text)


def _reachable() -> Iterable[Any]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # asking some objects for their class warns
        found = list(instances(torch.Tensor))
    for tensor in found:
        yield tensor
        # A gradient that Python has not asked for yet is no object of Python's.
        gradient = tensor.grad if tensor.is_leaf else None
        if gradient is not None:
            yield gradient


def _bases(tensors: Sequence[Any]) -> list[Any]:
    """What pending views are views of, as far as it is computed like them.

    A transpose or another shape of the same values: the base has as many bytes, and costs the same.
    """
    import torch

    meta = getattr(getattr(torch._C, "_functionalization", None), "get_view_meta_sequence", None)
    if meta is None:
        return []
    bases = []
    for tensor in tensors:
        if not torch._is_functional_tensor(tensor):
            continue
        kinds = {type(one).__name__ for one in meta(tensor)} - {"detach_ViewMeta"}
        inner = torch._from_functional_tensor(tensor)
        if kinds == {"t_ViewMeta"}:
            bases.append(inner.t())
        elif kinds == {"view_ViewMeta"}:
            bases.append(inner.reshape(1, -1))
    return bases


def _donors(tensors: Sequence[Any]) -> list[int]:
    """The parameters of a graph whose buffers its results may take."""
    text = xla.binding("_get_xla_tensor_debug_info")
    replaced = set()
    for tensor in tensors:
        match = _ALIAS.search(text(tensor))
        if match is not None:
            replaced.add(int(match[1]))
    numbers, _ = xla.binding("_get_tensors_xla_device_data_node")(list(tensors), [])
    return [at for at, number in enumerate(numbers) if number in replaced]


def _message(field: int, content: bytes) -> bytes:
    """A field of a protobuf that holds bytes."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
