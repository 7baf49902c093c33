"""XLA's complaint that two shardings do not fit, in a log and in the graph that it makes."""

from __future__ import annotations

import pytest

from xladoctor.diagnosis.diagnose import diagnose
from xladoctor.errors import SourceError
from xladoctor.readings.resharding import gathered_to_be_cut
from xladoctor.readings.sources import load

# As torch_xla 2.9.0 wrote it under xladoctor profile; the path was changed.
NOW = (
    "W0000 00:00:1795361365.580673   31771 spmd_partitioner.cc:643] [SPMD] Involuntary full "
    "rematerialization. The compiler cannot go from sharding {devices=[8,1,1]0,1,2,3,4,5,6,7} to "
    "{devices=[1,2,4]0,1,2,3,4,5,6,7} efficiently for HLO operation %tanh.20 = f32[2,32,64]{2,1,0} "
    'tanh(%copy.1), sharding={devices=[8,1,1]0,1,2,3,4,5,6,7}, metadata={op_type="aten__tanh" '
    'op_name="aten__tanh" source_file="/home/user/train.py" source_line=24}. As the last resort, '
    "SPMD will replicate the tensor and then partition it to obtain the target sharding, which is "
    "inefficient.\n"
)
# The wording of 2024, as issues quote it (openxla/xla#15207); numbers are invented.
THEN = (
    "2024-07-19 12:00:00.1: W external/xla/xla/service/spmd/spmd_partitioner.cc:550] [SPMD] "
    "Involuntary full rematerialization. The compiler was not able to go from sharding "
    "{devices=[1,4,2]<=[8]} to {devices=[4,1,1,2]<=[8] last_tile_dim_replicate} without doing a "
    "full rematerialization of the tensor for HLO operation: %copy.1 = bf16[8,16,32]{2,1,0} "
    "copy(bf16[8,16,32]{2,1,0} %param.1), sharding={devices=[1,4,2]<=[8]}. You probably want to "
    "enrich the sharding annotations to prevent this from happening.\n"
)


def told(text):
    return [item for item in diagnose(load(["-"], text)).findings if item.code == "XLA449"]


def test_a_complaint_stands_at_its_line_and_counts():
    [found] = told(NOW + "step 3 loss 0.2\n" + NOW.replace("31771", "31772"))
    assert (found.locations[0].filename, found.locations[0].row) == ("/home/user/train.py", 24)
    assert found.count == 2
    assert "f32[2,32,64] of aten::tanh" in found.message
    assert "{devices=[8,1,1]0,1,2,3,4,5,6,7} to {devices=[1,2,4]0,1,2,3,4,5,6,7}" in found.message


def test_the_wording_of_2024_has_no_line():
    [found] = told(THEN)
    assert (found.locations, found.count) == ((), 1)
    assert "bf16[8,16,32] of copy" in found.message


@pytest.mark.parametrize("prefix", ["[rank0]: ", "\x1b[33m", "worker-1 | "])
def test_prefixes_of_launchers_do_not_matter(prefix):
    assert len(told(prefix + NOW)) == 1


def test_a_cut_complaint_is_left_out():
    with pytest.raises(SourceError):
        load(["-"], NOW[:180] + "\n")


MODULE = """HloModule SyncTensorsGraph
%fused (param_0: f32[16,32], param_1: u32[]) -> f32[16,4] {
  %param_1 = u32[] parameter(1)
  %param_0 = f32[16,32]{1,0} parameter(0)
  ROOT %dynamic-slice.1 = f32[16,4]{1,0} dynamic-slice(%param_0, %c, %param_1)
}
ENTRY %main {
  %p = f32[2,32]{1,0} parameter(0)
  %partition-id = u32[] partition-id()
  %all-gather = f32[16,32]{1,0} all-gather(%p), replica_groups={{0,1,2,3,4,5,6,7}}
  ROOT %fusion = f32[16,4]{1,0} fusion(%all-gather, %partition-id), kind=kLoop, calls=%fused
}
"""


def test_what_only_slices_are_taken_of_is_gathered_to_be_cut():
    assert gathered_to_be_cut(MODULE) == {"all-gather"}


@pytest.mark.parametrize(
    "line",
    [
        # A product needs all of it; so does the result of the graph.
        "  %dot = f32[16,16]{1,0} dot(%all-gather, %all-gather)\n  ROOT",
        "  %tuple = (f32[16,32]{1,0}, u32[]) tuple(%all-gather, %partition-id)\n  ROOT",
    ],
)
def test_what_is_used_whole_too_is_not(line):
    assert gathered_to_be_cut(MODULE.replace("  ROOT %fusion", f"{line} %fusion")) == frozenset()


def test_a_slice_at_a_gathered_place_is_no_slice_of_it():
    text = MODULE.replace("dynamic-slice(%param_0, %c, %param_1)", "dynamic-slice(%c, %param_0)")
    assert gathered_to_be_cut(text) == frozenset()
