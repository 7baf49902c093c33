"""Donated buffers on their way to the TPU compiler."""

from __future__ import annotations

from xladoctor.readings.wire import field
from xladoctor.tpu import donors


def entry(number, *, inside=False):
    message = bytes([1 << 3, number]) if number else b""
    return field(1, message + (bytes([2 << 3, 4]) if inside else b""))


def test_the_parameters_are_read_from_the_graph():
    module = field(1, b"name") + field(18, entry(0) + entry(3) + entry(5, inside=True))
    assert donors.donated(module) == {0, 3}
    assert donors.donated(field(1, b"name")) == set()


def test_the_arguments_of_the_entry_are_marked_and_no_others():
    mlir = (
        "module { func.func private @add(%arg0: tensor<f32> loc(#l)) { }\n"
        "func.func public @main(%arg0: tensor<2x3xf32> loc(#l), %arg1: tensor<f32> "
        '{mhlo.sharding = "x"} loc(#l), %arg2: tensor<i64>) -> (tensor<f32>) {\n'
        "%0 = f(%arg0: tensor<2x3xf32>)"
    )
    assert donors.mark(mlir, frozenset({0, 1})) == (
        "module { func.func private @add(%arg0: tensor<f32> loc(#l)) { }\n"
        "func.func public @main(%arg0: tensor<2x3xf32> {jax.buffer_donor = true} loc(#l), "
        '%arg1: tensor<f32> {jax.buffer_donor = true, mhlo.sharding = "x"} loc(#l), '
        "%arg2: tensor<i64>) -> (tensor<f32>) {\n"
        "%0 = f(%arg0: tensor<2x3xf32>)"
    )
    assert donors.mark(mlir, frozenset()) == mlir
