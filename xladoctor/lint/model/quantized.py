"""Which programs load their model in 4 or 8 bits by bitsandbytes, whatever happens.

bitsandbytes has kernels for GPUs and CPUs and none for XLA devices; transformers raises where it
finds none of the devices that it lists (5.24, ``validate_bnb_backend_availability``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.trials import asks_for_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_SETTINGS = re.compile(r"^(?:transformers|diffusers)\.(?:\w+\.)*BitsAndBytesConfig$")
_BITS = ("load_in_4bit", "load_in_8bit")
_LOADS = "from_pretrained"
#: How many functions up the call is looked for that starts them.
_DEPTH = 3


def loads_quantized(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Call]:
    """``BitsAndBytesConfig(load_in_4bit=True)``, ``from_pretrained(name, load_in_8bit=True)``."""
    for call in tree.calls:
        asked = (given(call, None, name) for name in _BITS)
        if not any(is_name(one, "True") for one in asked):
            continue
        loads = isinstance(call.func, cst.Attribute) and call.func.attr.value == _LOADS
        settings = _SETTINGS.match(names.resolve(call.func) or "")
        if (loads or settings) and _always_runs(tree, names, call, _DEPTH):
            yield call


def _always_runs(tree: Tree, names: Names | LinkedNames, node: cst.CSTNode, depth: int) -> bool:
    """Whether the program comes to a node on no condition, through whoever calls its function."""
    for around in tree.ancestors(node):
        if isinstance(around, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(around, cst.If) and asks_for_script(around):
            continue
        if isinstance(around, cst.If | cst.IfExp | cst.Try | cst.BooleanOperation | cst.Param):
            return False
    function = tree.function_of(node)
    if function is None:
        return True
    callers = [call for call in tree.calls if names.definition(call.func) is function]
    return bool(callers and depth) and all(
        _always_runs(tree, names, call, depth - 1) for call in callers
    )
