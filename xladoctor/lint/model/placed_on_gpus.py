"""Programs that put their models on a GPU outright, and have copied a question for XLA.

A Trainer of the program's own overrides a method of that of transformers, with its
``if is_torch_xla_available(): xm.mark_step()``, and gets its model of ``load``, which says
``device_map="cuda"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model.calls import called_name
from xladoctor.lint.model.syntax import Function, walk
from xladoctor.lint.words import XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: How transformers asks for torch_xla.
_ASK = frozenset({"is_torch_xla_available", "is_torch_tpu_available"})


def placed_on_gpus(
    tree: Tree, names: Names | LinkedNames, of_xla: Callable[[cst.CSTNode], bool]
) -> frozenset[cst.Module]:
    """The files that take their models of functions that need a GPU, and those of the functions.

    Args:
        tree: The files.
        names: What their names are bound to.
        of_xla: Whether the file of a node is for XLA devices, or has a word of them.
    """
    if not any(isinstance(name, cst.Name) and name.value in _ASK for name in tree.nodes(cst.Name)):
        return frozenset()
    placing = {
        function
        for call in gpu_programs.uses_gpu(tree, names)
        if (function := tree.function_of(call)) is not None
        and function.owner is None
        and gpu_programs.is_always(tree, call)
        and not of_xla(call)
    }
    called = {function.name for function in placing}
    found: set[cst.Module] = set()
    for call in tree.calls if called else ():
        if called_name(call) not in called:
            continue
        target = names.definition(call.func)
        module = tree.module_of(call)
        if isinstance(target, Function) and target in placing and _only_copied(tree, module):
            found |= {module, tree.module_of(target.node)}
    return frozenset(found)


def _only_copied(tree: Tree, module: cst.Module) -> bool:
    """Whether all that a file says of XLA stands where transformers' question says yes."""
    copied = {part for node in _questions(module) for part in walk(node)}
    return all(
        node in copied
        or any(isinstance(x, cst.Import | cst.ImportFrom) for x in tree.ancestors(node))
        for node in walk(module)
        if isinstance(node, cst.Name | cst.SimpleString) and words(node.value) & XLA_WORDS
    )


def _questions(module: cst.Module) -> Iterator[cst.CSTNode]:
    """``if is_torch_xla_available(): ...``, with what runs then."""
    for node in walk(module):
        if isinstance(node, cst.If) and any(
            isinstance(part, cst.Name) and part.value in _ASK for part in walk(node.test)
        ):
            yield node.test
            yield node.body
