"""What of a script for GPUs a program for XLA devices runs that imports the script for its helpers.

``train.py`` chooses a GPU, builds models and trains them; ``train_tpu.py`` takes its functions that
build models and read options, and trains by itself. What no other file names, and nothing that it
names, runs on GPUs alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model.dotted import imported, last_name, text_of
from xladoctor.lint.model.syntax import Function, walk
from xladoctor.lint.model.trials import asks_for_script
from xladoctor.lint.words import XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: What has devices of its own choice beside those that a script names.
_FRAMEWORKS = frozenset(
    {"accelerate", "ignite", "lightning", "lightning_fabric", "pytorch_lightning", "transformers"}
)
_Defined: TypeAlias = "cst.FunctionDef | cst.ClassDef"


def left_alone(
    tree: Tree, names: Names | LinkedNames, module: cst.Module, others: AbstractSet[cst.Module]
) -> frozenset[Function]:
    """The functions of a script that no file for XLA devices comes to by its name.

    Args:
        tree: The files.
        names: What their names are bound to.
        module: One of them; none of a file that is no script.
        others: Those that may run on XLA devices.
    """
    if module not in _scripts(tree):
        return frozenset()
    tops = {name: node for node in defined(module) if (name := node.name.value)}
    named = {*_named_elsewhere(tree, names, others, tops)}
    waiting, used = [*named], set(named)
    while waiting:
        for part in walk(tops[waiting.pop()]):
            if not isinstance(part, cst.Name) or part.value not in tops or part.value in used:
                continue
            if any(one.node is tops[part.value] for one in tree.bindings(part)):
                used.add(part.value)
                waiting.append(part.value)
    alone = {node for name, node in tops.items() if name not in used}
    return frozenset(
        function
        for function in tree.functions.values()
        if tree.module_of(function.node) is module
        and (function.node in alone or not alone.isdisjoint(tree.ancestors(function.node)))
    )


def with_twins(tree: Tree, asks_xla: AbstractSet[object]) -> frozenset[Function]:
    """The functions that others are written for XLA devices beside: ``train``, ``train_tpu``.

    Args:
        tree: The files.
        asks_xla: The functions that call torch_xla.
    """
    known = {
        (tree.module_of(one.node), one.owner, words(one.name) - XLA_WORDS)
        for one in asks_xla
        if isinstance(one, Function) and words(one.name) & XLA_WORDS
    }
    return frozenset(
        one
        for one in (tree.functions.values() if known else ())
        if one not in asks_xla
        and one.outer is None
        and (tree.module_of(one.node), one.owner, words(one.name)) in known
    )


def moves_if_asked(
    tree: Tree, names: Names | LinkedNames, for_gpus: Callable[[cst.CSTNode], bool]
) -> frozenset[cst.Module]:
    """The scripts that move what they run by ``x.cuda()`` alone, each time where GPUs are asked.

    ``if use_cuda: model.cuda()``: without a GPU they stay on the CPU.

    Args:
        tree: The files.
        names: What their names are bound to.
        for_gpus: Whether the conditions around a node let it run on other devices alone.
    """
    found: dict[cst.Module, bool] = {}
    for call in gpu_programs.moves_to_gpu(tree, names):
        module = tree.module_of(call)
        found[module] = found.get(module, True) and for_gpus(call)
    others = {tree.module_of(call) for call in tree.calls if found and _names_device(call)}
    scripts = _scripts(tree) if found else frozenset()
    return frozenset(x for x, alone in found.items() if alone and x in scripts and x not in others)


def stays_on_cpu(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Module]:
    """The scripts that make one device, the CPU: ``self.device = torch.device("cpu")``.

    Args:
        tree: The files.
        names: What their names are bound to.
    """
    found: dict[cst.Module, bool] = {}
    for line in tree.nodes(cst.Assign, cst.AnnAssign):
        assert isinstance(line, cst.Assign | cst.AnnAssign)
        targets = (
            [x.target for x in line.targets] if isinstance(line, cst.Assign) else [line.target]
        )
        if any(last_name(target) == "device" for target in targets):
            module = tree.module_of(line)
            found[module] = found.get(module, True) and _is_cpu(line.value, names)
    for node in tree.nodes(cst.Param):
        assert isinstance(node, cst.Param)
        if node.name.value == "device":  # whoever calls it chooses
            found[tree.module_of(node)] = False
    for node in tree.imports if found else ():
        if _FRAMEWORKS & {name.partition(".")[0] for name in imported(node)}:
            found[tree.module_of(node)] = False  # it chooses for what it is given
    scripts = _scripts(tree) if found else frozenset()
    yield from (module for module, alone in found.items() if alone and module in scripts)


def _is_cpu(node: cst.BaseExpression | None, names: Names | LinkedNames) -> bool:
    """``torch.device("cpu")``, or the text alone."""
    if isinstance(node, cst.Call) and node.args and names.resolve(node.func) == "torch.device":
        node = node.args[0].value
    return text_of(node) == "cpu"


def _names_device(call: cst.Call) -> bool:
    """``x.to(device)``, ``torch.zeros(2, device=args.device)``: whatever device that is."""
    moves = isinstance(call.func, cst.Attribute) and call.func.attr.value == "to"
    return any(
        "device" in words(last_name(argument.value))
        for argument in call.args
        if moves or (argument.keyword is not None and argument.keyword.value == "device")
    )


def _scripts(tree: Tree) -> frozenset[cst.Module]:
    """The files that ask whether they are the script."""
    return frozenset(
        tree.module_of(node)
        for node in tree.nodes(cst.If)
        if isinstance(node, cst.If) and asks_for_script(node)
    )


def _named_elsewhere(
    tree: Tree,
    names: Names | LinkedNames,
    others: AbstractSet[cst.Module],
    tops: Mapping[str, _Defined],
) -> Iterator[str]:
    """What other files import by name, or ask anything for: ``train.build``; what a star may be."""
    stars = {
        tree.module_of(node)
        for node in tree.imports
        if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar)
    }
    for node in tree.nodes(cst.Attribute, cst.Name):
        name = node.attr.value if isinstance(node, cst.Attribute) else node.value
        home = tree.module_of(node)
        if name not in tops or home not in others:
            continue
        above = tree.parents.get(node)
        imported = isinstance(above, cst.ImportAlias) and isinstance(
            tree.parents.get(above), cst.ImportFrom
        )
        if not isinstance(node, cst.Attribute) and not imported and home not in stars:
            continue
        meant = names.definition(node)
        root = (names.resolve(node) or "").partition(".")[0]
        if meant.node is tops[name] if meant else root not in sys.stdlib_module_names:
            yield name


def defined(module: cst.Module) -> list[_Defined]:
    """The functions and classes that a file defines outside of others."""
    return [
        part
        for line in module.body
        for part in (line.body.body if isinstance(line, cst.If | cst.Try) else (line,))
        if isinstance(part, cst.FunctionDef | cst.ClassDef)
    ]
