"""The compiler's cycles for large products and convolutions against the published peaks.

Run: ``python tests/accuracy/peaks.py [--only GENERATION]``: compiles them, keeps their cycles in
peaks.json beside this file and prints a table; ``--recorded`` prints it without compiling, and
``--write`` puts it into docs/tpu-accuracy.md. ``tests/tpu/test_compiler.py`` holds the cycles of
products to rules/tables/targets.toml, ``tests/tpu/test_peaks_xla.py`` those of peaks.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from tests.accuracy import published
from xladoctor import catalogue
from xladoctor.tpu import compiler, modules, targets
from xladoctor.tpu.cache import Cache

RECORDED = Path(__file__).with_name("peaks.json")

#: One slice of each generation; a graph of one core is compiled for one of its devices.
SLICES = {"v2": "v2-8", "v3": "v3-8", "v4": "v4-8", "v5e": "v5e-8", "v5p": "v5p-8", "v6e": "v6e-8"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One operation: HLO text, and its floating point operations."""

    name: str
    text: str
    flops: int


def product(size: int, kind: str) -> Case:
    """A product of two square matrices."""
    shape = f"{kind}[{size},{size}]"
    return Case(
        f"{kind} product, {size} x {size} x {size}",
        f"HloModule product\nENTRY main {{\n a = {shape} parameter(0)\n b = {shape} parameter(1)\n"
        f" ROOT c = {shape} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}",
        2 * size**3,
    )


def convolution(rows: int, size: int, inputs: int, outputs: int, window: int, stride: int) -> Case:
    """A convolution as PyTorch lays it out, in bfloat16."""
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    return Case(
        f"bf16 convolution {window} x {window}, {inputs} to {outputs} channels, "
        f"{rows} x {size} x {size}, stride {stride}",
        "HloModule convolution\nENTRY main {\n"
        f" x = bf16[{rows},{inputs},{size},{size}] parameter(0)\n"
        f" w = bf16[{outputs},{inputs},{window},{window}] parameter(1)\n"
        f" ROOT c = bf16[{rows},{outputs},{out},{out}] convolution(x, w), "
        f"window={{size={window}x{window} stride={stride}x{stride} pad={pad}_{pad}x{pad}_{pad}}}, "
        "dim_labels=bf01_oi01->bf01\n}",
        2 * rows * out * out * outputs * inputs * window * window,
    )


CASES = (
    product(4096, "bf16"),
    product(8192, "bf16"),
    convolution(256, 14, 1024, 1024, 1, 1),
    convolution(128, 14, 256, 256, 3, 1),
    convolution(128, 56, 64, 64, 3, 1),
    convolution(128, 224, 3, 64, 7, 2),
)


def measured(generation: str, cases: tuple[Case, ...] = CASES) -> dict[str, int]:
    """The compiler's cycles of each case, by its name."""
    from jaxlib import _jax  # makes HLO from text; the compiler itself runs elsewhere

    (target,) = targets.find(SLICES[generation])
    by_digest = {}
    for case in cases:
        module = _jax.hlo_module_from_text(case.text).as_serialized_hlo_module_proto()
        graph = modules.prepare(module)
        by_digest[graph.digest] = (case, compiler.Request(graph, target))
    requests = [request for _, request in by_digest.values()]
    found = {}
    for request, answer in compiler.compile_all(requests, cache=Cache(None)):
        case = by_digest[request.graph.digest][0]
        assert answer.cycles, answer.refusal
        found[case.name] = answer.cycles
    return {case.name: found[case.name] for case in cases}


def recorded(generation: str) -> dict[str, int]:
    """The cycles that were measured before, by the case's name."""
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
    cycles: dict[str, int] = known.get(generation, {})
    return cycles


def share(generation: str, case: Case, cycles: int) -> float:
    """Of the published peak."""
    facts = catalogue.table("targets")[generation]
    return float(case.flops / (cycles / facts["clock_hz"]) / facts["peak_flops"])


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(SLICES), help="one generation")
    parser.add_argument("--recorded", action="store_true", help="compile nothing")
    parser.add_argument("--write", action="store_true", help="into docs/tpu-accuracy.md")
    options = parser.parse_args(argv)
    known = {one: recorded(one) for one in SLICES}
    if not options.recorded:
        for generation in [options.only] if options.only else SLICES:
            known[generation] = measured(generation)
            RECORDED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    text = _table(known)
    print(text)
    if options.write:
        published.write({"peaks": text})
    return 0


def _table(known: dict[str, dict[str, int]]) -> str:
    generations = [one for one in SLICES if known[one]]
    table = catalogue.table("targets")
    rows = [
        f"| share of the published peak | {' | '.join(generations)} |",
        "|---|" + "---|" * len(generations),
    ]
    for title, key, unit in (("clock", "clock_hz", "MHz"), ("peak", "peak_flops", "TFLOP/s")):
        scale = 1e6 if unit == "MHz" else 1e12
        figures = " | ".join(f"{table[one][key] / scale:,.0f} {unit}" for one in generations)
        rows.append(f"| {title} | {figures} |")
    for case in CASES:
        figures = " | ".join(
            f"{share(one, case, known[one][case.name]):.0%}" if case.name in known[one] else "-"
            for one in generations
        )
        rows.append(f"| {case.name} | {figures} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
