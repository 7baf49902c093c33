"""Files that import each other, modelled together: one run of values, one set of regions.

A helper module is only understood with the program that calls it: whether ``accuracy(output)``
gets a tensor of the device, whether ``train_epoch`` is called on every core, whether what
``finish_step`` does ends the graph. A single file is a program of one.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import builtin
from xladoctor.lint.model.calls import CallSite
from xladoctor.lint.model.constants import Constants
from xladoctor.lint.model.copied import only_copied
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.model.flow import Flow
from xladoctor.lint.model.frequency import Frequency
from xladoctor.lint.model.kept import NOTHING_KEPT, Kept, kept_by
from xladoctor.lint.model.knowledge import LOADERS
from xladoctor.lint.model.linked_names import LinkedNames
from xladoctor.lint.model.names import Names
from xladoctor.lint.model.only_asks import only_asks
from xladoctor.lint.model.parsing import parsed
from xladoctor.lint.model.patched import patched
from xladoctor.lint.model.purpose import (
    TRAINER_PACKAGES,
    derived_frameworks,
    found_members,
    names_xla,
    own_trainers,
    used_frameworks,
)
from xladoctor.lint.model.regions import Regions
from xladoctor.lint.model.spmd import spmd_is_on
from xladoctor.lint.model.syntax import Forest, Tree
from xladoctor.lint.model.unit_tests import in_folder_of_tests
from xladoctor.lint.model.unpacked import Unpacked
from xladoctor.lint.model.uses import Uses
from xladoctor.lint.started import NOT_SAID, Started
from xladoctor.lint.words import called_for_tpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.library import Library
    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.syntax import Class, Function
    from xladoctor.lint.pins import Pin


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """One file of a program.

    Attributes:
        text: Its source (for a notebook: its code cells as one text).
        filename: What it is called; distinct within a program.
        shell: Magics and shell lines of a notebook as (row of the text, line as written).
        imports: Names of modules as its imports spell them ("pkg.utils", ".utils") to the file
            names of the units that they are; "" for packages known as installed (transformers)
            of which the project holds a copy.
        pins: What the requirements that count for it allow of frameworks.
        started: What the settings of its project start it on.
    """

    text: str
    filename: str = ""
    shell: tuple[tuple[int, str], ...] = ()
    imports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pins: tuple[Pin, ...] = ()
    started: Started = NOT_SAID

    @property
    def is_notebook(self) -> bool:
        """Whether it is a notebook, which new processes cannot import."""
        return self.filename.endswith(".ipynb")

    @property
    def meant_for_tpus(self) -> bool:
        """Whether its name says so (``train_tpu.py``), or the settings of its project."""
        return self.started.on_tpus or called_for_tpus(self.filename)


class Part:
    """What is known of one file of a program by itself.

    Args:
        unit: The file.
        device: The member of the family of devices that it is for, if the user says so.
        linked: Whether it is one of several, which are likely to be asked for again as they are.

    Raises:
        libcst.ParserSyntaxError: Its text is not Python.
    """

    def __init__(self, unit: Unit, device: str = "", *, linked: bool = False) -> None:
        self.unit = unit
        self.tree = Tree(unit.text, parsed(unit.filename, unit.text) if linked else None)
        self.names = Names(self.tree)
        self.members = found_members(
            self.tree, self.names, device, meant_for_tpus=unit.meant_for_tpus
        )
        self._device = device
        if self.members and self.copied:
            self.members = frozenset()
        self.is_xla = bool(self.members)
        self._used = used_frameworks(self.tree, self.names)
        self.trainers = own_trainers(self.tree, self.names)
        self.imports: list[Part] = []
        #: The same by the modules that it names.
        self.links: Mapping[str, Part] = {}

    @functools.cached_property
    def copied(self) -> bool:
        """Whether its project is started on GPUs, and it has of XLA devices what was copied."""
        return self.unit.started.on_gpus and not self._device and only_copied(self.tree)

    @functools.cached_property
    def frameworks(self) -> frozenset[str]:
        """Which frameworks it trains with, also through a class of a file that it imports.

        To be asked once the parts of a program know what they import.
        """
        if not self.imports:
            return self._used
        imported = {name.rpartition(".")[2] for name in self.names.imported()}
        return self._used.union(
            framework
            for part in self.below
            for name, framework in part.derived.items()
            if name in imported
        )

    @functools.cached_property
    def by_settings(self) -> bool:
        """Whether the settings of its project alone say that it is for XLA devices."""
        if not self.is_xla or not self.unit.started.on_tpus:
            return False
        named = called_for_tpus(self.unit.filename)
        return not found_members(self.tree, self.names, self._device, meant_for_tpus=named)

    @functools.cached_property
    def derived(self) -> Mapping[str, str]:
        """Its classes that are built on a framework's."""
        return derived_frameworks(self.tree, self.names)

    @functools.cached_property
    def steppers(self) -> frozenset[str]:
        """Its classes whose methods call torch_xla, by their names."""
        found = (self.tree.function_of(call) for call in self.tree.calls if self._is_of_xla(call))
        owners = (function.owner for function in found if function is not None)
        return frozenset(owner.name for owner in owners if owner is not None)

    def _is_of_xla(self, call: cst.Call) -> bool:
        return (self.names.resolve(call.func) or "").partition(".")[0] == "torch_xla"

    @functools.cached_property
    def built_on(self) -> frozenset[str]:
        """The names of imported classes that its own are built on."""
        imported = {name.rpartition(".")[2] for name in self.names.imported()}
        classes = self.tree.classes.values()
        return frozenset(last_name(base) for cls in classes for base in cls.bases) & imported

    @property
    def names_xla(self) -> bool:
        """Whether it names an XLA device, for whoever imports torch_xla: ``x.to("xla")``."""
        return any(names_xla(literal) for literal in self.tree.strings)

    @functools.cached_property
    def only_asks(self) -> bool:
        """Whether it asks for torch_xla, and nothing says that it is run on XLA devices."""
        return only_asks(self.tree, self.names)

    @functools.cached_property
    def spmd(self) -> bool:
        """Whether it runs as one program over all devices."""
        return spmd_is_on(self.tree, self.names, self.unit.text)

    @functools.cached_property
    def uses(self) -> frozenset[Part]:
        """Those of the files below whose code it may run.

        Of a package it takes what it names: ``from . import __version__`` runs nothing of the
        modules whose names the package's ``__init__`` hands on besides.
        """
        waiting: list[tuple[Part, frozenset[str] | None]] = [(self, None)]
        found: set[tuple[Part, frozenset[str] | None]] = set()
        while waiting:
            item = waiting.pop()
            if item not in found:
                found.add(item)
                waiting += item[0]._further(item[1])  # noqa: SLF001
        return frozenset(part for part, _ in found if part is not self)

    def _further(
        self, wanted: frozenset[str] | None
    ) -> Iterator[tuple[Part, frozenset[str] | None]]:
        """What it imports for the names that are taken of it (None: for all of it)."""
        taken = {module: self._taken(module) for module in self.links}
        if wanted is not None:
            handed_on = frozenset().union(*(names for names in taken.values() if names is not None))
            if any(not name.startswith("__") for name in wanted - handed_on):
                wanted = None  # it is made here
        for module, part in self.links.items():
            names = taken[module]
            if wanted is not None and names is not None:
                names &= wanted
                if not names:
                    continue
            yield part, names if part.is_package else None

    @property
    def says_how_it_is_used(self) -> bool:
        """Whether it runs what it calls as it is written: no test, nor cells that are run anew."""
        return not self.unit.is_notebook and not in_folder_of_tests(self.unit.filename)

    @property
    def is_package(self) -> bool:
        """Whether it is the ``__init__`` of a package."""
        return self.unit.filename.replace("\\", "/").endswith("/__init__.py")

    def _taken(self, module: str) -> frozenset[str] | None:
        """What it takes of a module by name; None for all of it (``import utils``, a star)."""
        prefix = module if module.endswith(".") else f"{module}."
        named = [
            name.removeprefix(prefix).partition(".")[0]
            for name in self.names.imported()
            if name.startswith(prefix) and name.removeprefix(prefix).partition(".")[0]
        ]
        modules = {name for name in named if f"{prefix}{name}" in self.links}
        return frozenset(named) - modules if named else None

    @functools.cached_property
    def below(self) -> frozenset[Part]:
        """The files that it imports, also in turn."""
        found: set[Part] = set()
        waiting = list(self.imports)
        while waiting:
            part = waiting.pop()
            if part not in found:
                found.add(part)
                waiting.extend(part.imports)
        return frozenset(found - {self})


