"""Buffers that a graph may take from its inputs: jaxlib's way to StableHLO loses them.

A step gives the compiler the buffers of the weights that it replaces (``buffer_donor`` of the
graph). jaxlib 0.7.1 has no other way to the compiler than by StableHLO, and its conversion keeps
``input_output_alias`` alone: without more, a step would seem to need its weights twice. An
attribute of the entry's argument says the same, and the compiler takes it (seen by compiling:
``aliased`` bytes are 0 without, and those of the weights with it).

Fields used (xla/service/hlo.proto): ``HloModuleProto`` 18 buffer donors; of these 1 entries; of an
entry 1 number of the parameter, 2 place in a tuple.
"""

from __future__ import annotations

import re

from xladoctor.readings.wire import fields, messages

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
