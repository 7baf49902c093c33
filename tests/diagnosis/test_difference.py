"""How two graphs are compared; the graphs are invented, in the form of XLA's dumps."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from xladoctor.diagnosis.difference import difference
from xladoctor.readings.hlo import Graph

if TYPE_CHECKING:
    from pathlib import Path


def graph(folder: Path, name: str, *inputs: str) -> Graph:
    """A graph that adds 1 to each of its inputs."""
    lines = [f"  %p{n} = {shape} parameter({n})" for n, shape in enumerate(inputs)]
    lines += [f"  %a{n} = {shape} negate({shape} %p{n})" for n, shape in enumerate(inputs)]
    names = ", ".join(f"%a{n}" for n in range(len(inputs)))
    shapes = ", ".join(inputs)
    lines.append(f"  ROOT %t = ({shapes}) tuple({names})")
    text = "\n".join(["HloModule m", "", "ENTRY %main () -> () {", *lines, "}", ""])
    (folder / f"{name}.txt.z").write_bytes(zlib.compress(text.encode()))
    return Graph(folder / name)


def compared(folder: Path, old: list[str], new: list[str]) -> tuple[list, list, list]:
    """Shapes of the inputs that changed, are gone, are new."""
    found = difference(graph(folder, "old", *old), graph(folder, "new", *new))
    changed = [(one.shape, other.shape) for one, other in found.changed_inputs()]
    gone = [one.shape for one in found.gone if one.opcode == "parameter"]
    added = [one.shape for one in found.added if one.opcode == "parameter"]
    return changed, gone, added


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # The first of many inputs is new: all behind it have moved, none has changed.
        (["f32[8,4]", "s64[512]"], ["s64[]", "f32[8,4]", "s64[512]"], ([], [], ["s64[]"])),
        (["s64[512]", "f32[8,4]"], ["s64[]", "f32[8,4]"], ([], ["s64[512]"], ["s64[]"])),
        # Another batch, another length, another type.
        (["f32[8,4]"], ["f32[3,4]"], ([("f32[8,4]", "f32[3,4]")], [], [])),
        (["s64[4,9]"], ["s64[6,12]"], ([("s64[4,9]", "s64[6,12]")], [], [])),
        (["f32[4,6]"], ["f16[4,6]"], ([("f32[4,6]", "f16[4,6]")], [], [])),
        (["f32[6,3,32,32]"], ["f32[6,3,48,48]"], ([("f32[6,3,32,32]", "f32[6,3,48,48]")], [], [])),
        # Not one tensor in two sizes.
        (["f32[32,1,128,128]"], ["f32[32,64,64,64]"],
         ([], ["f32[32,1,128,128]"], ["f32[32,64,64,64]"])),
    ],
)  # fmt: skip
def test_inputs_are_paired_by_what_they_are(tmp_path: Path, old, new, expected) -> None:
    assert compared(tmp_path, old, new) == expected
