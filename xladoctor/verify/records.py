"""What one way of a program has recorded; see ``capture/verify/steps.py``, which writes it."""

from __future__ import annotations

import array
import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.findings import Location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What a step has sketches of.
KINDS = ("gradient", "parameter", "buffer", "state")
#: Numbers of one sketch, and where its parts begin: norm, largest, no numbers, sums, samples.
SIZE, NORM, LARGEST, BAD, SUMS, SAMPLES = 23, 0, 1, 2, 3, 7
#: In the place of how many elements are no number: there is no tensor.
MISSING = -1.0
#: Bytes of one row: a step of a model with some ten thousand parameters.
_LONGEST = 256 * 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of one core.

    Attributes:
        number: From 1, over all optimizers of the core.
        optimizer: Which of them, in the order of their first steps.
        place: Where the program stepped it.
        backward: Where its last backward pass was.
        losses: What ``backward()`` was called on since the step before.
        names: Kind to the names of its tensors.
        sketches: Kind to the sketches of its tensors; a kind that could not be read is not there.
        dtypes: Of the parameters.
        narrow: The narrowest type that a module gave back, if it has less than 32 bits.
        addends: The most numbers that a module gave back: gradients are sums over no more.
    """

    number: int
    optimizer: int
    place: Location | None
    backward: Location | None
    losses: tuple[float, ...]
    names: dict[str, tuple[str, ...]]
    sketches: dict[str, tuple[array.array[float], ...]]
    dtypes: tuple[str, ...]
    narrow: str | None
    addends: int


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One way of the program.

    Attributes:
        way: Its name.
        cores: Core to its steps, in order.
        cannot: Why it could not be run, if the program's part in it has said so.
        carried: What was made equal to the cores' way ("lr of the optimizer").
        errors: What could not be recorded, and why.
        complete: Whether it has made all the steps that were asked for.
    """

    way: str
    cores: dict[int, tuple[Step, ...]]
    cannot: str | None = None
    carried: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    complete: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the first core."""
        return self.cores[min(self.cores)] if self.cores else ()


def read(folder: Path, way: str) -> Record:
    """Read what a way has left; what is cut or malformed is left out."""
    cores: dict[int, tuple[Step, ...]] = {}
    cannot: str | None = None
    carried: list[str] = []
    errors: list[str] = []
    complete = False
    for path in sorted(folder.glob("core-*.jsonl")):
        steps = []
        for row in _rows(path):
            if row.get("e") == "cannot":
                cannot = cannot or str(row.get("why"))
            elif row.get("e") in ("enough", "end"):
                complete = complete or row["e"] == "enough"
                carried += [str(one) for one in row.get("carried", ())]
                errors += [str(one) for one in row.get("errors", ())]
            elif row.get("e") == "step":
                steps.append(_step(row))
        number = path.stem.partition("-")[2]
        if steps and number.isdecimal():
            cores[int(number)] = tuple(steps)
    return Record(
        way,
        dict(sorted(cores.items())),
        cannot,
        tuple(dict.fromkeys(carried)),
        tuple(dict.fromkeys(errors)),
        complete,
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in files.lines(path, _LONGEST):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _step(row: dict[str, Any]) -> Step:
    return Step(
        number=int(row["number"]),
        optimizer=int(row["optimizer"]),
        place=_place(row["place"]),
        backward=_place(row["backward"]),
        losses=tuple(float(loss) for loss in row["losses"]),
        names={kind: tuple(names) for kind, names in row["names"].items()},
        sketches={kind: _sketches(row[kind]) for kind in KINDS if kind in row},
        dtypes=tuple(row["dtypes"]),
        narrow=row["narrow"],
        addends=row["addends"],
    )


def _sketches(text: str) -> tuple[array.array[float], ...]:
    numbers = array.array("d")
    numbers.frombytes(base64.b64decode(text))
    return tuple(numbers[at : at + SIZE] for at in range(0, len(numbers), SIZE))


def _place(place: Any) -> Location | None:
    if not place:
        return None
    return Location(str(place[0]), int(place[1]), function=str(place[2]) or None)
