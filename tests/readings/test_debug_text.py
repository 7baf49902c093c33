from __future__ import annotations

import html
import json

import pytest

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
    (first, second), complaints, _ = parse_debug(COMPILATION.splitlines(), "x")
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
    assert second.sizes == {"Graph input size": 1.548 * 2**30}


def test_the_singular_of_the_first_versions_and_a_block_that_is_cut() -> None:
    text = COMPILATION.replace("Inputs:", "Input:").partition("Number of Graph Outputs")[0]
    ((block,), _, _) = parse_debug(text.splitlines(), "x")
    assert (block.inputs, block.outputs) == (35, None)


def test_two_blocks_of_a_kind_stay_two() -> None:
    one = COMPILATION.partition("Post")[0]
    blocks, _, _ = parse_debug((one + one).splitlines(), "x")
    assert [block.graph for block in blocks] == ["c74c3b91", "c74c3b91"]


def test_analyzer_lines_glued_to_a_progress_bar() -> None:
    text = (
        " 0%| | 1/310 [3:15]pt-xla-profiler: TransferFromServerTime too frequent: 634 counts "
        "during 4 steps\npt-xla-profiler: Op(s) not lowered: aten::nonzero, torchvision::nms,  "
        "Please open a GitHub issue\npt-xla-profiler: CompileTime too slow: longest instance took "
        "13m35s865ms460.010us. Please open"
    )
    _, (frequent, lowered, slow), _ = parse_debug(text.splitlines(), "x")
    assert (frequent.metric, frequent.count, frequent.steps) == ("TransferFromServerTime", 634, 4)
    assert lowered.operations == ("aten::nonzero", "torchvision::nms")
    assert slow.seconds == 754.86546001  # decoded from the right: 12 min 34.9 s


def test_memory_complaints_of_xrt() -> None:
    text = (
        "pt-xla-profiler: Following metrics too frequent: XrtTryFreeMemory (40 counts), "
        "XrtCompaction (1.2e+06 counts), during 100 steps. Note: XRT metrics follow the lifecycle"
    )
    _, (first, second), _ = parse_debug([text], "x")
    assert (first.kind, first.metric, first.count, first.steps) == (
        "too-frequent", "XrtTryFreeMemory", 40, 100,
    )  # fmt: skip
    assert (second.metric, second.count) == ("XrtCompaction", 1_200_000)


SUMMARY = f"""{BAR}
Unlowered Op usage summary (more of these ops, lower performance)
Note: _local_scalar_dense typically indicates CPU context access
{"-" * 80}
FRAME (count=12):
Unlowered Op: "_ctc_loss"
Python Frames:
  ctc_loss (/usr/lib/python3/site-packages/torch/nn/functional.py:2616)
  train (/home/user/train.py:73)


FRAME (count=3):
Unlowered Op: "xla_fallback"


FRAME (count=3):
  train (/home/user/train.py:80)

{BAR}"""


def test_the_frame_summary_with_any_prefix() -> None:
    for prefix in ("", "pt-xla-profiler: ", "WARNING:pt-xla-profiler:", "  0%| |pt-xla-profiler: "):
        _, _, (ctc, unknown) = parse_debug([prefix + s for s in SUMMARY.splitlines()], "x")
        assert (ctc.operation, ctc.count) == ("aten::_ctc_loss", 12)
        assert ctc.frames[1] == ("/home/user/train.py", 73, "train")
        assert (unknown.operation, unknown.count) == (None, 3)
        assert unknown.frames == (("/home/user/train.py", 80, "train"),)


#: What lies between a program's output and what is pasted, as a function of all its lines.
DRESSES = {
    "a record of JSON": lambda lines: [json.dumps({"message": "\n".join(lines), "pid": 7})],
    "records of JSON": lambda lines: [json.dumps({"text": line, "pid": 7}) for line in lines],
    "records with line ends": lambda lines: [json.dumps({"data": line + "\n"}) for line in lines],
    "repr": lambda lines: [repr("\n".join(lines))],
    "a list": lambda lines: [repr(lines)],
    "one line": lambda lines: [" ".join(lines)],
    "web page": lambda lines: ["<br>".join(html.escape(line) for line in lines)],
    "blanks of a web page": lambda lines: [line.replace(" ", "\u00a0") for line in lines],
    "table": lambda lines: [f"| {line} |" for line in lines],
    "CSV": lambda lines: [f'"{line}","stderr",12' for line in lines],
    "bold": lambda lines: [f"**{line}**" for line in lines],
    "terminal": lambda lines: [
        line[at : at + 78] for line in lines for at in range(0, len(line) or 1, 78)
    ],
    "mail": lambda lines: [
        "> " + line[at : at + 78] for line in lines for at in range(0, len(line) or 1, 78)
    ],
}


@pytest.mark.parametrize("dress", DRESSES)
def test_analysis_blocks_are_read_back_in_any_dress(dress: str) -> None:
    text = COMPILATION.replace("/a b/", "/opt/conda/lib/python3.11/site-packages/torch_xla/a/")
    text = text + text.replace("c74c3b91", "0badcafe")
    bare, _, _ = parse_debug(text.splitlines(), "x")
    assert len(bare) == 4
    read, _, _ = parse_debug(DRESSES[dress](text.splitlines()), "x")
    assert read == bare


def test_a_wrapped_frame_does_not_swallow_what_the_program_prints() -> None:
    half = "Compilation Analysis:   forward (/home/user/a_long_folder/mod"
    lines = [
        "Compilation Analysis: Compilation Cause",
        "Compilation Analysis:   user mark_step",
        half,
    ]
    (whole,), _, _ = parse_debug([*lines, "el.py:12)", "loss (x.py:3)"], "x")
    assert whole.frames == (("/home/user/a_long_folder/model.py", 12, "forward"),)
    (cut,), _, _ = parse_debug([*lines, "", "step 3 (12 s)", "el.py:12)"], "x")
    assert cut.frames == ()


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("aten::a, aten::b_back", ("aten::a",)),  # the last has no comma: it is cut
        ("aten::a, aten::b,  Please open an issue with the ab", ("aten::a", "aten::b")),
        ("aten::a, aten::b,  Counter: aten::c", ("aten::a", "aten::b")),
        ("aten::silu_backward.grad_input,  Please", ("aten::silu_backward.grad_input",)),
        ("aten::a", ("aten::a",)),
        ("**aten::a**,  Please", ("aten::a",)),
    ],
)
def test_operations_of_the_analyzer(text: str, operations: tuple[str, ...]) -> None:
    _, (line,), _ = parse_debug([f"pt-xla-profiler: Op(s) not lowered: {text}"], "x")
    assert line.operations == operations


def test_an_analyzer_line_that_was_written_from_memory() -> None:
    text = "> pt-xla-profiler TransferFromServerTime too frequent 104300 in 34742 steps"
    _, (line,), _ = parse_debug([text], "x")
    assert (line.metric, line.count, line.steps) == ("TransferFromServerTime", 104300, 34742)
