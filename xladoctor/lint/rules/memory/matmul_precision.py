"""XLA731: torch's switches for the precision of products, which XLA does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_SET = "torch.set_float32_matmul_precision"
_FLAGS = frozenset({"torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32"})
_OWN = (
    "torch_xla.backends.set_mat_mul_precision",
    "jax.default_matmul_precision",
)


@rule("XLA731")
def matmul_precision(model: FileModel) -> Iterator[Problem]:
    """Find switches for exact float32 products in files for XLA devices only."""
    if not model.is_xla or any(True for _ in model.calls(*_OWN)) or _for_gpus(model):
        return
    for node, asked in _switches(model):
        if model.guards(node):
            continue  # what is asked there may be the device
        yield model.problem(
            node,
            f"XLA does not read {asked}: on TPUs float32 products are computed in bfloat16 passes "
            "all the same",
            suggestion='torch_xla.backends.set_mat_mul_precision("highest")',
        )


def _for_gpus(model: FileModel) -> bool:
    """Whether the file has a word for GPUs as well: it asks for one, or sets up cuBLAS."""
    return any(word in model.text for word in ("cuda.is_av", "CUBLAS_"))


def _switches(model: FileModel) -> Iterator[tuple[cst.CSTNode, str]]:
    """Where more precision is asked for than torch gives by itself."""
    for call in model.calls(_SET):
        level = call.argument(0, "precision")
        if level is not None and model.literal(level) == "highest":
            yield call.node, "set_float32_matmul_precision"
    for node in model.nodes(cst.Assign):
        for one in node.targets:
            name = model.name(one.target) if isinstance(one.target, cst.Attribute) else None
            if name in _FLAGS and model.literal(node.value) is False:
                yield node, name.removeprefix("torch.backends.") if name else ""
