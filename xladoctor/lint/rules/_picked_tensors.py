"""Which tensor a loop works on: the same one in each turn, or one of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.parts import names_bound

if TYPE_CHECKING:
    from xladoctor.lint.model import FileModel, Loop


def is_one_of_several(model: FileModel, name: cst.Name, loop: Loop) -> bool:
    """``batch`` of ``for batch in batches:``, or ``batch = batches[i]``: another in each turn.

    What a loop around it or within it goes through is the same in each turn of this one.
    """
    node = loop.node
    bound = set(names_bound(node.target)) if isinstance(node, cst.For | cst.CompFor) else set()
    queue, seen = [name], {name.value}
    for one in queue:
        if one.value in bound:
            return True
        for made in model.assigned_to(one):
            part: cst.BaseExpression = made
            while isinstance(part, cst.Subscript):
                if not all(is_whole(model, element) for element in part.slice):
                    return True  # ``batch = batches[turn % 4]``
                part = part.value
            if isinstance(part, cst.Name) and part.value not in seen:
                seen.add(part.value)
                queue.append(part)
    return False


def is_whole(model: FileModel, element: cst.SubscriptElement) -> bool:
    """``x[:length]``, ``x[None]``, ``x[..., 0]``: the same part, or one from the beginning on."""
    part = element.slice
    if isinstance(part, cst.Slice):
        ends = (part.lower, part.upper) if part.lower is not None else ()
        return all(end is None or model.literal(end) is not NotImplemented for end in ends)
    assert isinstance(part, cst.Index)
    return isinstance(part.value, cst.Ellipsis) or model.literal(part.value) is not NotImplemented
