"""XLA105: NumPy cannot see a tensor that lives on an XLA device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Kind
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._reads import snippet
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Functions that convert their first argument with ``__array__`` (all of these measured on 2.9.0;
#: ``array_equal`` and ``fromiter`` do not).
_CONVERTS = frozenset(
    f"numpy.{name}"
    for name in (
        *("array", "asarray", "asanyarray", "ascontiguousarray", "atleast_1d", "copy"),
        *("float32", "float64", "int64", "save", "savez"),
        *("mean", "sum", "max", "min", "argmax", "argmin", "std", "var", "median", "prod", "ptp"),
        *("nanmean", "nanmax", "average", "percentile", "quantile", "any", "all"),
        *("isnan", "isfinite", "isinf", "isclose", "allclose", "nan_to_num", "count_nonzero"),
        *("round", "rint", "floor", "clip", "abs", "exp", "log", "log1p", "sqrt", "square"),
        *("power", "tanh", "maximum", "minimum", "where", "dot", "linalg.norm", "corrcoef"),
        *("unique", "sort", "argsort", "argpartition", "searchsorted", "digitize"),
        *("histogram", "bincount", "diff", "cumsum", "append", "concatenate", "stack"),
        *("vstack", "hstack", "squeeze", "transpose", "ravel", "reshape", "expand_dims", "triu"),
        "full_like",
    )
)
#: What makes a sequence that is filled later.
_SEQUENCES = frozenset({"builtins.list", "builtins.tuple", "collections.deque"})


@rule("XLA105")
def numpy_on_device_tensor(model: FileModel) -> Iterator[Problem]:
    """Find ``t.numpy()`` and ``np.asarray(t)`` of tensors that are certainly on the device."""
    if not model.is_xla:
        return
    for call in model.calls():
        tensor = _given(call)
        if tensor is None:
            continue
        value = model.value(tensor)
        if call.name in _CONVERTS and _lists_tensors(model, tensor):
            yield model.problem(
                call.node,
                f"{snippet(model, tensor)} is a list of tensors on the XLA device, and NumPy "
                "cannot read them there: this raises TypeError",
                suggestion="put them together on the device and read that once: "
                "torch.stack(losses).mean().item()",
            )
            continue
        if value.kind is not Kind.DEVICE_TENSOR or not value.certain:
            continue
        related = []
        if value.origin is not None:
            related.append(model.place(value.origin, "this puts it on the device"))
        yield model.problem(
            call.node,
            f"{snippet(model, tensor)} is on the XLA device, and NumPy cannot read it there: "
            "this raises TypeError",
            suggestion="copy it to the host first: tensor.detach().cpu().numpy(), outside of the "
            "step loop where that is possible",
            related=related,
            fix=_fix(model, tensor),
        )


def _lists_tensors(model: FileModel, node: cst.BaseExpression) -> bool:
    """``losses`` of ``losses.append(loss)``, ``[x, y]``: all of it certainly on the device.

    Also the list that an object keeps: ``self.states``, which a method of it fills.
    """
    inner = model.value(node).inner if model.value(node).kind is Kind.CONTAINER else []
    if not inner or not all(one.is_device_tensor and one.certain for one in inner):
        return False
    bound = model.bindings(node.value, node) if isinstance(node, cst.Name) else ()
    made = [item.node for item in bound] or [node]
    if isinstance(node, cst.Attribute):
        made = [*(sources(model, node) or [node])]
    return all(_is_sequence(model, one) for one in made)


def _is_sequence(model: FileModel, made: cst.CSTNode) -> bool:
    if isinstance(made, cst.Call):
        return model.name(made.func) in _SEQUENCES
    return isinstance(made, cst.List | cst.Tuple | cst.ListComp)


def _given(call: CallSite) -> cst.BaseExpression | None:
    """The tensor that a call hands to NumPy."""
    if call.name is None and call.method == "numpy" and not call.node.args:
        return call.receiver
    if call.name in _CONVERTS:
        return call.argument(1 if call.name == "numpy.save" else 0, None)
    return None


def _fix(model: FileModel, tensor: cst.BaseExpression) -> Fix | None:
    """Copy it to the host first; without it the call raises."""
    text = model.tree.text(tensor).strip()
    if not isinstance(tensor, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        text = f"({text})"
    detached = text.endswith(".detach()")
    copy = f"{text}.cpu()" if detached else f"{text}.detach().cpu()"
    return model.fix("Copy it to the host", model.replace(tensor, copy), safe=True)
