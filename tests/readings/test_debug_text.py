from __future__ import annotations

from xladoctor.readings.debug_text import parse_debug

BAR = "=" * 80
COMPILATION = f"""
Compilation Analysis: {BAR}
Compilation Analysis: Compilation Cause
Compilation Analysis:   `torch_xla.sync()` in parallel loader at step end
Compilation Analysis: Graph Info:
Compilation Analysis:   Graph Hash: c74c3b91
Compilation Analysis:   Number of Graph Inputs: 35
Compilation Analysis:   Number of Graph Outputs: 107
Compilation Analysis: Python Frame Triggered Execution:
Compilation Analysis:   __next__ (/a b/parallel_loader.py:32)
Compilation Analysis:   <module> (/home/user/train.py:73)
Compilation Analysis:   ..........
Compilation Analysis: {"-" * 80}
Compilation Analysis: {BAR}

Post Compilation Analysis: {BAR}
Post Compilation Analysis: Graph input size: 1.548000 GB
Post Compilation Analysis: Aliased Input size: Unknown  GB
Post Compilation Analysis: {BAR}
"""


def test_analysis_blocks() -> None:
    (first, second), complaints = parse_debug(COMPILATION.splitlines(), "x")
    assert complaints == []
    assert (first.kind, first.cause) == (
        "compilation",
        "torch_xla.sync in parallel loader at step end",
    )
    assert (first.graph, first.inputs, first.outputs) == ("c74c3b91", 35, 107)
    assert first.frames == (
        ("/a b/parallel_loader.py", 32, "__next__"),
        ("/home/user/train.py", 73, "<module>"),
    )
    assert second.kind == "post-compilation"
    assert second.sizes == {"Graph input size": 1.548e9}


def test_the_singular_of_the_first_versions_and_a_block_that_is_cut() -> None:
    text = COMPILATION.replace("Inputs:", "Input:").partition("Number of Graph Outputs")[0]
    ((block,), _) = parse_debug(text.splitlines(), "x")
    assert (block.inputs, block.outputs) == (35, None)


def test_two_blocks_of_a_kind_stay_two() -> None:
    one = COMPILATION.partition("Post")[0]
    blocks, _ = parse_debug((one + one).splitlines(), "x")
    assert [block.graph for block in blocks] == ["c74c3b91", "c74c3b91"]


def test_analyzer_lines_glued_to_a_progress_bar() -> None:
    text = (
        " 0%| | 1/310 [3:15]pt-xla-profiler: TransferFromServerTime too frequent: 634 counts "
        "during 4 steps\npt-xla-profiler: Op(s) not lowered: aten::nonzero, torchvision::nms,  "
        "Please open a GitHub issue\npt-xla-profiler: CompileTime too slow: longest instance took "
        "13m35s865ms460.010us. Please open"
    )
    _, (frequent, lowered, slow) = parse_debug(text.splitlines(), "x")
    assert (frequent.metric, frequent.count, frequent.steps) == ("TransferFromServerTime", 634, 4)
    assert lowered.operations == ("aten::nonzero", "torchvision::nms")
    assert slow.seconds == 754.86546001  # decoded from the right: 12 min 34.9 s
