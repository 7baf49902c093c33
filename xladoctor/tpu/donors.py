"""Buffers that a graph may take from its inputs: jaxlib's way to StableHLO loses them.

A step gives the compiler the buffers of the weights that it replaces (``buffer_donor`` of the
graph). jaxlib 0.7.1 has no other way to the compiler than by StableHLO, and its conversion keeps
``input_output_alias`` alone: without more, a step would seem to need its weights twice. An
attribute of the entry's argument says the same, and the compiler takes it (seen by compiling:
``aliased`` bytes are 0 without, and those of the weights with it).

An alias names the result that takes the memory. Of a graph that is divided among devices (SPMD) a
result may come back divided otherwise than the input, and the compiler refuses the alias; as a
donor the input is used where it fits.

Fields used (xla/service/hlo.proto): ``HloModuleProto`` 18 buffer donors; of these 1 entries; of an
entry 1 number of the parameter, 2 place in a tuple. 8 aliases; of these 1 entries; of an entry 2
number of the parameter.
"""

from __future__ import annotations

import re

from xladoctor.readings.wire import fields, messages, parts

_ATTRIBUTE = "jax.buffer_donor = true"
_ARGUMENT = re.compile(r"%arg(\d+): tensor<[^>]*>( \{)?")


def donated(module: bytes) -> frozenset[int]:
    """The parameters of a serialized ``HloModuleProto`` whose buffers it may take."""
    found = set()
    for donors in messages(module, 18):
        for entry in messages(donors, 1):
            facts = dict(fields(entry))
            if 2 not in facts:  # not inside a tuple
                found.add(int(facts.get(1) or 0))
    return frozenset(found)


def without_aliases(module: bytes) -> tuple[bytes, frozenset[int]]:
    """A module with its aliases taken out, and the parameters that were aliased."""
    found = {
        int(dict(fields(entry)).get(2) or 0)
        for aliases in messages(module, 8)
        for entry in messages(aliases, 1)
    }
    return b"".join(whole for key, _, _, whole in parts(module) if key != 8), frozenset(found)


def mark(mlir: str, parameters: frozenset[int]) -> str:
    """StableHLO whose entry says which arguments are given away."""
    start = mlir.find("@main(")
    if not parameters or start < 0:
        return mlir
    ends = [at for at in (mlir.find(") -> ", start), mlir.find(") {", start)) if at >= 0]
    if not ends:
        return mlir

    def one(match: re.Match[str]) -> str:
        if int(match[1]) not in parameters:
            return match[0]
        # Others' attributes stay; what follows an argument is where it stands in the source.
        return f"{match[0]}{_ATTRIBUTE}, " if match[2] else f"{match[0]} {{{_ATTRIBUTE}}}"

    end = min(ends)
    return mlir[:start] + _ARGUMENT.sub(one, mlir[start:end]) + mlir[end:]
