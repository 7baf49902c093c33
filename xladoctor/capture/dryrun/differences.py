"""Operations that torch_xla traces otherwise on a CPU device than on a TPU.

From the places in torch_xla 2.9.0 that ask for the kind of device (``CheckTpuDevice``), seen by
tracing both ways (``tests/capture/test_device_differences_xla.py``):

* ``IsSparseGather`` (data_ops.cpp): on a TPU a gather from up to 81,920 elements compares and sums
  instead of looking up; embeddings and ``index_select`` are the same everywhere.
* ``ShouldUseDenseScatter`` (xla_lower_util.cpp): the same for a scatter that writes at least a
  hundredth of the elements.
* ``resize_ops.cpp``: resizing of images is a call of a kernel of the TPU compiler.

What else asks does not change a graph of these: ``dot`` of whole numbers of 64 bits, and the
backward pass of resizing, run on the CPU on one kind of device and not on the other;
``MaybeDowncastToXlaDeviceType`` (dtype.cpp) changes types for Neuron alone; layouts of results
(``MakeTpuShape``) are the TPU compiler's own choice here.
"""

from __future__ import annotations

from ..agent import xla

#: torch_xla's counter of an operation, and what a program calls it.
DIFFERENT = {
    "xla::gather": "torch.gather",
    "xla::scatter": "Tensor.scatter",
    "xla::scatter_add": "Tensor.scatter_add",
    "xla::scatter_reduce": "Tensor.scatter_reduce",
    "xla::max_unpool2d": "max_unpool2d",
    "xla::upsample_bilinear2d": "bilinear resizing",
    "xla::upsample_nearest2d": "nearest resizing",
}


def traced() -> list[str]:
    """Those that this process has traced, as a program calls them."""
    return [name for counter, name in DIFFERENT.items() if xla.counter(counter)]
