"""XLA's complaint in a log that a tensor is gathered whole because two shardings do not fit.

Two wordings are known: that of XLA of 2024 ("The compiler was not able to go from sharding ...
without doing a full rematerialization of the tensor for HLO operation: ...") and that of torch_xla
2.9 ("The compiler cannot go from sharding ... efficiently for HLO operation ...", seen by running).
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = "Involuntary full rematerialization"
_COMPLAINT = re.compile(
    r"go from sharding (?P<had>\{.{1,500}?\}) to (?P<wanted>\{.{1,500}?\}) "
    r"(?:efficiently|without doing a full rematerialization of the tensor) for HLO operation:? "
    r"%?[\w.\-]{1,200} = (?P<shape>\w{1,20}\[[\d,]{0,200}\])\S{0,100} (?P<opcode>[\w\-]{1,60})\("
)
_OPERATION = re.compile(r'op_type="(?P<name>[\w:.]{1,200})"')
_PLACE = re.compile(r'source_file="(?P<file>[^"]{1,500})" source_line=(?P<row>\d{1,9})')
#: A log of weeks has the same complaints again and again; more are not told apart.
_MOST = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Regathered:
    """A tensor that XLA gathers on every device to shard it otherwise.

    Attributes:
        shape: Of what each device has of it before ("f32[2,16,16]").
        had, wanted: Its shardings, as XLA writes them.
        operation: torch's name of what made it ("aten::tanh"), else XLA's opcode.
        file, row: Where that was traced, if the graph was traced with its lines.
    """

    shape: str
    had: str
    wanted: str
    operation: str
    file: str | None = None
    row: int | None = None


class ComplaintReader:
    """Reads a text line by line and keeps the complaints, each with how often it came."""

    def __init__(self) -> None:
        self._found: dict[Regathered, int] = {}

    def feed(self, line: str) -> None:
        """Take one line."""
        if _MARK not in line:
            return
        told = _COMPLAINT.search(line)
        if told is None:
            return
        operation, place = _OPERATION.search(line), _PLACE.search(line)
        one = Regathered(
            told["shape"],
            told["had"],
            told["wanted"],
            operation["name"].replace("__", "::", 1) if operation else told["opcode"],
            place["file"] if place else None,
            int(place["row"]) if place else None,
        )
        if one in self._found or len(self._found) < _MOST:
            self._found[one] = self._found.get(one, 0) + 1

    def finish(self) -> Mapping[Regathered, int]:
        """All of them."""
        return self._found
