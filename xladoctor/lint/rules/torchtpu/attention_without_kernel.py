"""XLA864: attention that TorchTPU computes without its fused kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import OnXla
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_CONTEXT = "torch.nn.attention.sdpa_kernel"
_OLD_CONTEXT = "torch.backends.cuda.sdp_kernel"
_SWITCH = "torch.backends.cuda.enable_flash_sdp"
_MODULE = "torch.nn.MultiheadAttention"
#: The name under which PyTorch chooses TorchTPU's kernel, and those that compute without it.
_KERNEL = "FLASH_ATTENTION"
_PLAIN = frozenset({"MATH", "OVERRIDEABLE"})
_KNOWN = _PLAIN | {_KERNEL, "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"}

_SLOW = "computes attention on a TPU as products and a softmax, with all scores in memory"
_ALLOW = "allow SDPBackend.FLASH_ATTENTION, under which PyTorch chooses TorchTPU's kernel"


@rule("XLA864")
def attention_without_kernel(model: FileModel) -> Iterator[Problem]:
    """Find contexts, switches and modules under which the kernel is not chosen."""
    if "torch_tpu" not in model.members or family.TORCH_XLA in model.members:
        return
    yield from _contexts(model)
    yield from _switches(model)
    yield from _weights(model)


def _contexts(model: FileModel) -> Iterator[Problem]:
    for call in model.calls(_CONTEXT):
        given = call.argument(0, "backends")
        names = _backends(model, given)
        if not names or _KERNEL in names or model.on_xla(call.node) is OnXla.NO:
            continue
        written = " and ".join(sorted(names))
        if names & _PLAIN:
            yield model.problem(call.node, f"{written} {_SLOW}", suggestion=_ALLOW)
        else:
            yield model.problem(
                call.node,
                f"TorchTPU has no {written}: with nothing else allowed, "
                "scaled_dot_product_attention raises RuntimeError",
                suggestion=_ALLOW,
            )


def _backends(model: FileModel, given: cst.BaseExpression | None) -> frozenset[str]:
    """The backends that are allowed, by their names; none if not all are written there."""
    if isinstance(given, cst.List | cst.Tuple):
        parts = [element.value for element in given.elements]
    else:
        parts = [] if given is None else [given]
    names = [(model.name(part) or "").rpartition(".") for part in parts]
    known = all(owner.endswith("SDPBackend") and name in _KNOWN for owner, _, name in names)
    return frozenset(name for _, _, name in names) if known else frozenset()


def _switches(model: FileModel) -> Iterator[Problem]:
    places = [(call, call.argument(0, "enabled")) for call in model.calls(_SWITCH)]
    places += [(call, call.argument(0, "enable_flash")) for call in model.calls(_OLD_CONTEXT)]
    for call, given in places:
        off = given is not None and model.literal(given) is False
        if off and model.on_xla(call.node) is not OnXla.NO:
            yield model.problem(
                call.node,
                f"with the flash kernels off, which is said of TPUs too, PyTorch {_SLOW}",
                suggestion="leave it out, or do it under `if torch.cuda.is_available():`",
            )


def _weights(model: FileModel) -> Iterator[Problem]:
    """Calls of ``nn.MultiheadAttention`` that ask for weights which nobody takes."""
    for node in model.nodes(cst.Call):
        call = model.call(node)
        value = model.value(node.func)
        if value.type_name != _MODULE or call.has_star or len(call.positional) > 4:
            continue
        if "need_weights" in call.keywords or not _drops_weights(model, node):
            continue
        yield model.problem(
            node,
            "nn.MultiheadAttention gives the attention's weights too unless told otherwise, and "
            f"nobody takes them: it {_SLOW}",
            suggestion="need_weights=False",
            fix=model.fix(
                "Ask for no weights", model.add_argument(node, "need_weights=False"), safe=False
            ),
        )


def _drops_weights(model: FileModel, node: cst.Call) -> bool:
    """``attention(q, k, v)[0]`` or ``x, _ = attention(q, k, v)``."""
    parent = model.parent(node)
    if isinstance(parent, cst.Subscript) and parent.value is node:
        index = index_of(parent)
        return index is not None and model.literal(index) == 0
    if isinstance(parent, cst.Assign) and parent.value is node and len(parent.targets) == 1:
        target = parent.targets[0].target
        if isinstance(target, cst.Tuple) and len(target.elements) == 2:
            second = target.elements[1].value
            return isinstance(second, cst.Name) and second.value.strip("_") == ""
    return False
