"""XLA862: processes for TPUs that are started without the environment they have to agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint import family
from xladoctor.lint.model.dotted import string
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._lightning import TRAINERS, beside_torch_tpu, for_xla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_SPAWNS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.spawn.spawn",
)
_SETS = (
    "torch.tpu.distributed.set_tpu_launch_env",
    "torch_tpu._internal.distributed.distributed.set_tpu_launch_env",
)
_DECIDED = frozenset({"TORCH_TPU_SLICEBUILDER_ADDRESSES", "TORCH_TPU_TOPOLOGY"})


@rule("XLA862")
def launch_environment(model: FileModel) -> Iterator[Problem]:
    """Find processes that are not started as TorchTPU needs it."""
    yield from _lightning(model)
    parts = (model, *model.linked)
    joined = any(
        isinstance(backend := part.literal(given), str)
        and family.of_backend(backend) == "torch_tpu"
        for part in parts
        for call in part.calls("torch.distributed.init_process_group")
        if (given := call.argument(0, "backend")) is not None
    )
    decided = any(
        any(True for _ in part.calls(*_SETS))
        or any(string(text) in _DECIDED for text in part.tree.strings)
        for part in parts
    )
    if not joined or decided:
        return
    for call in model.calls(*_SPAWNS):
        yield model.problem(
            call.node,
            "the processes are started without TorchTPU's launch environment: each would decide "
            "the addresses and the topology by itself, and they cannot find each other",
            suggestion="torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=...) in the "
            "parent, before they are started",
        )


def _lightning(model: FileModel) -> Iterator[Problem]:
    """Lightning's TPU accelerator in a program for TorchTPU."""
    if not beside_torch_tpu(model):
        return
    for call in model.calls(*TRAINERS):
        asked = for_xla(model, call)
        if asked is not None:
            yield model.problem(
                asked,
                "Lightning's TPU accelerator and XLA strategies are torch_xla's: they start "
                "torch_xla's processes, and know nothing of TorchTPU's device",
                suggestion='a loop of one\'s own on torch.device("tpu"), started by torchrun '
                '(init_process_group("tpu_dist")): no accelerator for TorchTPU is published '
                "(November 2026)",
            )
