"""XLA717: a component that exists for CUDA alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_PACKAGES = {
    "apex": "torch.autocast and the optimizers of torch.optim",
    "flash_attn": "torch_xla.experimental.custom_kernel.flash_attention",
    "xformers": "torch_xla.experimental.custom_kernel.flash_attention",
    "bitsandbytes": "an optimizer of torch.optim",
    "triton": "a Pallas kernel",
    "deepspeed": "SPMD (torch_xla.distributed.spmd) or torch_xla.distributed.fsdp",
}
#: What asks transformers for weights, and for optimizers, of bitsandbytes.
_BITS = ("load_in_4bit", "load_in_8bit")
_OF_BITS = re.compile(r"^paged_|_8bit$|_bnb_|^lion_32bit$|^ademamix")
_FSDP = ("torch.distributed.fsdp.*",)
_FSDP_NAMES = frozenset({"FullyShardedDataParallel", "fully_shard"})


@rule("XLA717")
def gpu_only_component(model: FileModel) -> Iterator[Problem]:
    """Find imports of packages for CUDA, and torch's FSDP, in programs for XLA devices."""
    if not _names_torch_xla(model):
        return
    for node in model.tree.imports:
        package = next((p for p in _packages(model, node) if p in _PACKAGES), None)
        if package is None or model.on_xla(node) is not OnXla.YES or _optional(model, node):
            continue
        if not _is_adapted(model, package):
            yield model.problem(
                node,
                f"{package} works on CUDA devices alone: in a program for XLA devices it fails "
                "at the import or at the first call",
                suggestion=f"use {_PACKAGES[package]}, or import it where CUDA is used",
            )
    yield from _quantized(model)
    for call in model.calls(*_FSDP):
        name = (call.name or "").rpartition(".")[2]
        if name in _FSDP_NAMES and model.on_xla(call.node) is OnXla.YES:
            yield model.problem(
                call.node,
                "torch's FSDP asks for torch.xla, which does not exist: on an XLA device it ends "
                "in AttributeError",
                suggestion="torch_xla.distributed.fsdp.XlaFullyShardedDataParallel, or SPMD",
            )


def _quantized(model: FileModel) -> Iterator[Problem]:
    """``BitsAndBytesConfig(load_in_4bit=True)``, ``TrainingArguments(optim="paged_adamw_8bit")``.

    Measured with bitsandbytes 0.50 and torch_xla 2.9: moving such a layer to an XLA device, and a
    step of such an optimizer there, raise RuntimeError.
    """
    for call in model.calls():
        if call.last != "from_pretrained" and not (call.name or "").startswith("transformers."):
            continue
        bits = next((call.keywords[one] for one in _BITS if one in call.keywords), None)
        optim = call.keywords.get("optim")
        asked = bits if bits is not None and model.literal(bits) is True else None
        if optim is not None and _OF_BITS.search(str(model.literal(optim))):
            asked = optim
        if asked is None or model.on_xla(call.node) is not OnXla.YES:
            continue
        what = "optimizers" if asked is optim else "weights"
        yield model.problem(
            asked,
            f"{what} of bitsandbytes have no kernels for XLA devices: there they raise "
            "RuntimeError",
            suggestion='weights in bfloat16 (dtype=torch.bfloat16), and optim="adamw_torch" or '
            '"adafactor"',
        )


def _is_adapted(model: FileModel, package: str) -> bool:
    """Whether the program puts its own code into a package: ``deepspeed.comm.barrier = meet``.

    What the package does then on XLA devices is the program's own work.
    """
    return any(name.partition(".")[0] == package for name in model.patched)


def _names_torch_xla(model: FileModel) -> bool:
    """The file itself is for XLA devices, not only one that imports it, and not for all."""
    found = False
    for node in model.tree.imports:
        if "torch_xla" in _packages(model, node):
            if model.on_xla(node) is not OnXla.YES:
                return False  # an optional torch_xla: the file serves other devices too
            found = True
    return found


def _packages(model: FileModel, node: cst.Import | cst.ImportFrom) -> set[str]:
    """The top packages that an import brings in; not those of which it takes the project's own."""
    if isinstance(node, cst.ImportFrom) and node.relative:
        return set()
    return {name.partition(".")[0] for name in model.names.foreign(node)}


def _optional(model: FileModel, node: cst.CSTNode) -> bool:
    """In a function or under a condition: not every run comes there."""
    return model.function_of(node) is not None or bool(model.guards(node))
