"""Parameters of a model that are saved one by one, not as its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.parts import names_bound
from xladoctor.lint.rules._exact import made_by

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Methods of a module that go over its tensors: generators, which pickle refuses (TypeError,
#: measured on torch 2.9).
_GOES_OVER = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
_LISTS = frozenset({"builtins.list", "builtins.tuple", "builtins.dict", "collections.OrderedDict"})
#: Methods that give the tensor, or one like it, where it is.
_STAY = frozenset({"detach", "clone", "contiguous", "data"})


def gone_over(model: FileModel, data: cst.BaseExpression) -> cst.BaseExpression | None:
    """The module whose parameters something goes over: ``net.parameters()``, also by a name."""
    call = made_by(model, data)
    if call is None or call.target is not None or call.method not in _GOES_OVER:
        return None
    return call.receiver


def listed(model: FileModel, data: cst.BaseExpression) -> cst.BaseExpression | None:
    """The module whose parameters stand in something: ``list(net.parameters())``.

    ``[p.data for p in net.parameters()]``, ``{name: p for name, p in net.named_parameters()}``.
    """
    made = model.assigned_once(data) if isinstance(data, cst.Name) else data
    if isinstance(made, cst.Call):
        call = model.call(made)
        one = _only(call) if call.name in _LISTS else None
        return None if one is None else gone_over(model, one) or listed(model, one)
    if isinstance(made, cst.ListComp | cst.GeneratorExp):
        element = made.elt
    elif isinstance(made, cst.DictComp):
        element = made.value
    else:
        return None
    loop = made.for_in
    while isinstance(element, cst.Call | cst.Attribute):
        inner = element.func if isinstance(element, cst.Call) else element
        if not isinstance(inner, cst.Attribute) or inner.attr.value not in _STAY:
            return None
        element = inner.value
    is_one = is_name(element, [*names_bound(loop.target)][-1])  # of ``name, value`` the value
    return gone_over(model, loop.iter) if is_one and loop.inner_for_in is None else None


def _only(call: CallSite) -> cst.BaseExpression | None:
    return call.positional[0] if len(call.positional) == 1 and not call.has_star else None
