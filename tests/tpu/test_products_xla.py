"""Our own counts of operations and bytes are those of XLA's analysis of the same graph."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.tpu import graphs
from xladoctor.tpu import compiler, shapes, targets
from xladoctor.tpu.cache import Cache
from xladoctor.tpu.compiler import Request
from xladoctor.tpu.optimized import Optimized

jax = pytest.importorskip("jaxlib._jax")
pytestmark = graphs.real

(V3,) = targets.find("v3-8")


@functools.cache
def client() -> Any:
    return jax.get_tfrt_cpu_client()


def convolution(left: str, right: str, out: str, how: str) -> str:
    return (
        f"HloModule convolution\nENTRY main {{\n x = f32[{left}] parameter(0)\n"
        f" w = f32[{right}] parameter(1)\n ROOT c = f32[{out}] convolution(x, w), {how}\n}}"
    )


PLAIN = "dim_labels=bf01_oi01->bf01"
#: The forms that torch_xla traces convolutions and products into.
CASES = {
    "product": graphs.product(96, 200, 56),
    "batched": graphs.batched(12, 40),
    "3 x 3": convolution("8,16,14,14", "32,16,3,3", "8,32,14,14",
                         f"window={{size=3x3 pad=1_1x1_1}}, {PLAIN}"),
    "1 x 1": convolution("8,16,14,14", "32,16,1,1", "8,32,14,14", f"window={{size=1x1}}, {PLAIN}"),
    "stride": convolution("4,3,32,32", "64,3,7,7", "4,64,16,16",
                          f"window={{size=7x7 stride=2x2 pad=3_3x3_3}}, {PLAIN}"),
    "groups": convolution("8,16,14,14", "16,1,3,3", "8,16,14,14",
                          f"window={{size=3x3 pad=1_1x1_1}}, {PLAIN}, feature_group_count=16"),
    "dilated window": convolution("8,16,14,14", "8,16,3,3", "8,8,10,10",
                                  f"window={{size=3x3 rhs_dilate=2x2}}, {PLAIN}"),
    "backward, input": convolution(
        "4,32,7,7", "16,32,3,3", "4,16,14,14",
        f"window={{size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1}}, {PLAIN}"),
    "backward, weight": convolution(
        "16,8,14,14", "32,8,7,7", "16,32,3,3",
        f"window={{size=7x7 pad=1_0x1_0 rhs_dilate=2x2}}, {PLAIN}"),
    "one dimension": convolution("4,8,50", "16,8,5", "4,16,46",
                                 "window={size=5}, dim_labels=bf0_oi0->bf0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_products_are_counted_as_xla_counts_them(name: str) -> None:
    module = jax.hlo_module_from_text(CASES[name])
    counted = jax.hlo_module_cost_analysis(client(), module)["flops"]
    assert counted > 0
    own = sum(one.flops for one in Optimized(module.to_string()).operations())
    assert own == pytest.approx(counted, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_that_xla_counts_where_nothing_is_padded(name: str) -> None:
    module = jax.hlo_module_from_text(CASES[name])
    counted = jax.hlo_module_cost_analysis(client(), module)["bytes accessed"]
    (one,) = Optimized(module.to_string()).operations()
    touched = [array for text in (one.shape, *one.operands) for array in shapes.arrays(text)]
    assert sum(array.unpadded for array in touched) == counted
    assert one.memory_bytes >= counted


def rows(body: str, before: str = "", result: str = "8,128") -> str:
    """A graph that works on a few rows of a large table (invented)."""
    return f"""HloModule rows
add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}
{before}
ENTRY main {{
  t = f32[5000,128]{{1,0}} parameter(0)
  i = s32[] parameter(1)
  u = f32[8,128]{{1,0}} parameter(2)
  n = s32[8,1]{{1,0}} parameter(3)
  z = s32[] constant(0)
  ROOT r = f32[{result}]{{1,0}} {body}
}}"""


def fused(last: str, result: str) -> str:
    return f"""
f {{
  p = f32[5000,128]{{1,0}} parameter(0)
  q = s32[] parameter(1)
  w = f32[8,128]{{1,0}} parameter(2)
  o = s32[] constant(0)
  g = f32[8,128]{{1,0}} negate(w)
  d = f32[8,128]{{1,0}} dynamic-slice(p, q, o), dynamic_slice_sizes={{8,128}}
  ROOT e = f32[{result}]{{1,0}} {last}
}}"""


TABLE = "5000,128"
ROWS = {
    "gather": rows("gather(t, n), offset_dims={1}, collapsed_slice_dims={0}, "
                   "start_index_map={0}, index_vector_dim=1, slice_sizes={1,128}"),
    "scatter": rows("scatter(t, n, u), update_window_dims={1}, inserted_window_dims={0}, "
                    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
                    result=TABLE),
    "slice": rows("slice(t), slice={[0:8],[0:128]}"),
    "dynamic slice": rows("dynamic-slice(t, i, z), dynamic_slice_sizes={8,128}"),
    "dynamic update": rows("dynamic-update-slice(t, u, i, z)", result=TABLE),
    "fused slice": rows("fusion(t, i, u), kind=kLoop, calls=f", fused("add(d, g)", "8,128")),
    "fused update": rows("fusion(t, i, u), kind=kLoop, calls=f",
                         fused("dynamic-update-slice(p, g, q, o)", TABLE), TABLE),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_table_are_not_the_table(name: str) -> None:
    module = jax.hlo_module_from_text(ROWS[name])
    counted = jax.hlo_module_cost_analysis(client(), module)["bytes accessed"]
    (one,) = Optimized(module.to_string()).operations()
    assert one.memory_bytes == pytest.approx(counted, abs=16)
    assert one.memory_bytes < 5000 * 128 * 4 / 10


@pytest.mark.parametrize("name", ["product", "3 x 3", "stride"])
def test_what_the_tpu_compiler_makes_of_them_is_counted_alike(name: str) -> None:
    """The compiler writes convolutions anew, in other forms; the analysis is of the whole graph."""
    request = Request(graphs.prepared(CASES[name]), V3)
    ((_, answer),) = compiler.compile_all([request], cache=Cache(None))
    assert answer.flops
    own = sum(one.flops * one.runs for one in answer.operations)
    assert own == pytest.approx(answer.flops, rel=0.05)
