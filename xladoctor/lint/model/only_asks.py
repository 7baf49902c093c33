"""Which files ask for torch_xla without being for XLA devices: what imports them is no more so.

Such files come with libraries: they ask whether torch_xla is there, or for the number of a tensor
of such a device. Others only count their Trainer's devices of each kind, as everybody who once
asked for the number of steps did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name, takes_torch_xla
from xladoctor.lint.model.purpose import counts_cores, frameworks_on_xla

if TYPE_CHECKING:
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree


def only_asks(tree: Tree, names: Names) -> bool:
    """Whether a file has torch_xla for tensors that others put on an XLA device, and for nothing.

    Args:
        tree: The file.
        names: What its names are bound to.
    """
    imports = [node for node in tree.imports if takes_torch_xla(node)]
    if not imports and any(map(counts_cores, tree.by_type.get(cst.Attribute, ()))):
        roots = {name.partition(".")[0] for name in names.imported()}
        return not frameworks_on_xla(tree, names, roots, counted=False)
    if not imports or any(tree.function_of(node) is None for node in imports):
        return False
    calls = [call for call in tree.calls if _of_torch_xla(names.resolve(call.func) or "")]
    return all(_is_looked_up(tree, names, call) for call in calls)


def _of_torch_xla(name: str) -> bool:
    return name.partition(".")[0] == "torch_xla"


def _is_looked_up(tree: Tree, names: Names, call: cst.Call) -> bool:
    """``_ = xm.xla_device()`` to see whether there is one, and private names."""
    if any(part.startswith("_") for part in (names.resolve(call.func) or "").split(".")):
        return True
    parent = tree.parents[call]
    unused = isinstance(parent, cst.Assign) and all(
        is_name(target.target, "_") for target in parent.targets
    )
    tried = any(isinstance(node, cst.Try) for node in tree.ancestors(call))
    return tried and (unused or isinstance(parent, cst.Expr))
