"""Values that a loop hands to a function and takes back: ``total = step(batch, total)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.rules._exact import same_name

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel, Function


def carried(model: FileModel, function: Function | None, name: str) -> CallSite | None:
    """The call that gives a parameter what the call before it gave back for it.

    Args:
        model: The file.
        function: A function.
        name: One of its names.

    Returns:
        None if the name starts anew with every call.
    """
    if function is None or name not in function.parameters:
        return None
    if not any(is_name(part, name) for value in returned(function) for part in each_in(value)):
        return None
    for call in model.callers(function):
        given = call.given_to(function, name)
        parent = model.parent(call.node)
        if given is None or not isinstance(parent, cst.Assign):
            continue
        targets = (part for one in parent.targets for part in each_in(one.target))
        if any(same_name(target, given) for target in targets):
            return call
    return None
