"""Where a program names what it defines: who makes objects of a class, who calls a function.

By names alone, before anything is evaluated. What is named otherwise than to call it (handed on,
kept in a table, asked for by a text) may be called with anything, and is not known.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.definitions import Class
from xladoctor.lint.model.dotted import is_name, text_of
from xladoctor.lint.model.trials import asks_for_script, in_script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from xladoctor.lint.model.definitions import Function
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: What only asks for a name: no way to call, nor to set, what is called so.
_ASKS = frozenset({"hasattr", "getattr", "isinstance", "issubclass"})
#: What sets attributes by texts.
_BY_TEXT = frozenset({"setattr", "vars", "__dict__"})
_DEFINITIONS = frozenset([cst.FunctionDef, cst.ClassDef])


class Site(NamedTuple):
    """A call of a function, or one that makes an object.

    Attributes:
        call: The call.
        shift: How many arguments it gives before the first: ``self`` of ``Base.__init__(self)``.
    """

    call: cst.Call
    shift: int = 0


class Uses:
    """Finds the calls of the functions and classes of a program.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        aside: The modules that say nothing of how the others are used: tests, notebooks.
    """

    def __init__(
        self, tree: Tree, names: Names | LinkedNames, aside: Collection[cst.Module] = ()
    ) -> None:
        self._tree = tree
        self._names = names
        self._aside = aside
        self._made: dict[Class, Sequence[Site] | None] = {}
        self._called: dict[Function, Sequence[Site] | None] = {}

    @functools.cached_property
    def words(self) -> Mapping[str, Sequence[cst.Name]]:
        """All names of the program, those of attributes and keywords too, by what they are."""
        found: dict[str, list[cst.Name]] = {}
        for node in self._tree.by_type.get(cst.Name, ()):
            assert isinstance(node, cst.Name)
            found.setdefault(node.value, []).append(node)
        return found

    @functools.cached_property
    def texts(self) -> Mapping[str, Sequence[cst.SimpleString]]:
        """The texts that are written in the program, without those that something is asked by."""
        found: dict[str, list[cst.SimpleString]] = {}
        for node in self._tree.strings:
            text = text_of(node)
            if text is not None and text.isidentifier() and not self._is_asked(node):
                found.setdefault(text, []).append(node)
        return found

    def _is_asked(self, node: cst.CSTNode) -> bool:
        """``hasattr(self, "name")``; ``__all__ = ["name"]`` calls nothing either."""
        parents = self._tree.parents
        call = parents.get(parents.get(node, node))
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
            return call.func.value in _ASKS
        if isinstance(call, cst.List | cst.Tuple):
            line = parents.get(call)
            return isinstance(line, cst.Assign) and is_name(line.targets[0].target, "__all__")
        return False

    @functools.cached_property
    def classes(self) -> Mapping[str, Sequence[Class]]:
        """The classes of the program by their names."""
        found: dict[str, list[Class]] = {}
        for cls in self._tree.classes.values():
            found.setdefault(cls.name, []).append(cls)
        return found

    def made(self, cls: Class) -> Sequence[Site] | None:
        """The calls that run the constructor of a class; None if there may be others."""
        if cls not in self._made:
            self._made[cls] = None  # a class that is built on itself
            self._made[cls] = self._find_made(cls)
        return self._made[cls]

    def called(self, function: Function) -> Sequence[Site] | None:
        """The calls of a function of a module; None if there may be others."""
        if function.owner is not None or function.outer is not None or function.decorators:
            return None
        if function not in self._called:
            self._called[function] = self._find_called(function)
        return self._called[function]

    def is_used_as_written(self, sites: Sequence[Site], module: cst.Module) -> bool:
        """Whether calls are those of the program, and not of a module that tries itself out.

        Another file comes by, or the module is run itself, or is imported for something else.
        """
        for call, _ in sites:
            home = self._tree.module_of(call)
            if home in self._aside:
                continue
            if home is not module or self._is_own(call, module):
                return True
        return False

    def only_read(self, name: cst.Name) -> Class | None:
        """The class of settings that a name means, whose attributes are only named: ``Config.x``.

        None where something may fill it in: the command line, a loop over its attributes.
        """
        cls = self._names.definition(name)
        if not isinstance(cls, Class) or cls.methods or cls.bases or cls.node.decorators:
            return None
        if cls.name in self.texts or self._tree.module_of(cls.node) in self._aside:
            return None
        return cls if all(map(self._is_read, self.words.get(cls.name, ()))) else None

    def _is_read(self, node: cst.Name) -> bool:
        """Whether a place where a class of settings is named sets nothing of it.

        ``make(Config)`` may do so only where some line sets attributes by texts.
        """
        parent = self._tree.parents[node]
        if isinstance(parent, cst.Attribute) and parent.value is node:
            return not parent.attr.value.startswith("__")
        if isinstance(parent, cst.Arg):
            called = self._tree.parents[parent]
            plain = isinstance(called, cst.Call) and isinstance(called.func, cst.Name)
            return plain and not _BY_TEXT & self.words.keys()
        return isinstance(parent, cst.ClassDef) or self._is_imported(node)

    def is_run_here(self, module: cst.Module) -> bool:
        """Whether the program shows how a module is used: it is a script, or is imported."""
        return module in self._imported or self._is_script(module)

    def _is_own(self, call: cst.Call, module: cst.Module) -> bool:
        if module in self._imported:
            return self._tree.function_of(call) is not None
        in_function = self._tree.function_of(call) is not None
        return self._is_script(module) and (in_function or not in_script(self._tree, call))

    @functools.cached_property
    def _imported(self) -> frozenset[cst.Module]:
        return self._names.helpers()

    @functools.cached_property
    def _scripts(self) -> dict[cst.Module, bool]:
        return {}

    def _is_script(self, module: cst.Module) -> bool:
        """Whether a module does something where it is run: ``main()`` at its top."""
        if module not in self._scripts:
            self._scripts[module] = any(map(_runs, module.body))
        return self._scripts[module]

    def unnamed(self, name: str) -> bool:
        """Whether a program names a function nowhere but in functions that are called the same.

        ``parallelize`` of a part, which that of the whole model calls.
        """
        if name in self.texts or name.startswith("__"):
            return False
        for node in self.words.get(name, ()):
            parent = self._tree.parents[node]
            if isinstance(parent, cst.FunctionDef) and parent.name is node:
                continue
            home = self._tree.function_of(node)
            if home is None or all(one.name != name for one in home.around):
                return False
        return True

    def _find_made(self, cls: Class) -> Sequence[Site] | None:
        if cls.node.decorators or cls.name in self.texts or self._makes_itself(cls):
            return None
        found: list[Site] = []
        for node in self.words.get(cls.name, ()):
            sites = self._of_mention(node)
            if sites is None:
                return None
            found += sites
        return found

    def _of_mention(self, node: cst.Name) -> Sequence[Site] | None:
        """The calls that a place where a class or function is named stands for; None if unknown."""
        parents = self._tree.parents
        named: cst.CSTNode = node
        parent = parents[node]
        if type(parent) in _DEFINITIONS and getattr(parent, "name", None) is node:
            return ()
        if self._is_imported(node):
            return ()
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            named, parent = parent, parents[parent]
        if isinstance(parent, cst.Call) and parent.func is named:
            return (Site(parent),)
        if isinstance(parent, cst.Attribute):
            return self._of_attribute(parent)
        if isinstance(parent, cst.Arg) and parent.keyword is not node:
            return self._of_argument(parent)
        return () if any(isinstance(one, cst.Annotation) for one in self._above(named)) else None

    def _above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node within its statement."""
        for one in self._tree.ancestors(node):
            if isinstance(one, cst.BaseSuite | cst.SimpleStatementLine | cst.Module):
                return
            yield one

    def _is_imported(self, node: cst.Name) -> bool:
        """``from models import Net``, as it is called."""
        for one in self._above(node):
            if isinstance(one, cst.ImportAlias):
                return one.asname is None
            if isinstance(one, cst.Import | cst.ImportFrom):
                return True
        return False

    def _of_attribute(self, held: cst.Attribute) -> Sequence[Site] | None:
        """``Base.__init__(self, ...)``, and what of a class makes no object: ``Net.SIZE``."""
        name = held.attr.value
        parent = self._tree.parents[held]
        is_called = isinstance(parent, cst.Call) and parent.func is held
        if name == "__init__" and isinstance(parent, cst.Call) and is_called:
            return (Site(parent, 1),)
        return () if name.isupper() or name == "__name__" else None

    def _of_argument(self, argument: cst.Arg) -> Sequence[Site] | None:
        """``isinstance(x, Net)``, ``super(Net, self)`` and ``class Larger(Net)``."""
        parent = self._tree.parents[argument]
        if isinstance(parent, cst.ClassDef):
            return self._through(self._tree.classes[parent])
        if isinstance(parent, cst.Call) and isinstance(parent.func, cst.Name):
            return () if parent.func.value in {*_ASKS, "super"} else None
        return None

    def _through(self, cls: Class) -> Sequence[Site] | None:
        """The calls that a class which is built on another makes its objects by."""
        own = cls.methods.get("__init__")
        if own is None:
            return self.made(cls)
        found = [
            Site(call)
            for call in self._tree.within(own.node, cst.Call)
            if isinstance(call.func, cst.Attribute)
            and is_name(call.func.attr, "__init__")
            and isinstance(call.func.value, cst.Call)
        ]
        # ``Base.__init__(self)`` names the class, and is found there.
        return found if found or "__init__" in self.words else None

    def _makes_itself(self, cls: Class) -> bool:
        """``cls(...)`` in a method of the class, ``type(self)(...)``, ``self.__class__(...)``."""
        for call in self._tree.within(cls.node, cst.Call):
            func = call.func
            if isinstance(func, cst.Call) or is_name(func, "cls"):
                return True
            if isinstance(func, cst.Attribute) and func.attr.value == "__class__":
                return True
        return False

    def _find_called(self, function: Function) -> Sequence[Site] | None:
        if function.name in self.texts:
            return None
        found: list[Site] = []
        for node in self.words.get(function.name, ()):
            parent = self._tree.parents[node]
            if isinstance(parent, cst.Param) and parent.name is node:
                return None
            sites = self._of_mention(node)
            if sites is None:
                return None
            found += sites
        return found


def _runs(line: cst.CSTNode) -> bool:
    """Whether a line of a module runs something: ``main()``, or that of a script alone."""
    if isinstance(line, cst.If):
        return asks_for_script(line)
    parts = line.body if isinstance(line, cst.SimpleStatementLine) else ()
    return any(isinstance(part, cst.Expr) and isinstance(part.value, cst.Call) for part in parts)