class Program:
    """The model of files that import each other.

    Args:
        parts: The files.
        library: What names of libraries do; by default what comes with xladoctor.
    """

    def __init__(self, parts: Sequence[Part], library: Library | None = None) -> None:
        by_name = {part.unit.filename: part for part in parts}
        self.parts = tuple(parts)
        for part in self.parts:
            linked = {
                module: by_name[name]
                for module, name in part.unit.imports.items()
                if name in by_name and by_name[name] is not part
            }
            part.imports = list(dict.fromkeys(linked.values()))
            part.links = linked
            part.names.link({module: other.names for module, other in linked.items()})
        self.tree: Tree = self.parts[0].tree
        names: Names | LinkedNames = self.parts[0].names
        if len(self.parts) > 1:
            self.tree = Forest([part.tree for part in _imported_first(self.parts)])
            names = LinkedNames(self.tree, [part.names for part in self.parts])
        self.names = names
        self._library = library or builtin()
        self._unpacked = Unpacked(self.tree, names)
        #: The views of its files, made by :meth:`FileModel.view`.
        self.views: dict[object, FileModel] = {}
        self._kept: dict[Class, Kept] = {}
        if self.has_devices:
            self._decide()

    def _decide(self) -> None:
        """Take what the program's own constants decide against for what never runs."""
        aside = {part.tree.module for part in self.parts if not part.says_how_it_is_used}
        constants = Constants(self.tree, self.names, Uses(self.tree, self.names, aside))
        decided: dict[cst.CSTNode, bool] = {}
        for node in self.tree.nodes(cst.If):
            known = constants.truth(node.test)
            if known is not None:
                decided[node.test] = known
        for tree in {self.tree, *(part.tree for part in self.parts)} if decided else ():
            tree.decide(decided)

    @functools.cached_property
    def has_devices(self) -> bool:
        """Whether any of its files is for XLA devices, or names one; else nothing runs there."""
        return any(part.is_xla or (part.names_xla and not part.copied) for part in self.parts)

    @functools.cached_property
    def flow(self) -> Flow:
        """What its expressions evaluate to. It costs more than all else: found when it is asked."""
        xla, beside = frozenset(self._for_xla()), frozenset(self._beside())
        return Flow(self.tree, self.names, xla, self._library, beside)

    @functools.cached_property
    def patched(self) -> frozenset[str]:
        """The names of libraries that its files set to something of their own."""
        return patched(self.tree, self.names)

    @functools.cached_property
    def regions(self) -> Regions:
        """Which loops run what, and who gets through."""
        return Regions(self.flow)

    @functools.cached_property
    def frequency(self) -> Frequency:
        """How often its loops run."""
        return Frequency(self.flow, self.regions)

    def follow(self) -> None:
        """Find now what is found when it is asked otherwise: it may be too much, or too deep."""
        _ = self.flow, self.regions, self.frequency

    def complete(self) -> None:
        """Let the nodes of all files hold what LibCST's hold: white space and punctuation too."""
        for part in self.parts:
            part.tree.complete()

    def close(self) -> None:
        """Let go of all that is known: nothing may be asked any more.

        Files, functions, classes and values know each other in circles. Those of hundreds of files
        would wait for Python's collector of circles, which looks through all of them again and
        again; once nothing holds them together, all goes as soon as nobody needs it.
        """
        found = [vars(self)[name] for name in ("regions", "flow") if name in vars(self)]
        known: list[object] = [*self.views.values(), *found, self.tree, self]
        for part in self.parts:
            for owner in part.tree.classes.values():
                owner.methods.clear()
            part.tree.top.bindings.clear()
            known += [part.tree, part.names, part]
        for held in known:
            vars(held).clear()

    def above(self, part: Part) -> Sequence[Part]:
        """The files that import a file, also in turn."""
        return [other for other in self.parts if part in other.below and other is not part]

    def linked(self, part: Part) -> Sequence[Part]:
        """The files that a file imports or that import it, also in turn."""
        above = self.above(part)
        return [other for other in self.parts if other in part.below or other in above]

    def frameworks(self, part: Part) -> frozenset[str]:
        """Which frameworks a file uses: a Trainer of the program may be its own from the start."""
        named = [
            [cls for cls in other.tree.classes.values() if cls.name == name]
            for name in part.trainers
            for other in part.below
        ]
        made = [cls for classes in named for cls in classes]
        own = {cls.name for cls in made} >= part.trainers and not any(
            base.partition(".")[0] in {"", *TRAINER_PACKAGES}
            for cls in made
            for base in self.flow.hooks.bases(cls)
        )
        return part.frameworks - {"transformers"} if own and part.trainers else part.frameworks

    @functools.cached_property
    def sites(self) -> dict[cst.Call, CallSite]:
        """All calls of all files, also those that never run."""
        calls = self.tree.by_type.get(cst.Call, ())
        return {node: self._site(node) for node in calls if isinstance(node, cst.Call)}

    def _site(self, node: cst.Call) -> CallSite:
        func = node.func
        name = self.names.resolve(func)
        return CallSite(
            node,
            name,
            func.attr.value if isinstance(func, cst.Attribute) else None,
            func.value if isinstance(func, cst.Attribute) else None,
            self.tree.function_of(node),
            self._target,
            self._unpacked.arguments(node),
            self.names.completed(func) if name in LOADERS else None,
        )

    def _target(self, node: cst.Call) -> Function | Class | None:
        return self.flow.target(node)

    def kept(self, owner: Class) -> Kept:
        """What the methods of a class keep in the attributes of ``self``."""
        if owner not in self._kept:
            self._kept[owner] = kept_by(owner)
        return self._kept[owner]

    def kept_with(self, node: cst.Attribute) -> Kept:
        """What is kept by the class in whose methods ``self.x`` stands; nothing of another's."""
        owner = self.class_around(node) if is_name(node.value, "self") else None
        return NOTHING_KEPT if owner is None else self.kept(owner)

    def class_around(self, node: cst.CSTNode) -> Class | None:
        """The class in whose methods, or in functions in them, a node stands."""
        function = self.tree.function_of(node)
        owners = (one.owner for one in (() if function is None else function.around))
        return next((owner for owner in owners if owner is not None), None)

    def _beside(self) -> Iterator[cst.Module]:
        """The modules that neither are imported for XLA devices nor import what is: tests."""
        xla = {part for part in self.parts if part.is_xla}
        used = xla.union(*(part.below for part in xla))
        return (
            part.tree.module
            for part in self.parts
            if part not in used and part.below.isdisjoint(xla)
        )

    def _for_xla(self) -> set[cst.Module]:
        """The modules whose names are believed: those for XLA, and what a framework runs on it.

        A file for XLA that trains with a framework runs what it imports of that framework there.
        So does a class that calls torch_xla what classes of other files add to it.
        """
        found = {part.tree.module for part in self.parts if part.is_xla}
        for part in self.parts:
            bases = (one.steppers for one in part.below if part.built_on and one.is_xla)
            if not part.built_on.isdisjoint(name for names in bases for name in names):
                found.add(part.tree.module)
        for part in self.parts:
            if part.is_xla:
                found.update(
                    other.tree.module
                    for other in part.uses
                    if not part.frameworks.isdisjoint(other.frameworks)
                )
        return found


def _imported_first(parts: Sequence[Part]) -> list[Part]:
    """Files in an order in which the imported ones come first, as far as circles allow."""
    return sorted(parts, key=lambda part: len(part.below))
