"""Small graphs as HLO text (invented), and as what a run directory holds."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.invented import FILE, InventedRun
from xladoctor.readings.wire import field
from xladoctor.tpu import installed, modules

if TYPE_CHECKING:
    from pathlib import Path

#: Tests with this mark compile for real; they need the extra ``tpu``.
real = pytest.mark.skipif(
    installed.why_not() is not None,
    reason="needs xladoctor[tpu]: Linux on x86-64, Python 3.11/3.12",
)


def _where(operation: str, row: int) -> str:
    return f'metadata={{op_name="{operation}" source_file="{FILE}" source_line={row}}}'


def product(rows: int, inner: int, columns: int, dtype: str = "f32", row: int = 12) -> str:
    """A matrix product, as torch_xla traces ``a @ b`` in some row of train.py."""
    contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    shape = f"{dtype}[{rows},{columns}]{{1,0}}"
    return f"""HloModule product
ENTRY main {{
  a = {dtype}[{rows},{inner}]{{1,0}} parameter(0)
  b = {dtype}[{inner},{columns}]{{1,0}} parameter(1)
  ROOT d = {shape} dot(a, b), {contracted}, {_where("aten__mm", row)}
}}"""


def large(gigabytes: int) -> str:
    """A graph whose argument, result and what is between are of so many GiB each."""
    shape = f"f32[1024,{gigabytes * 2**28 // 1024}]{{1,0}}"
    return f"""HloModule large
ENTRY main {{
  a = {shape} parameter(0)
  b = {shape} exponential(a), {_where("aten__exp", 7)}
  r = {shape} reverse(b), dimensions={{1}}, {_where("aten__flip", 8)}
  c = {shape} add(b, r), {_where("aten__add", 9)}
  d = {shape} reverse(c), dimensions={{0}}, {_where("aten__flip", 10)}
  ROOT e = {shape} add(d, c), {_where("aten__add", 11)}
}}"""


def batched(count: int, edge: int, row: int = 14) -> str:
    """Many small matrix products at once."""
    shape = f"f32[{count},{edge},{edge}]{{2,1,0}}"
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}"
    contracted = "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    return f"""HloModule batched
ENTRY main {{
  a = {shape} parameter(0)
  b = {shape} parameter(1)
  ROOT d = {shape} dot(a, b), {batch}, {contracted}, {_where("aten__bmm", row)}
}}"""


def gathered(rows: int, width: int, row: int = 20) -> str:
    """Rows of a table by their numbers, as torch_xla traces ``table[tokens]`` in some row."""
    shape, slices = f"f32[{rows},{width}]{{1,0}}", f"slice_sizes={{1,{width}}}"
    dims = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
    return f"""HloModule gathered
ENTRY main {{
  table = f32[{rows},{width}]{{1,0}} parameter(0)
  tokens = s32[{rows}]{{0}} parameter(1)
  ROOT g = {shape} gather(table, tokens), {dims}, {slices}, {_where("aten__index", row)}
}}"""


def wide(rows: int, row: int = 30) -> str:
    """Arithmetic in float64."""
    shape = f"f64[{rows},{rows}]{{1,0}}"
    contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"""HloModule wide
ENTRY main {{
  a = {shape} parameter(0)
  b = {shape} parameter(1)
  ROOT d = {shape} dot(a, b), {contracted}, {_where("aten__mm", row)}
}}"""


def reductions(count: int, row: int = 50, *, one_after_the_other: bool = False) -> str:
    """Many all-reduces, each given the number of the one before, as torch_xla 2.9 traces them.

    Args:
        count: How many.
        row: Of train.py.
        one_after_the_other: Whether each also needs the result of the one before it.
    """
    shape, both = "f32[8,128]{1,0}", "(f32[8,128]{1,0}, f32[])"
    inputs = [f"  p{i} = {shape} parameter({i})" for i in range(count)]
    lines = [
        f"  a{i} = {both} all-reduce({f'm{i}' if one_after_the_other and i else f'p{i}'}, n{i}), "
        f"replica_groups={{}}, to_apply=sum, {_where('xla__cross_replica_sum', row)}\n"
        f"  r{i} = {shape} get-tuple-element(a{i}), index=0\n"
        f"  n{i + 1} = f32[] get-tuple-element(a{i}), index=1\n"
        f"  m{i + 1} = {shape} multiply(r{i}, p{i})"
        for i in range(count)
    ]
    total = [f"  t{i} = {shape} add({f't{i - 1}' if i else 'p0'}, m{i + 1})" for i in range(count)]
    return "\n".join(
        [
            "HloModule reductions",
            "sum {",
            "  x = f32[] parameter(0)",
            "  y = f32[] parameter(1)",
            "  ROOT s = f32[] add(x, y)",
            "}",
            "ENTRY main {",
            "  n0 = f32[] constant(0)",
            *inputs,
            *lines,
            *total[:-1],
            total[-1].replace("  t", "  ROOT t", 1),
            "}",
        ]
    )


def looped(limit: str, row: int = 60, dtype: str = "s32") -> str:
    """A matrix product over and over, as often as a number says."""
    number = f"{dtype}[]"
    state = f"({number}, {number}, f32[512,512]{{1,0}})"
    contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"""HloModule looped
body {{
  s = {state} parameter(0)
  i = {number} get-tuple-element(s), index=0
  l = {number} get-tuple-element(s), index=1
  x = f32[512,512]{{1,0}} get-tuple-element(s), index=2
  one = {number} constant(1)
  j = {number} add(i, one)
  d = f32[512,512]{{1,0}} dot(x, x), {contracted}, {_where("aten__mm", row)}
  ROOT t = {state} tuple(j, l, d)
}}
more {{
  s = {state} parameter(0)
  i = {number} get-tuple-element(s), index=0
  l = {number} get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, l), direction=LT
}}
ENTRY main {{
  x = f32[512,512]{{1,0}} parameter(0)
  zero = {number} constant(0)
  l = {number} {limit}
  s = {state} tuple(zero, l, x)
  w = {state} while(s), condition=more, body=body
  ROOT d = f32[512,512]{{1,0}} get-tuple-element(w), index=2
}}"""


def run(folder: Path, *texts: str, cores: int = 1, steps: int = 6, **parts: float) -> Path:
    """An invented run whose step ends in graphs of these texts, each on a line of its own."""
    invented = InventedRun(cores=cores)
    for number in range(len(texts)):
        for core in range(cores):
            reused = {"hlo": None, "reused": True} if core else {"hlo": f"graphs/{number:04}"}
            invented.compilation(
                core, 1, line=40 + number, graph=f"graph{number}", piece=1, named=None, **reused
            )
    invented.steps(steps, **parts)
    for row in invented.rows:
        if row["e"] == "step":
            sites = [invented.site(40 + number) for number in range(len(texts))]
            row["launches"] = [[site, "step", 1, 0.1] for site in sites]
    invented.end()
    written = invented.write(folder)
    for number, text in enumerate(texts):
        recorded(text, written / "p5-1" / "graphs" / f"{number:04}.pb.z")
    return written


def module(text: str) -> bytes:
    """Text as a serialized ``HloModuleProto``."""
    import jaxlib._jax as jax

    found: bytes = jax.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return found


def prepared(text: str) -> modules.Prepared:
    """Text, ready to be compiled."""
    return modules.prepare(module(text))


def recorded(text: str, path: Path) -> Path:
    """Text as a run directory keeps it (``HloProto``, packed)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(field(1, module(text))))
    return path


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if packages were not installed."""
    find = importlib.util.find_spec
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name in names else find(name, package),
    )
