"""What a file is for: XLA devices or not, which framework runs its loop, one program or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import string

if TYPE_CHECKING:
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_FRAMEWORKS = {
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "accelerate": "accelerate",
    "transformers": "transformers",
}
#: Lightning's names for strategies and accelerators, which only run on XLA devices.
_FOR_XLA = frozenset(
    {
        "XLAStrategy", "XLAFSDPStrategy", "XLAAccelerator", "SingleDeviceXLAStrategy",
        "TPUSpawnStrategy", "TPUAccelerator", "SingleTPUStrategy",
    }
)  # fmt: skip


def is_xla(tree: Tree, names: Names) -> bool:
    """Whether a file imports torch_xla, or a framework and asks it for TPU cores."""
    roots = {name.partition(".")[0] for name in names.imported()}
    if "torch_xla" in roots:
        return True
    if not roots & set(_FRAMEWORKS):
        return False
    words = {"tpu", "PJRT_DEVICE", "XLA_USE_BF16", "xla"}
    imported = {name.rpartition(".")[2] for name in names.imported()}
    if imported & _FOR_XLA or ("DistributedType" in imported and _asks_for_xla(tree, names)):
        return True
    return any(string(literal) in words for literal in tree.strings) or any(
        argument.keyword is not None and argument.keyword.value == "tpu_cores"
        for call in tree.calls
        for argument in call.args
    )


def _asks_for_xla(tree: Tree, names: Names) -> bool:
    """Whether Accelerate's ``DistributedType.XLA`` (once ``TPU``) is compared with anything."""
    found = (
        node for node in tree.by_type.get(cst.Attribute, ()) if isinstance(node, cst.Attribute)
    )
    return any(
        node.attr.value in {"XLA", "TPU"}
        and (names.resolve(node.value) or "").endswith(".DistributedType")
        for node in found
    )


def used_frameworks(tree: Tree, names: Names) -> frozenset[str]:
    """Which of "lightning", "accelerate" and "transformers" a file trains with.

    Models, tokenizers and schedulers of transformers do not make its Trainer run the loop.
    """
    imported = names.imported()
    roots = {name.partition(".")[0] for name in imported}
    found = {_FRAMEWORKS[root] for root in roots if root in _FRAMEWORKS}
    words = {name.rpartition(".")[2] for name in imported}
    words |= {call.func.attr.value for call in tree.calls if isinstance(call.func, cst.Attribute)}
    if not any("Trainer" in word or word.endswith("TrainingArguments") for word in words):
        found.discard("transformers")
    if not words & {"Accelerator", "notebook_launcher", "PartialState"}:
        found.discard("accelerate")
    return frozenset(found)


def spmd_is_on(tree: Tree, names: Names) -> bool:
    """Whether a file makes its program one over all devices."""
    called = (names.resolve(call.func) or "" for call in tree.calls)
    return any(
        name.endswith((".use_spmd", ".mark_sharding", ".xla_sharding.Mesh", ".spmd.Mesh"))
        and name.startswith("torch_xla")
        for name in called
    ) or any(string(literal) == "XLA_USE_SPMD" for literal in tree.strings)
