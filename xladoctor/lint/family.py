"""The family of XLA devices: which member a program is for, and what holds there.

Everything is data of ``rules/tables/devices.toml``: torch_xla, TorchTPU, TorchNeuron and torchax.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: The member whose words the rules speak, and for which all of them hold.
TORCH_XLA = "torch_xla"


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceMember:
    """A member of the family; see ``devices.toml`` for what the columns mean."""

    name: str
    title: str
    imports: tuple[str, ...]
    names: tuple[str, ...]
    devices: tuple[str, ...]
    backends: tuple[str, ...]
    compilers: tuple[str, ...]
    waits: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def speaks_of(self, dotted: str) -> bool:
        """Whether a full name is one that only programs for it use."""
        return any(_covers(pattern, dotted) for pattern in self.names)


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """What a rule is for a member other than torch_xla: message and suggestion, "" for its own."""

    says: str = ""
    instead: str = ""
    fix: bool = False
    known: str = ""


@functools.cache
def members() -> Mapping[str, DeviceMember]:
    """All members by their names, torch_xla first."""
    return {row["name"]: _member(row) for row in catalogue.table("devices")["member"]}


def _member(row: Mapping[str, Any]) -> DeviceMember:
    lists = ("imports", "names", "devices", "backends", "compilers", "waits")
    return DeviceMember(
        name=row["name"],
        title=row["title"],
        words=tuple((ours, theirs) for ours, theirs in row["words"]),
        facts={key: row[key] for key in row if key not in {*lists, "words", "run_words"}},
        **{key: tuple(row[key]) for key in lists},
    )


@functools.cache
def _holdings() -> Mapping[str, Mapping[str, Holding]]:
    found: dict[str, dict[str, Holding]] = {}
    for row in catalogue.table("devices")["holds"]:
        what = {key: row[key] for key in ("says", "instead", "fix", "known") if key in row}
        for code in row["codes"]:
            found.setdefault(code, {}).update(dict.fromkeys(row["members"], Holding(**what)))
    return found


@functools.cache
def _own() -> Mapping[str, frozenset[str]]:
    rows = catalogue.table("devices")["own"]
    return {code: frozenset(row["members"]) for row in rows for code in row["codes"]}


def holding(code: str, member: str) -> Holding | None:
    """What a rule is for a member other than torch_xla; None if it does not hold there."""
    if member in _own().get(code, ()):
        return Holding(fix=True)
    return _holdings().get(code, {}).get(member)


def is_own(code: str) -> bool:
    """Whether a rule is one of other members than torch_xla alone."""
    return code in _own()


def holds(code: str, found: Collection[str]) -> bool:
    """Whether a rule of ours holds for any of the members that a file is for."""
    if TORCH_XLA in found and code not in _own():
        return True
    return any(holding(code, member) is not None for member in found)


def in_words_of(member: str, text: str) -> str:
    """What torch_xla's rules say, in the words of another member."""
    for ours, theirs in members()[member].words:
        text = text.replace(ours, theirs)
    return text


@functools.cache
def _by_device() -> Mapping[str, str]:
    return {kind: each.name for each in members().values() for kind in each.devices}


def of_device(text: str) -> str | None:
    """The member that a device string names ("tpu:0"), None if it names no XLA device."""
    return _by_device().get(text.partition(":")[0])


def of_backend(text: str) -> str | None:
    """The member whose backend of torch.distributed a string names ("cpu:gloo,tpu:tpu_dist")."""
    given = {part.rpartition(":")[2] for part in text.split(",")}
    return next((each.name for each in members().values() if given & set(each.backends)), None)


def of_compiler(text: str) -> str | None:
    """The member whose backend of torch.compile a string names."""
    return next((each.name for each in members().values() if text in each.compilers), None)


def of_imports(imported: Collection[str]) -> Sequence[str]:
    """The members that imported modules belong to."""
    roots = {name.partition(".")[0] for name in imported}
    return [
        each.name
        for each in members().values()
        if roots & set(each.imports) or any(each.speaks_of(name) for name in imported)
    ]


@functools.cache
def namespaces() -> frozenset[str]:
    """What stands after ``torch.`` in names that only programs for one member use."""
    patterns = (name for each in members().values() for name in each.names)
    return frozenset(name.split(".")[1] for name in patterns)


@functools.cache
def waits() -> frozenset[str]:
    """Calls after which the host has waited for the device."""
    return frozenset(name for each in members().values() for name in each.waits)


def _covers(pattern: str, dotted: str) -> bool:
    if pattern.endswith(".*"):
        return dotted == pattern[:-2] or dotted.startswith(pattern[:-1])
    return dotted == pattern
