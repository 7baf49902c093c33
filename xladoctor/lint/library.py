"""What names of libraries do: a typed reader of ``rules/tables/library.toml``.

A project adds its own names in the same form (``[tool.xladoctor.lint] library = "names.toml"``).
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import functools
import sys
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue
from xladoctor.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Effect(enum.Enum):
    """What happens at a place of a program, in the words of the runtime."""

    READ = "read"
    GRAPH_END = "graph end"
    COLLECTIVE = "collective"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer step"
    RANDOM = "random"
    SAVE = "save"
    LAUNCH = "launch"


class Equal(enum.Enum):
    """What is the same on every core after a call."""

    RESULT = "result"
    WEIGHTS = "weights"
    INHERITED = "inherited weights"  # of what is made before the cores start
    NUMBERS = "numbers"


class Returns(enum.Enum):
    """What a call gives back."""

    DEVICE = "device"
    CORE_NUMBER = "core number"
    IS_MASTER = "is master"
    FACT = "fact"
    NUMBER = "number"
    ARRAY = "array"
    NEW_TENSOR = "new tensor"
    BESIDE = "tensor beside its arguments"
    PARAMETER = "parameter"
    LOADER = "loader"
    DEVICE_LOADER = "device loader"
    PARALLEL_LOADER = "parallel loader"
    SAMPLER = "sampler"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    MODEL = "model"
    MODULES = "model of modules"
    LOSS = "loss"
    OBJECT = "object"
    FIRST = "first argument"
    PLACED = "first argument on the device"
    ITERATED = "what it iterates"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """What is known of a function, class or method.

    Attributes:
        dotted: Its full name; of a method, the class's and its own.
        effects: What a call of it does.
        pending: The collective waits in the graph until that is run.
        empty: The cores meet without a result: each may come at a line of its own.
        only_if: Position and name of an argument that must be true for ``Effect.GRAPH_END``.
        equal: What is the same on every core afterwards.
        core: Position and name of an argument that makes random numbers each core's own.
        returns: What a call of it gives back.
        checks: An argument: unless it is False, the call looks at the values of what it is given.
        typed: A method's name says nothing where the class of its object is not known.
        optional: It may be missing from an installed package.
        known: How this is known.
    """

    dotted: str
    effects: frozenset[Effect] = frozenset()
    pending: bool = False
    empty: bool = False
    only_if: tuple[int, str] | None = None
    equal: Equal | None = None
    core: tuple[int, str] | None = None
    returns: Returns | None = None
    checks: str | None = None
    typed: bool = False
    optional: bool = False
    known: str = ""

    @property
    def is_pattern(self) -> bool:
        """It stands for all names that match."""
        return "*" in self.dotted


_KEYS = frozenset(
    {"module", "names", "effects", "pending", "empty", "only_if", "equal", "core", "returns",
     "checks", "typed", "optional", "known"}
)  # fmt: skip


class Library:
    """Names of libraries.

    Args:
        names: Those it knows; a later one replaces an earlier one of the same name.
    """

    def __init__(self, names: Iterable[Name]) -> None:
        self.names: Mapping[str, Name] = {name.dotted: name for name in names}
        self._patterns: dict[str, list[tuple[str, Returns]]] = {}
        for name in self.names.values():
            if name.is_pattern and name.returns is not None:
                module, _, pattern = name.dotted.rpartition(".")
                self._patterns.setdefault(module, []).append((pattern, name.returns))

    def get(self, dotted: str | None) -> Name | None:
        """What is known of a name."""
        return self.names.get(dotted) if dotted is not None else None

    @functools.cache  # noqa: B019 (there is one library, or one for each project)
    def returns(self, dotted: str) -> Returns | None:
        """What a call of a name gives back, None if that is not known."""
        name = self.names.get(dotted)
        if name is not None and name.returns is not None:
            return name.returns
        module, _, last = dotted.rpartition(".")
        while module:
            for pattern, returned in self._patterns.get(module, ()):
                if fnmatch.fnmatchcase(last, pattern):
                    return returned
            module = module.rpartition(".")[0]
        return None

    @functools.cache  # noqa: B019
    def returning(self, what: Returns) -> frozenset[str]:
        """The names, without patterns, of all that give back something."""
        names = (name for name in self.names.values() if name.returns is what)
        return frozenset(name.dotted for name in names if not name.is_pattern)

    @functools.cache  # noqa: B019
    def doing(self, effect: Effect) -> frozenset[str]:
        """The names of all that have an effect."""
        return frozenset(name.dotted for name in self.names.values() if effect in name.effects)

    @functools.cache  # noqa: B019
    def methods(self, effect: Effect) -> frozenset[str]:
        """The names of the methods that have an effect, without their classes."""
        told = (name for name in self.doing(effect) if not self.names[name].typed)
        parts = (dotted.split(".") for dotted in told)
        return frozenset(part[-1] for part in parts if part[-2][:1].isupper())


#: What the table says of whole packages.
_PACKAGES = frozenset({"answered", "installed"})


@functools.cache
def _table() -> Mapping[str, Any]:
    return catalogue.table("library")


@functools.cache
def builtin() -> Library:
    """The library that comes with xladoctor."""
    rows = {key: value for key, value in _table().items() if key not in _PACKAGES}
    return Library(read(rows, "library.toml"))


@functools.cache
def answered() -> frozenset[str]:
    """Packages whose names are answered by tables and rules: their source is never modelled."""
    return frozenset(_table()["answered"])


@functools.cache
def installed() -> Mapping[str, str]:
    """Packages that the rules know as they are installed, to a file that tells a copy of one."""
    marks: Mapping[str, str] = _table()["installed"]
    return marks


@functools.lru_cache(maxsize=16)
def extended(text: str, filename: str = "the library") -> Library:
    """The library with the names of a project beside it.

    Args:
        text: TOML of the form that ``rules/tables/library.toml`` describes; "" for none.
        filename: What to call it in an error.

    Raises:
        UsageError: It is not of that form.
    """
    if not text:
        return builtin()
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{filename} is not TOML: {error}") from error
    return Library([*builtin().names.values(), *read(table, filename)])


def read(table: Mapping[str, Any], filename: str) -> list[Name]:
    """The names of a table.

    Args:
        table: Parsed TOML of the form that ``rules/tables/library.toml`` describes.
        filename: What to call it in an error.

    Raises:
        UsageError: It is not of that form.
    """
    found: list[Name] = []
    rows = table.get("call", [])
    unknown = sorted(set(table) - {"call"})
    if unknown or not isinstance(rows, list):
        raise UsageError(f"{filename}: only [[call]] rows are known, not {', '.join(unknown)}")
    for number, row in enumerate(rows, 1):
        where = f"{filename}, row {number}"
        modules = row.get("module") if isinstance(row, dict) else None
        modules = modules if isinstance(modules, list) else [modules]
        if not modules or not all(_is_text(module) for module in modules):
            raise UsageError(f'{where}: give module = "..."')
        found.extend(name for module in modules for name in _names(row, module, where))
    return found


def _names(row: Mapping[str, Any], module: str, where: str) -> Iterable[Name]:
    names = row.get("names")
    if not isinstance(names, list) or not names or not all(_is_text(name) for name in names):
        raise UsageError(f"{where}: names is a list of names")
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]} (known: {', '.join(sorted(_KEYS))})")
    for key in ("pending", "empty", "typed", "optional"):
        if not isinstance(row.get(key, False), bool):
            raise UsageError(f"{where}: {key} is true or false")
    given = row.get("effects", [])
    words = [effect.value for effect in Effect]
    if not isinstance(given, list) or not set(given) <= set(words):
        raise UsageError(f"{where}: effects is a list of {', '.join(words)}")
    equal = row.get("equal")
    if equal is not None and equal not in [item.value for item in Equal]:
        raise UsageError(f"{where}: equal is one of {', '.join(item.value for item in Equal)}")
    checks = row.get("checks")
    if checks is not None and not _is_text(checks):
        raise UsageError(f"{where}: checks is the name of an argument")
    returns = row.get("returns")
    if returns is not None and returns not in [item.value for item in Returns]:
        raise UsageError(f"{where}: returns is one of {', '.join(item.value for item in Returns)}")
    if any("*" in name for name in names) and set(row) & {"effects", "equal"}:
        raise UsageError(f"{where}: names with * say only what they return")
    for name in names:
        yield Name(
            f"{module}.{name}",
            effects=frozenset(Effect(effect) for effect in given),
            pending=row.get("pending", False),
            empty=row.get("empty", False),
            only_if=_argument(row, "only_if", where),
            equal=Equal(equal) if equal is not None else None,
            core=_argument(row, "core", where),
            returns=Returns(returns) if returns is not None else None,
            checks=checks,
            typed=row.get("typed", False),
            optional=row.get("optional", False),
            known=str(row.get("known", "")),
        )


def _argument(row: Mapping[str, Any], key: str, where: str) -> tuple[int, str] | None:
    given = row.get(key)
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2:
        raise UsageError(f'{where}: {key} is a position and a name, such as [1, "barrier"]')
    index, name = given
    if not isinstance(index, int) or isinstance(index, bool) or not _is_text(name):
        raise UsageError(f'{where}: {key} is a position and a name, such as [1, "barrier"]')
    return index, name


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
