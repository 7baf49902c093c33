"""XLA706: something is put on a CUDA device in a file for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._environment import is_environ, key_of, settings
from xladoctor.lint.rules._exact import around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Function, Problem


_VISIBLE = "CUDA_VISIBLE_DEVICES"
#: What is made on a device that it is told.
_MADE = frozenset({Returns.NEW_TENSOR, Returns.BESIDE, Returns.MODEL, Returns.PARAMETER})


@rule("XLA706")
def cuda_placement(model: FileModel) -> Iterator[Problem]:
    """Find ``.cuda()``, ``.to("cuda")``, ``.to(0)`` and ``torch.device("cuda")`` unguarded."""
    if not model.is_xla:
        return
    yield from _of_environment(model)
    for call in model.calls():
        default = _default(model, call)
        if default is None and not _to_cuda(model, call):
            continue
        if not runs_with_xla(model, call.node):
            continue
        if any(isinstance(node, cst.IfExp) for node in around(model, call.node)):
            continue
        if default is not None:
            yield from _taken(model, call, default)
            continue
        if call.name == "torch.device" and _is_compared(model, call.node):
            continue
        if _is_unused_default(model, call.node):
            continue
        yield model.problem(
            call.node,
            "a machine with XLA devices has no CUDA device as a rule: this raises RuntimeError",
            suggestion="device = torch_xla.device(), and .to(device)",
            fix=_fix(model, call),
        )


def _of_environment(model: FileModel) -> Iterator[Problem]:
    """``os.environ["CUDA_VISIBLE_DEVICES"]`` that is read, and that no file of the program sets."""
    reads = [
        node
        for node in model.nodes(cst.Subscript)
        if is_environ(model, node.value)
        and key_of(model, node) == _VISIBLE
        and not isinstance(model.parent(node), cst.AssignTarget | cst.Del)
    ]
    parts = (model, *model.linked) if reads else ()
    if any(name == _VISIBLE for part in parts for name, _, _ in settings(part)):
        return
    for node in reads:
        tried = any(isinstance(one, cst.Try | cst.If | cst.IfExp) for one in around(model, node))
        if not tried and runs_with_xla(model, node):
            yield model.problem(
                node,
                "nothing sets CUDA_VISIBLE_DEVICES on a machine without GPUs: this raises KeyError",
                suggestion='os.environ.get("CUDA_VISIBLE_DEVICES"), or leave it out',
            )


def _taken(model: FileModel, call: CallSite, default: cst.BaseExpression) -> Iterator[Problem]:
    """``def smooth(y, device="cuda"): torch.full((3,), 0.1, device=device)``, called without."""
    asked = _asked(model, call)
    assert call.function is not None
    assert isinstance(asked, cst.Name)
    without = _calls_without(model, call.function, asked.value)
    if without:
        yield model.problem(
            default,
            "a call takes this default, and a machine with XLA devices has no CUDA device as a "
            "rule: this raises RuntimeError",
            suggestion="no default, or that of what the function is given: device=y.device",
            related=[
                model.place(call.node, "asks for it"),
                model.place(without[0].node, "called here"),
            ],
        )


def _default(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """The text that names a GPU, of a parameter that says where a call puts or makes something."""
    asked = _asked(model, call)
    if not isinstance(asked, cst.Name) or call.function is None:
        return None
    default = call.function.default(asked.value)
    bound = model.bindings(asked.value, asked)
    own = len(bound) == 1 and bound[0].kind == "param"
    return default if own and _is_cuda_text(model, default) else None


def _calls_without(model: FileModel, function: Function, name: str) -> list[CallSite]:
    """The calls of a function that leave a parameter to its default."""
    calls = (call for call in model.callers(function) if not call.has_star)
    return [call for call in calls if call.given_to(function, name) is None]


def _is_compared(model: FileModel, node: cst.CSTNode) -> bool:
    """``if device == torch.device("cuda")``: a device that nothing is put on raises nothing."""
    parent = model.parent(node)
    return isinstance(parent, cst.Comparison | cst.ComparisonTarget)


def _is_unused_default(model: FileModel, node: cst.CSTNode) -> bool:
    """``def score(x, device=torch.device("cuda"))`` whose callers, if any, all say the device."""
    param = next((each for each in around(model, node) if isinstance(each, cst.Param)), None)
    home = model.parent(param) if param is not None else None
    function = next((one for one in model.functions if one.node.params is home), None)
    if param is None or function is None:
        return False
    return not _calls_without(model, function, param.name.value)


def _to_cuda(model: FileModel, call: CallSite) -> bool:
    if call.name == "torch.device":
        return _is_cuda(model, call.argument(0, "type"))
    if call.name is not None:
        return _is_cuda_text(model, _asked(model, call))
    if call.method == "cuda":
        return call.receiver is not None and not call.has_star and len(call.node.args) <= 1
    return _is_cuda(model, _asked(model, call))


def _asked(model: FileModel, call: CallSite) -> cst.BaseExpression | None:
    """Where something is put or made: ``x.to(device)``, ``torch.zeros(8, device=device)``."""
    if call.name is None:
        return call.argument(0, "device") if call.method == "to" else None
    made = call.name == "torch.Generator" or model.library.returns(call.name) in _MADE
    return call.keywords.get("device") if made else None


def _is_cuda(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """``"cuda"``, ``"cuda:1"`` and ``1``: a number is that of a GPU (torch 2.9, measured)."""
    if isinstance(node, cst.Integer):
        return True
    return _is_cuda_text(model, node)


def _is_cuda_text(model: FileModel, node: cst.BaseExpression | None) -> bool:
    text = model.literal(node) if isinstance(node, cst.SimpleString) else None
    return isinstance(text, str) and (text == "cuda" or text.startswith("cuda:"))


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    """``torch_xla.device()`` in its place, unless that would start XLA before the cores."""
    if call.function is None and model.multi_core:
        return None
    written = spell(model, call.node, "torch_xla.device")
    if written is None:
        return None
    device = f"{written[0]}()"
    if call.name == "torch.device":
        edit = model.replace(call.node, device)
    elif call.method == "cuda":
        if call.node.args or call.receiver is None:
            return None
        edit = model.replace(call.node, f"{model.tree.text(call.receiver).strip()}.to({device})")
    else:
        argument = _asked(model, call)
        edit = model.replace(argument, device) if argument is not None else None
    return model.fix("Put it on the XLA device", edit, written[1], safe=False)
