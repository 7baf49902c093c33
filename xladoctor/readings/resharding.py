"""Tensors that a divided graph gathers on every device and cuts up again at once.

That is what XLA does when it finds no way from one sharding to another; it says so in its log
("Involuntary full rematerialization"), and the graph shows it: an all-gather whose only readers are
dynamic slices (seen in the modules of torch_xla 2.9.0 after optimization).
"""

from __future__ import annotations

import collections
import dataclasses
import io
import re

_INSTRUCTION = re.compile(r"(?:ROOT )?%([\w.\-]+) = .*? ?\b([a-z][\w\-]*)\(([^)]*)\)(.*)")
_CALLS = re.compile(r"\bcalls=%([\w.\-]+)")
_OPERAND = re.compile(r"%([\w.\-]+)")
#: What passes a value on as it is.
_PASSES = frozenset({"copy", "bitcast", "convert", "all-gather-done", "reshape", "transpose"})
#: Instructions that are followed from one all-gather.
_DEEPEST = 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    opcode: str
    operands: tuple[str, ...]
    calls: str


def gathered_to_be_cut(module: str) -> frozenset[str]:
    """Names of the all-gathers of a module (HLO text) of whose results only slices are used."""
    return _Module(module).cut if "all-gather" in module else frozenset()


class _Module:
    """Who reads what in a module.

    Args:
        text: As XLA writes it, without comments.
    """

    def __init__(self, text: str) -> None:
        self._users: dict[tuple[str, str], list[_Instruction]] = collections.defaultdict(list)
        self._parameters: dict[tuple[str, int], str] = {}
        self._gathers: list[tuple[str, str]] = []
        computation = ""
        for line in io.StringIO(text):
            if line[:1] in "%E" and line.rstrip().endswith("{"):
                computation = line.removeprefix("ENTRY ").split(maxsplit=1)[0].lstrip("%")
            elif found := _INSTRUCTION.match(line.strip()):
                self._take(computation, *found.groups())

    def _take(self, computation: str, name: str, opcode: str, operands: str, rest: str) -> None:
        if opcode == "parameter":
            if operands.strip().isdecimal():
                self._parameters[computation, int(operands)] = name
            return
        called = _CALLS.search(rest)
        read = tuple(_OPERAND.findall(operands))
        one = _Instruction(name, opcode, read, called[1] if called else "")
        for operand in set(read):
            self._users[computation, operand].append(one)
        if opcode in ("all-gather", "all-gather-start"):
            self._gathers.append((computation, name))

    @property
    def cut(self) -> frozenset[str]:
        """Names of the all-gathers that only slices are taken of."""
        return frozenset(name for at, name in self._gathers if self._is_cut(at, name, 0))

    def _is_cut(self, at: str, name: str, depth: int) -> bool:
        users = self._users.get((at, name), [])
        return (
            bool(users)
            and depth < _DEEPEST
            and all(self._cuts(at, name, user, depth) for user in users)
        )

    def _cuts(self, at: str, name: str, user: _Instruction, depth: int) -> bool:
        if user.opcode == "dynamic-slice":
            return user.operands[0] == name
        if user.opcode in _PASSES:
            return self._is_cut(at, user.name, depth + 1)
        if user.opcode != "fusion":
            return False
        inner = [
            self._parameters.get((user.calls, number))
            for number, operand in enumerate(user.operands)
            if operand == name
        ]
        return all(one is not None and self._is_cut(user.calls, one, depth + 1) for one in inner)
