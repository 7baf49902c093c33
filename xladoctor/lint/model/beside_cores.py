"""Functions for GPUs in a file that starts the cores of XLA devices in others.

``train`` moves what it trains to ``cuda``; ``xmp.spawn`` is given ``train_on_core``, which asks for
a device of its own. Neither names the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import assignments
from xladoctor.lint.model.gpu_scripts import defined
from xladoctor.lint.model.syntax import Function, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_SPAWNS = "torch.multiprocessing.spawn"
_SETS = "torch.cuda.set_device"


def beside_started(
    tree: Tree, names: Names | LinkedNames
) -> tuple[frozenset[Function], frozenset[cst.BaseExpression]]:
    """The functions that need a GPU in files that start the cores in others, and their devices.

    Of the devices (``device = torch.device("cuda")`` at the top) those that nothing else reads.

    Args:
        tree: The files.
        names: What their names are bound to.
    """
    found: set[Function] = set()
    devices: set[cst.BaseExpression] = set()
    for module, cores in _started(tree, names).items():
        tops = {node.name.value: node for node in defined(module)}
        named = {name: _names_within(node, tops) for name, node in tops.items()}
        on_cores = _closed(cores, named)
        alone = {
            node
            for name, node in tops.items()
            if cores <= tops.keys() and name not in on_cores and cores.isdisjoint(named[name])
        }
        read = _read_devices(tree, module) if alone else {}
        places = [*gpu_programs.uses_gpu(tree, names), *(x for each in read.values() for x in each)]
        homes = {tree.function_of(place) for place in places} if alone else set()
        found |= {one for one in homes if one is not None and one.node in alone}
        nodes = {one.node for one in found}
        devices |= {
            device
            for device, readers in read.items()
            if all((one := tree.function_of(x)) and one.node in nodes for x in readers)
        }
    return frozenset(found | _given_gpus(tree, names)), frozenset(devices)


def _given_gpus(tree: Tree, names: Names | LinkedNames) -> set[Function]:
    """The functions that torch starts a process for each GPU with: ``mp.spawn(ddp_worker)``.

    They set their GPU themselves, and call nothing of torch_xla.
    """
    found: set[Function] = set()
    for call in tree.calls:
        run = given(call, 0, "fn") if names.resolve(call.func) == _SPAWNS else None
        function = names.definition(run) if run is not None else None
        if isinstance(function, Function):
            inside = {names.resolve(x.func) or "" for x in tree.within(function.node, cst.Call)}
            if _SETS in inside and not any(name.startswith("torch_xla.") for name in inside):
                found.add(function)
    return found


def _started(tree: Tree, names: Names | LinkedNames) -> dict[cst.Module, set[str]]:
    """The files that start the cores by torch_xla, to the functions that these run."""
    found: dict[cst.Module, set[str]] = {}
    for call in tree.calls:
        launcher = names.resolve(call.func) or ""
        if launcher.startswith("torch_xla.") and launcher in know.SPAWNERS:
            run = given(call, 0, know.SPAWNERS[launcher])
            function = names.definition(run) if run is not None else None
            name = function.name if isinstance(function, Function) else ""
            found.setdefault(tree.module_of(call), set()).add(name)
    return found


def _names_within(node: cst.CSTNode, known: Collection[str]) -> frozenset[str]:
    """Those of some names that stand in a function or class."""
    return frozenset(
        part.value for part in walk(node) if isinstance(part, cst.Name) and part.value in known
    )


def _closed(names: AbstractSet[str], within: Mapping[str, AbstractSet[str]]) -> frozenset[str]:
    """Some names, those that stand in what they mean, and so on."""
    waiting, found = list(names), set(names)
    while waiting:
        more = within.get(waiting.pop(), frozenset()) - found
        found |= more
        waiting.extend(more)
    return frozenset(found)


def _read_devices(tree: Tree, module: cst.Module) -> dict[cst.BaseExpression, list[cst.CSTNode]]:
    """What a file binds to a GPU at its top (``device = torch.device("cuda")``), with who reads it.

    Only names that are bound once.
    """
    found: dict[cst.BaseExpression, list[cst.CSTNode]] = {}
    for line in module.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            for target, value in assignments(part):
                if not isinstance(target, cst.Name) or not gpu_programs.is_gpu_device(value):
                    continue
                if tree.assigned_once(target) is value:
                    found[value] = []
    for name in tree.nodes(cst.Name) if found else ():
        assert isinstance(name, cst.Name)
        parent = tree.parents.get(name)
        other = (isinstance(parent, cst.Attribute) and parent.attr is name) or (
            isinstance(parent, cst.Arg) and parent.keyword is name
        )
        bound = None if other else tree.assigned_once(name)
        if bound in found and not isinstance(parent, cst.AssignTarget):
            found[bound].append(name)
    return found
