"""Which classes are for other devices: those that need GPUs, refuse XLA, or are made beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model.calls import called_name
from xladoctor.lint.model.dotted import is_name, string
from xladoctor.lint.model.loops import OnXla
from xladoctor.lint.model.parts import walk
from xladoctor.lint.model.strategies import strategies_elsewhere
from xladoctor.lint.model.syntax import Class
from xladoctor.lint.model.turns import refuses
from xladoctor.lint.words import for_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Function, Tree

_MAKES = "__init__"
#: What a model's attention is called where ``flash_attn`` computes it.
_FLASH = "flash_attention_2"


def for_gpus(
    tree: Tree, names: Names | LinkedNames, of_xla: Callable[[cst.CSTNode], bool]
) -> frozenset[Class]:
    """The classes that are for GPUs, by what they are called and what they need.

    Args:
        tree: The files.
        names: What their names are bound to.
        of_xla: Whether the file of a node is for XLA devices, or has a word of them.
    """
    needing: dict[Class, bool] = {}  # whether it needs a GPU whatever is asked before
    for call in gpu_programs.uses_gpu(tree, names):
        function = tree.function_of(call)
        if function is not None and function.owner is not None:
            always = needing.get(function.owner, False)
            needing[function.owner] = always or gpu_programs.is_always(tree, call)
    engines = gpu_programs.takes_package(tree, names)
    named = (
        one
        for one in tree.classes.values()
        if tree.module_of(one.node) in engines and for_others(one.name)
    )
    return frozenset(
        owner
        for owner, always in needing.items()
        if for_others(owner.name) or (always and not _is_spoken_of(tree, owner, of_xla))
    ).union(named, _of_flash_attention(tree), strategies_elsewhere(tree, names))


def _of_flash_attention(tree: Tree) -> Iterator[Class]:
    """``{"eager": Attention, "flash_attention_2": FlashAttention}``: it needs ``flash_attn``.

    So transformers' files choose: the package is CUDA's, and no model takes it unless it is asked.
    """
    named = {
        (tree.module_of(node), node.value.value)
        for node in tree.nodes(cst.DictElement)
        if isinstance(node.key, cst.SimpleString)
        and string(node.key) == _FLASH
        and isinstance(node.value, cst.Name)
    }
    for one in tree.classes.values() if named else ():
        if (tree.module_of(one.node), one.name) in named:
            yield one


def _is_spoken_of(tree: Tree, owner: Class, of_xla: Callable[[cst.CSTNode], bool]) -> bool:
    """Whether a file that is for XLA devices, or has a word of them, speaks of a class."""
    nodes = tree.nodes(cst.Name, cst.Attribute)
    return of_xla(owner.node) or any(
        (node.value if isinstance(node, cst.Name) else node.attr.value) == owner.name
        and of_xla(node)
        for node in nodes
    )


def refusing(
    tree: Tree, names: Names | LinkedNames, guards: Callable[[cst.CSTNode], Sequence[Guard]]
) -> frozenset[Class]:
    """The classes that nobody can make on XLA devices, and those that are built on them.

    ``__init__`` says ``assert not self.use_tpu``, or ``if self.use_tpu: raise ...``.

    Args:
        tree: The files.
        names: What their names are bound to.
        guards: The conditions around a node within its function.
    """
    classes = list(tree.classes.values())
    found = {one for one in classes if _refuses(one.methods.get(_MAKES), guards)}
    grew = bool(found)
    while grew:
        more = {one for one in classes if one not in found and _makes_as(one, found, names)}
        found |= more
        grew = bool(more)
    return frozenset(found)


def _refuses(init: Function | None, guards: Callable[[cst.CSTNode], Sequence[Guard]]) -> bool:
    """Whether the end of a function is not reached on XLA devices, and what ends it raises."""
    body = init.node.body if init is not None else None
    if not isinstance(body, cst.IndentedBlock):
        return False
    if not any(map(_may_refuse, body.body)):
        return False
    # What is asserted in the last line of all has no line behind it, and is no way to refuse.
    return any(
        guard.runs is OnXla.NO and (isinstance(guard.node, cst.Assert) or refuses(guard.node))
        for guard in guards(body.body[-1])
    )


def _may_refuse(line: cst.CSTNode) -> bool:
    if isinstance(line, cst.SimpleStatementLine):
        return any(isinstance(part, cst.Assert) for part in line.body)
    return refuses(line)


def _makes_as(one: Class, found: set[Class], names: Names | LinkedNames) -> bool:
    """Whether a class is made as one of some classes that it is built on is."""
    if not any(names.definition(base) in found for base in one.bases):
        return False
    init = one.methods.get(_MAKES)
    return init is None or any(
        isinstance(part, cst.Attribute)
        and is_name(part.attr, _MAKES)
        and isinstance(part.value, cst.Call | cst.Name)
        for part in walk(init.node)
    )


def made_beside(
    tree: Tree,
    names: Names | LinkedNames,
    said: Callable[[cst.CSTNode], OnXla | None],
    of_xla: Callable[[cst.CSTNode], bool],
) -> frozenset[Class]:
    """The classes that a program makes where it does not run on XLA devices, and nowhere else.

    ``self.helper = None if device == "tpu" else Helper(device)``. Who else makes them is a file
    without a word of XLA, and the classes themselves have none.

    Args:
        tree: The files.
        names: What their names are bound to.
        said: What the conditions around a node say of the devices that it runs on.
        of_xla: Whether the file of a node is for XLA devices, or has a word of them.
    """
    if len(tree.modules) < 2:
        return frozenset()
    made: dict[Class, list[cst.CSTNode]] = {}
    named = {one.name for one in tree.classes.values() if not of_xla(one.node)}
    for call in tree.calls:
        if called_name(call) in named:
            target = names.definition(call.func)
            if isinstance(target, Class):
                made.setdefault(target, []).append(call)
    return frozenset(
        one
        for one, calls in made.items()
        if not of_xla(one.node) and _are_for_others(calls, said, of_xla)
    )


def _are_for_others(
    calls: Sequence[cst.CSTNode],
    said: Callable[[cst.CSTNode], OnXla | None],
    of_xla: Callable[[cst.CSTNode], bool],
) -> bool:
    answers = {OnXla.NO if said(call) is OnXla.NO else of_xla(call) for call in calls}
    return OnXla.NO in answers and True not in answers


def taken_at(
    tree: Tree, names: Names | LinkedNames, function: Function, call: cst.Call
) -> Iterator[cst.CSTNode]:
    """Where the name by which a call runs a function takes it: ``step = on_gpu`` in a branch."""
    if not isinstance(call.func, cst.Name) or call.func.value == function.name:
        return
    for item in tree.bindings(call.func):
        if item.kind != "assign" or item.node is None:
            continue
        for part in walk(item.node):
            if (
                isinstance(part, cst.Name)
                and part.value == function.name
                and names.definition(part) is function
            ):
                yield part
