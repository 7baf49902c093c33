"""What a name is bound to: imports, aliases and definitions, scope by scope."""

from __future__ import annotations

import builtins
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.bindings import add, bind
from xladoctor.lint.model.by_device import on_xla
from xladoctor.lint.model.dotted import (
    HANDED_IN,
    KNOWN_AS,
    LEFT_OUT,
    canonical,
    dotted_text,
    imported,
    imports_module,
    is_name,
    last_name,
)
from xladoctor.lint.model.given_back import given_back, givers
from xladoctor.lint.model.knowledge import LOADERS, PARTIAL
from xladoctor.lint.model.needed import needed
from xladoctor.lint.model.picked import PICKING, newest, picked
from xladoctor.lint.model.syntax import Binding, Class, Function, Scope, Tree
from xladoctor.lint.model.unbound import left_out
from xladoctor.lint.module_names import had_never

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xladoctor.lint.model.given_back import Gives
    from xladoctor.lint.model.syntax import FunctionNode

_BUILTINS = frozenset(dir(builtins))
#: Files that may hand on what they import.
_RE_EXPORTS = 4


class Names:
    """Resolves expressions to the dotted names they were imported as.

    Args:
        tree: The file's syntax; its scopes are filled with bindings here.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._resolved: dict[cst.CSTNode, str | None] = {}
        self._written: dict[cst.CSTNode, str | None] = {}
        self._originals: dict[str, str | None] = {}
        self._meant: dict[tuple[Scope, str], str | None] = {}
        self._asking = 0
        self._links: Mapping[str, Names] = {}
        bind(tree)

    def resolve(self, node: cst.BaseExpression) -> str | None:
        """The dotted original of a name or attribute chain, None if it is not an import or builtin.

        ``xm.mark_step`` after ``import torch_xla.core.xla_model as xm`` is
        ``torch_xla.core.xla_model.mark_step``; ``print`` is ``builtins.print`` unless shadowed.
        What another linked file defines counts as defined here; what it imports is followed.
        """
        if node not in self._resolved:
            raw = self._raw(node)
            self._resolved[node] = self._original(raw) if raw else None
        return self._resolved[node]

    def _original(self, dotted: str) -> str | None:
        """The original of a name as this file's imports spell it, None if a linked file has it."""
        if dotted not in self._originals:
            origin = self._origin(dotted)
            self._originals[dotted] = canonical(origin) if isinstance(origin, str) else None
        return self._originals[dotted]

    def link(self, modules: Mapping[str, Names]) -> None:
        """Tell which imported modules are files that are known too.

        Args:
            modules: Names of modules as this file's imports spell them ("pkg.utils", ".utils").
        """
        self._links = modules
        # What was asked of the file alone may mean something else now.
        self._meant = {}
        self._originals = {}
        self._resolved = {}
        for node in self._tree.imports:
            if isinstance(node, cst.ImportFrom) and isinstance(node.names, cst.ImportStar):
                module = "." * len(node.relative) + (
                    (dotted_text(node.module) or "") if node.module is not None else ""
                )
                if module in modules:
                    self._bind_star(node, module, modules[module])

    def linked(self, node: cst.BaseExpression) -> tuple[Names, str] | None:
        """The file and the name in it that an imported name or attribute chain means.

        ("" for the file itself.) None if it is not defined in a linked file.
        """
        raw = self._raw(node) if self._links else None
        origin = self._origin(raw) if raw else None
        if origin is None or isinstance(origin, str) or "." in origin[1]:
            return None
        return origin

    def _origin(self, dotted: str, depth: int = 5) -> tuple[Names, str] | str:
        """Where a dotted name leads through re-exports: to a linked file and the name in it."""
        split = self._split(dotted)
        if split is None:
            return dotted
        names, rest = split
        first, _, more = rest.partition(".")
        bindings = names.top.bindings.get(first)
        again = names._from_bindings(bindings) if bindings and depth else None  # noqa: SLF001
        if again is None:
            return names, rest
        return names._origin(f"{again}.{more}" if more else again, depth - 1)  # noqa: SLF001

    def _split(self, dotted: str) -> tuple[Names, str] | None:
        """The linked file that the longest beginning of a dotted name means, and the rest."""
        if not self._links:
            return None
        dots = len(dotted) - len(dotted.lstrip("."))
        parts = dotted[dots:].split(".")
        for count in range(len(parts), -1, -1):
            module = dotted[:dots] + ".".join(parts[:count])
            if module in self._links:
                return self._links[module], ".".join(parts[count:])
        return None

    def foreign(self, node: cst.Import | cst.ImportFrom) -> frozenset[str]:
        """The dotted names of what an import takes, but for what linked files are or define."""
        return frozenset(name for name in imported(node) if not self._is_own(name))

    def _is_own(self, name: str) -> bool:
        """Also a package around a linked file: ``import apex``, ``import apex.transformer``."""
        return any(
            f"{name}.".startswith(f"{one}.") or one.startswith(f"{name}.") for one in self._links
        )

    def _bind_star(self, node: cst.ImportFrom, module: str, names: Names) -> None:
        scope = self._tree.scopes[node]
        for name in names.top.bindings:
            if not name.startswith("_") and name not in scope.bindings:
                add(self._tree, scope, name, Binding("import", node, f"{module}.{name}"))

    @property
    def module(self) -> cst.Module:
        """The file's module."""
        return self._tree.module

    @property
    def top(self) -> Scope:
        """The scope of the module."""
        return self._tree.top

    def definition(self, node: cst.BaseExpression) -> Function | Class | None:
        """The function or class, here or in a linked file, that an expression surely means."""
        linked = self.linked(node)
        if linked is not None:
            names, name = linked
            return names._defined(names._left(name))  # noqa: SLF001
        if type(node) is not cst.Name:
            return None
        return self._defined(self._tree.bindings(node))

    def assigned_elsewhere(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a linked file binds, once, to the name that an expression means there."""
        dotted, names = self._raw(node) if self._links else None, self
        for _ in range(_RE_EXPORTS):
            split = names._split(dotted) if dotted is not None else None
            bindings = (split[0].top.bindings.get(split[1]) or []) if split is not None else []
            if split is None or len(bindings) != 1:
                return None
            if bindings[0].kind == "assign":
                made = bindings[0].node
                return made if isinstance(made, cst.BaseExpression) else None
            names, dotted = split[0], bindings[0].dotted
        return None

    def _left(self, name: str) -> list[Binding]:
        """What a name of the module is bound to once its code has run.

        ``class Dataset(Dataset)`` takes the place of what was imported under the same name.
        """
        bindings = self.top.bindings.get(name) or []
        last = bindings[-1].node if bindings else None
        if isinstance(last, cst.ClassDef) and self._tree.parents.get(last) is self.module:
            before = (item for item in bindings[:-1] if item.kind not in {"function", "class"})
            if all(item.kind == "import" for item in before):
                return bindings[-1:]
        return bindings

    def _defined(self, bindings: Sequence[Binding]) -> Function | Class | None:
        if not bindings:
            return None
        last = bindings[-1]
        for item in bindings:
            if item.kind not in {"function", "class"}:
                return None
        if isinstance(last.node, cst.FunctionDef):
            return self._tree.functions[last.node]
        if isinstance(last.node, cst.ClassDef):
            return self._tree.classes[last.node]
        return None

    def helpers(self) -> frozenset[cst.Module]:
        """The modules of linked files that this one imports."""
        return frozenset(names.module for names in self._links.values())

    def importers(self) -> dict[cst.Module, set[cst.Module]]:
        """The modules of linked files that this one imports, with this one."""
        return {module: {self.module} for module in self.helpers()}

    def needed(self) -> dict[cst.Module, set[cst.Module]]:
        """The modules of linked files that this one cannot do without, with this one."""
        found = needed(self._tree, self._links)
        return {self._links[module].module: {self.module} for module in found}

    def imported(self) -> frozenset[str]:
        """Dotted names of everything that the file imports, also inside functions."""
        return self._imported

    @functools.cached_property
    def _imported(self) -> frozenset[str]:
        found: set[str] = set()
        for node in self._tree.imports:
            found.update(imported(node))
        found.update(imports_module(call) or "" for call in self._tree.calls)
        handed = {HANDED_IN[name] for name in self._handed_in}
        return frozenset(found - {""}) | frozenset(self._unbound.values()) | handed

    @functools.cached_property
    def _unbound(self) -> Mapping[str, str]:
        return left_out(self._tree)

    def _raw(self, node: cst.BaseExpression) -> str | None:
        """The dotted name as this file's imports spell it."""
        if node not in self._written:
            self._written[node] = None  # breaks circles such as a = b; b = a
            self._written[node] = self._spell_out(node)
        return self._written[node]

    def _spell_out(self, node: cst.BaseExpression) -> str | None:
        # By type and not by isinstance, which LibCST's abstract classes make slow.
        if type(node) is cst.Attribute:
            base = self._raw(node.value)
            if base is None:
                self._asking += 1
                kept = self._kept(node)
                self._asking -= 1
                return kept
            return None if base.startswith("builtins.") else f"{base}.{node.attr.value}"
        if type(node) is not cst.Name:
            return picked(node, self._raw, self.definition) if type(node) in PICKING else None
        scope = self._tree.scopes[node]
        key = scope, node.value
        if key in self._meant:
            return self._meant[key]
        self._asking += 1
        found = self._meaning(node.value, scope)
        self._asking -= 1
        if not self._asking:  # what is found within a circle is only right there
            self._meant[key] = found
        return found

    def _meaning(self, name: str, scope: Scope) -> str | None:
        """What a name means in a scope."""
        bindings = scope.lookup(name)
        if bindings is None:
            return f"builtins.{name}" if name in _BUILTINS else self._unbound.get(name)
        found = self._from_bindings(bindings) or given_back(self._tree, bindings, self._gives)
        if found is not None and name in HANDED_IN and had_never(found):
            return HANDED_IN[name]  # ``import torch_xla.core.q as xm``: told at the import
        return found or self._handed_on(name, bindings)

    def _gives(self, call: cst.Call) -> Gives:
        """What the function that a call runs gives back, if it imports torch_xla for others."""
        linked, function = self.linked(call.func), self.definition(call.func)
        names = self if linked is None else linked[0]
        if not isinstance(function, Function):
            return (), self._raw
        return names._givers.get(function.node, ()), names._raw  # noqa: SLF001

    @functools.cached_property
    def _givers(self) -> Mapping[FunctionNode, Sequence[cst.BaseExpression]]:
        return givers(self._tree)

    def _handed_on(self, name: str, bindings: Sequence[Binding]) -> str | None:
        """``def save(xm, path)`` and ``xm, pl = load_torch_xla()`` in a file that imports it."""
        if name not in HANDED_IN:
            return None
        if not any(item.kind not in {"param", "other"} for item in bindings):
            if name in KNOWN_AS and any(x.startswith("torch_xla.") for x in self.imported()):
                return KNOWN_AS[name]
            return HANDED_IN[name] if name in self._handed_in else None
        # ``xm = get_xla_model()``
        asked = all(item.kind == "assign" and _asks(item.node) for item in bindings)
        return HANDED_IN[name] if asked and name in self._handed_in else None

    @functools.cached_property
    def _handed_in(self) -> frozenset[str]:
        """Modules of torch_xla that a caller imports: ``def fit(self, xm=None)``, by their use.

        Also where an object keeps one: ``self.xm.optimizer_step(optimizer)``.
        """
        taken = {
            name
            for function in self._tree.functions.values()
            for name in (*function.parameters, *function.keyword_only)
            if name in HANDED_IN
        } | {
            target.target.value
            for node in self._tree.nodes(cst.Assign)
            if _asks(node.value)
            for target in node.targets
            if isinstance(target.target, cst.Name) and target.target.value in HANDED_IN
        }
        used = {
            last_name(node.value)
            for node in (self._tree.by_type.get(cst.Attribute, ()) if taken else ())
            if isinstance(node, cst.Attribute)
            and node.attr.value in LEFT_OUT.get(last_name(node.value), ("", ()))[1]
        }
        return frozenset(taken & used)

    def _kept(self, node: cst.Attribute) -> str | None:
        """``self.xm`` of a class that only ever keeps this one module of torch_xla under it."""
        if not isinstance(node.value, cst.Name):
            return None
        meanings = {
            self._of_partial(value) or self._raw(value)
            for value in self._modules_kept.get(f"{node.value.value}.{node.attr.value}", ())
            if not is_name(value, "None")
        }
        found = meanings.pop() if len(meanings) == 1 else None
        kept = found is not None and found.startswith(("torch_xla", *LOADERS))
        return found if kept else None

    @functools.cached_property
    def _modules_kept(self) -> Mapping[str, Sequence[cst.BaseExpression]]:
        """What is assigned to attributes of ``self``, if names are assigned to them at all."""
        found: dict[str, list[cst.BaseExpression]] = {}
        for node in self._tree.nodes(cst.Assign):
            for target in node.targets:
                text = dotted_text(target.target)
                if text is not None and text.startswith("self.") and text.count(".") == 1:
                    found.setdefault(text, []).append(node.value)
        return found

    def _of_partial(self, node: cst.CSTNode | None) -> str | None:
        """The loader's class in ``partial(DataLoader, num_workers=4)``."""
        if type(node) is not cst.Call or not node.args or self._raw(node.func) != PARTIAL:
            return None
        found = self._raw(node.args[0].value)
        return found if found in LOADERS else None

    def completed(self, func: cst.BaseExpression) -> cst.Call | None:
        """The ``functools.partial`` whose loader a name makes: what it is given counts too."""
        found: list[cst.CSTNode | None] = []
        if isinstance(func, cst.Name):
            bindings = self._tree.bindings(func)
            found = [item.node for item in bindings if item.kind == "assign"]
        elif isinstance(func, cst.Attribute):
            found = [*self._modules_kept.get(dotted_text(func) or "", ())]
        elsewhere = self.linked(func) if not found else None
        if elsewhere is not None:
            names, name = elsewhere
            found = [item.node for item in names.top.bindings.get(name, ())]
        calls = (one for one in found if isinstance(one, cst.Call))
        return next(calls, None)

    def _of_value(self, node: cst.CSTNode) -> str | None:
        """What an expression means that a name is bound to."""
        if isinstance(node, cst.Name | cst.Attribute):
            return self._raw(node)
        found = self._of_partial(node)
        if found is None and isinstance(node, cst.IfExp | cst.BooleanOperation | cst.Call):
            return self._raw(node)
        return found

    def _of_releases(self, imports: list[str], others: list[Binding]) -> str | None:
        """``from torch_xla import sync``, ``except ImportError: sync = xm.mark_step``."""
        made = (self._of_value(one.node) if one.kind == "assign" else None for one in others)
        found = {newest(one or "") for one in (*imports, *made)}
        return imports[0] if len(found) == 1 and imports[0].startswith("torch_xla") else None

    def _from_bindings(self, bindings: list[Binding]) -> str | None:
        imports = [item.dotted for item in bindings if item.kind == "import" and item.dotted]
        others = [
            item
            for item in bindings
            if item.kind != "import"
            # ``xm = None`` in the except branch of an import is no other meaning.
            and not (isinstance(item.node, cst.Name) and item.node.value in {"None", "False"})
        ]
        if imports:
            if others:
                return self._of_releases(imports, others)
            return next((item for item in imports if item.startswith("torch_xla")), imports[0])
        meanings = {self._of_value(item.node) if item.kind == "assign" else None for item in others}
        return meanings.pop() if len(meanings) == 1 else on_xla(others, self._raw)


def _asks(node: cst.CSTNode | None) -> bool:
    """A call that is given nothing."""
    return isinstance(node, cst.Call) and not node.args
