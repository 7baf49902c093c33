"""What a helper defines and nothing of the program names: none of the files for XLA runs it.

``from trainer import schedules``, of a file that holds a Trainer too, which nobody makes. By names
alone: what is named anywhere else is claimed, and so is all of a program that asks for names by
texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model.dotted import imports_module, last_name, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

Definition: TypeAlias = "cst.FunctionDef | cst.ClassDef"

#: What finds classes and functions that no line names.
_FINDS = frozenset(
    {"__subclasses__", "__init_subclass__", "import_module", "__import__", "globals", "getmembers",
     "instantiate", "locate", "LightningCLI", "get_class", "get_method", "attrgetter"}
)  # fmt: skip
#: One of them: a launcher asks what it loads for one name.
_LOADS = "import_module"
#: Modules that have nothing of a program: ``importlib.import_module("torch_xla.core.xla_model")``.
_NO_PART = ("torch.", "torch_xla")


def unclaimed(
    tree: Tree, names: Names | LinkedNames, takes_xla: Callable[[cst.Module], bool]
) -> frozenset[Definition]:
    """The functions and classes of helpers that no code of a program comes to.

    Args:
        tree: The files.
        names: What their names are bound to.
        takes_xla: Whether a file imports torch_xla: then files that are not here may use it there.
    """
    importers = names.importers()
    helpers = {one for one in importers if not takes_xla(one)} - _handed_on(tree, importers)
    found = {node for one in helpers for node in _defined(one)}
    if not found or _finds_by_text(tree) or _hands_module(tree, names):
        return frozenset()
    named = {node.name.value for node in found}
    # Each name to where it stands: a definition of a helper, or None for all other code.
    mentions: dict[str, set[Definition | None]] = {}
    for node in tree.nodes(cst.Name):
        assert isinstance(node, cst.Name)
        if node.value in named and not _is_name_of(tree, node) and not _is_taken(tree, node):
            mentions.setdefault(node.value, set()).add(_home(tree, node, found))
    for node, base in _heirs(tree, found):
        mentions.setdefault(node.name.value, set()).add(base if base in found else None)
    texts = {text_of(literal) for literal in tree.strings}
    open_ = {node for node in found if node.decorators or node.name.value in texts}
    return frozenset(_not_reached(found - open_, mentions))


def _not_reached(
    left: set[Definition], mentions: dict[str, set[Definition | None]]
) -> set[Definition]:
    """Those of some definitions that are named in each other alone, or nowhere."""
    grew = True
    while grew:
        reached = {
            node
            for node in left
            if any(home not in left for home in mentions.get(node.name.value, ()))
        }
        left -= reached
        grew = bool(reached)
    return left


def _heirs(tree: Tree, found: set[Definition]) -> Iterator[tuple[cst.ClassDef, Definition | None]]:
    """Classes that are built on others of the program: where these are used, they may be meant."""
    known = {cls.name: cls.node for cls in tree.classes.values()}
    for node in found:
        if isinstance(node, cst.ClassDef):
            below = (known.get(last_name(base.value)) for base in node.bases)
            yield from ((node, one) for one in below if one is not None and one is not node)


def _defined(module: cst.Module) -> list[Definition]:
    """The functions and classes at the top of a file."""
    return [line for line in module.body if isinstance(line, cst.FunctionDef | cst.ClassDef)]


def _is_name_of(tree: Tree, node: cst.Name) -> bool:
    """Whether a name is that of what is defined there."""
    parent = tree.parents[node]
    return isinstance(parent, cst.FunctionDef | cst.ClassDef) and parent.name is node


def _is_taken(tree: Tree, node: cst.Name) -> bool:
    """Whether a name stands in an import of a file that goes on with it by the same name.

    A package hands on what it imports.
    """
    for one in tree.ancestors(node):
        if isinstance(one, cst.ImportAlias) and one.asname is not None:
            return False
        if isinstance(one, cst.Import | cst.ImportFrom):
            return bool(_defined(tree.module_of(one)))
        if isinstance(one, cst.BaseCompoundStatement | cst.SimpleStatementLine):
            return False
    return False


def _home(tree: Tree, node: cst.CSTNode, found: set[Definition]) -> Definition | None:
    """The definition of a helper in which a name stands."""
    for one in tree.ancestors(node):
        if isinstance(one, cst.FunctionDef | cst.ClassDef) and one in found:
            return one
    return None


def _finds_by_text(tree: Tree) -> bool:
    """Whether a program looks for names by texts: ``getattr(models, args.arch)``."""
    for node in tree.nodes(cst.Name):
        assert isinstance(node, cst.Name)
        if node.value in _FINDS and not _asks_by_name(tree, node):
            return True
        if node.value in {"getattr", "__dict__"} and _asks_module(tree, tree.parents[node]):
            return True
    return False


def _asks_by_name(tree: Tree, node: cst.Name) -> bool:
    """Whether a module that a text finds is asked for names alone that stand there.

    ``mod = importlib.import_module(name)`` and ``xmp.spawn(mod._mp_fn)``: a launcher. Also
    ``importlib.import_module(name).SummaryWriter(folder)``, and of a module that is written there
    and is none of the program's, whatever is done with it.
    """
    found = tree.parents[node]
    if isinstance(found, cst.ImportAlias) and found.asname is None and node.value == _LOADS:
        return True  # each call is looked at
    call = tree.parents[found] if isinstance(found, cst.Attribute) else found
    if isinstance(call, cst.Call) and (imports_module(call) or "").startswith(_NO_PART):
        return True
    line = tree.parents[call]
    if isinstance(call, cst.Call) and isinstance(line, cst.Attribute):
        return True
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(call, cst.Call) or not isinstance(target, cst.Name):
        return False
    function, module = tree.function_of(call), tree.module_of(call)
    used = [
        name
        for name in tree.nodes(cst.Name)
        if name.value == target.value
        and tree.module_of(name) is module
        and tree.function_of(name) is function
        and name is not target
    ]
    above = [tree.parents[name] for name in used]
    return bool(used) and all(
        isinstance(one, cst.Attribute) and one.value is name
        for one, name in zip(above, used, strict=True)
    )


def _hands_module(tree: Tree, names: Names | LinkedNames) -> bool:
    """Whether a file of the program is given to a function: ``get(config, module_arch)``.

    That may ask it for anything.
    """
    for call in tree.calls:
        for argument in call.args:
            bound = tree.bindings(argument.value) if isinstance(argument.value, cst.Name) else ()
            if any(
                isinstance(one.node, cst.Import) and not names.foreign(one.node) for one in bound
            ):
                return True
    return False


def _asks_module(tree: Tree, asking: cst.CSTNode) -> bool:
    """``getattr(models, args.arch)`` and ``models.__dict__[args.arch]``."""
    if isinstance(asking, cst.Attribute):
        asked = asking.value
    elif isinstance(asking, cst.Call) and len(asking.args) > 1:
        if text_of(asking.args[1].value):
            return False
        asked = asking.args[0].value
    else:
        return False
    while isinstance(asked, cst.Attribute):
        asked = asked.value
    bound = tree.bindings(asked) if isinstance(asked, cst.Name) else ()
    return any(item.kind == "import" for item in bound)


def _handed_on(
    tree: Tree, importers: Mapping[cst.Module, AbstractSet[cst.Module]]
) -> set[cst.Module]:
    """The helpers that a package hands on whole: ``from .losses import *``, and no code."""
    stars = {
        tree.module_of(node)
        for node in tree.imports
        if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar)
    }
    packages = {one for one in stars if not _defined(one)}
    return {one for one, by in importers.items() if not by.isdisjoint(packages)}
