"""What a refusal for want of memory says: messages of libtpu 0.0.21, and what is made of them."""

from __future__ import annotations

from xladoctor.tpu import allocations

#: For the graph that tests/tpu/graphs.large(9) makes, on v3.
REFUSED = """\
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used \
18.00G of 15.48G hbm. Exceeded hbm capacity by 2.52G.

Total hbm usage >= 18.52G:
    reserved        530.01M
    program           9.00G
    arguments         9.00G

Output size 9.00G; shares 0B with arguments.

Program hbm requirement 9.00G:
    HLO temp          9.00G (100.0% utilization: Unpadded (9.00G) Padded (9.00G), 0.0% \
fragmentation (0B))

  Largest program allocations in hbm:

  1. Size: 9.00G
     Operator: op_name="aten__flip" source_file="xladoctor" source_line=3 source_end_line=3
     Shape: f32[1024,2359296]{1,0:T(8,128)}
     Unpadded size: 9.00G
     XLA label: reverse.3 = reverse(exponential.2), dimensions={1}
     Allocation type: HLO temp
     ==========================

  2. Size: 1.0K
     Shape: u8[1024]{0}
     Unpadded size: 1.0K
     XLA label: <no-hlo-instruction>
     Allocation type: scoped
     ==========================
"""

TOO_LARGE = (
    "RESOURCE_EXHAUSTED: Allocation (size=128849018880) would exceed memory (size=17179869184) :: "
    "#allocation5 [shape = 'f32[32212254720]{0:T(1024)}', space=hbm, size = 0xffffffffffffffff]"
)


def test_used_limit_and_the_largest_tensors_with_their_source() -> None:
    found = allocations.out_of_memory(REFUSED)
    assert found is not None
    refusal, largest = found
    assert (refusal.kind, refusal.used) == ("memory", 18 * 2**30)
    assert refusal.limit == round(15.48 * 2**30)
    assert [(one.shape, one.source, one.size) for one in largest] == [
        ("f32[1024,2359296]{1,0:T(8,128)}", 3, 9 * 2**30)
    ]


def test_one_tensor_that_is_larger_than_the_memory() -> None:
    found = allocations.out_of_memory(TOO_LARGE)
    assert found is not None
    assert (found[0].used, found[0].limit) == (128849018880, 17179869184)


def test_memory_on_the_chip_is_not_the_devices_memory() -> None:
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem."
    )
    assert allocations.out_of_memory(message) is None
    assert allocations.out_of_memory("INTERNAL: something else") is None
