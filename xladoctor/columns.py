"""The tables of ``xladoctor.load_run``: their columns, types, units and what they mean.

``docs/data.md`` shows these texts; a test holds the page to them, and the frames to both.
"""

from __future__ import annotations

from typing import NamedTuple

from xladoctor.results import CAUSE_KINDS


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: Its name.
        kind: "int", "float", "text", "bool", or "ints" and "texts" for lists; all may be missing.
        unit: "s", "B", "steps" ...; "" for none.
        text: What it holds.
    """

    name: str
    kind: str
    unit: str
    text: str


def _place(what: str) -> tuple[Column, ...]:
    return (
        Column("filename", "text", "", f"File of {what}, relative to where the command ran"),
        Column("row", "int", "", "Line in that file, from 1"),
        Column("function", "text", "", "Function that the line is in"),
    )


_CORE = Column("core", "int", "", "Core, from 0")
_STRETCH = (
    Column(
        "first_step", "int", "", "First optimizer step of the row, from 1; missing between steps"
    ),
    Column("last_step", "int", "", "Last one: larger than the first where a long run shares rows"),
)
_PARTS = (
    ("compile", "compiling"),
    ("execute", "waiting for the device at the end of a step"),
    ("host_sync", "waiting for reads of device values"),
    ("fallback", "running operations on the CPU"),
    ("input_wait", "waiting for the data loader"),
    ("trace", "Python, and tracing what it does"),
    ("core_wait", "waiting for other cores"),
    ("transfer", "sending tensors to the device"),
    ("other", "anything else"),
)

#: Table name to its columns, in the order of the frame.
TABLES: dict[str, tuple[Column, ...]] = {
    "steps": (
        _CORE,
        *_STRETCH,
        Column("steps", "int", "steps", "How many steps the row covers; 0 between steps"),
        Column("start_seconds", "float", "s", "Begin, since the first recorded moment of the run"),
        Column("seconds", "float", "s", "Wall time"),
        *(Column(f"{part}_seconds", "float", "s", f"Of it: {text}") for part, text in _PARTS),
        Column("fastest_seconds", "float", "s", "Fastest step of a shared row"),
        Column("slowest_seconds", "float", "s", "Slowest step of a shared row"),
        Column("compilations", "int", "graphs", "Graphs that were new for the core"),
        Column("host_syncs", "int", "reads", "Reads of device values"),
        Column("fallbacks", "int", "runs", "Operations that ran on the CPU"),
        Column("graphs_run", "int", "graphs", "Graphs that ran; missing between steps"),
    ),
    "compilations": (
        Column("number", "int", "", "The graph's number, as 'xladoctor graph' takes it"),
        Column("cores", "ints", "", "Cores for which the graph was new"),
        Column("step", "int", "", "Step that first needed it; 0 before the first"),
        Column("seconds", "float", "s", "Time to compile it"),
        Column("graph", "text", "", "Hash of the graph"),
        Column("trigger", "text", "", "What ended it: step, sync, read, fallback, loader, library"),
        *_place("the line that ended it"),
        Column("cause", "text", "", f"Why it was new: {', '.join(CAUSE_KINDS)}"),
        Column("cause_detail", "text", "", "What differs from the nearest earlier graph"),
        Column("cause_filename", "text", "", "File of the line that made the difference"),
        Column("cause_row", "int", "", "That line, from 1"),
        Column("after_warmup", "bool", "", "After the first three executions of its line"),
        Column("modelled", "bool", "", "Only a real device would have compiled it"),
    ),
    "reads": (
        _CORE,
        *_STRETCH,
        *_place("the line that reads"),
        Column("what", "text", "", "How it reads: item, cpu ..."),
        Column("count", "int", "reads", "How many"),
        Column("seconds", "float", "s", "How long they blocked the core, compilations left out"),
        Column("compiled", "int", "reads", "Of them: compiled a graph first"),
        Column("cut", "int", "reads", "Of them: ended the step's graph and ran it"),
        Column("waited", "int", "reads", "Of them: waited for the device"),
        Column("free", "int", "reads", "Of them: found the value ready"),
    ),
    "fallbacks": (
        _CORE,
        *_STRETCH,
        *_place("the line that calls it"),
        Column("operation", "text", "", "The operation, as torch names it"),
        Column("count", "int", "runs", "How many"),
        Column("seconds", "float", "s", "How long they blocked the core, compilations left out"),
    ),
    "cores": (
        _CORE,
        Column("steps", "int", "steps", "Optimizer steps"),
        Column("step_seconds_median", "float", "s", "Typical step after warm-up"),
        Column("step_seconds_min", "float", "s", "Fastest step after warm-up"),
        Column("step_seconds_max", "float", "s", "Slowest step after warm-up"),
        Column("host", "text", "", "Its host, in a run of several"),
        Column("compilations", "int", "graphs", "Graphs that were new for it"),
        Column("host_syncs", "int", "reads", "Reads of device values"),
        Column("fallbacks", "int", "runs", "Operations that ran on the CPU"),
        Column("executions", "int", "graphs", "Graphs that ran"),
        Column("to_device", "int", "tensors", "Tensors sent to the device"),
        Column("from_device", "int", "tensors", "Tensors that reads and fallbacks fetched"),
    ),
    "metrics": (
        Column("source", "text", "", "The report of torch_xla that it is from"),
        Column("core", "int", "", "Core of that report; missing if it covers several"),
        Column("step", "int", "", "Step of that report, in a series"),
        Column("name", "text", "", "torch_xla's name of the metric or counter"),
        Column("kind", "text", "", "metric or counter"),
        Column("samples", "int", "", "A metric's samples since the start; a counter's value"),
        Column("total", "float", "see unit", "A metric's sum since the start"),
        Column("unit", "text", "", "Unit of total and percentiles: s, B, or empty"),
        Column("p50", "float", "see unit", "Median of the last samples (1,024 at most)"),
        Column("p90", "float", "see unit", "90th percentile of them"),
        Column("p99", "float", "see unit", "99th percentile of them"),
    ),
    "findings": (
        Column("code", "text", "", "XLA and three digits: 'xladoctor explain' has its page"),
        Column("name", "text", "", "The rule's name"),
        Column("severity", "text", "", "error (wrong, stuck), warning (slow) or info"),
        *_place("the line to change"),
        Column("cell", "int", "", "Index of the notebook's cell, from 0"),
        Column("message", "text", "", "What is wrong and what it costs"),
        Column("suggestion", "text", "", "What to write instead"),
        Column("count", "int", "", "How often, all cores together"),
        Column("seconds", "float", "s", "What it cost each core (mean)"),
        Column("cores", "ints", "", "Cores that it concerns"),
        Column("confirmed_by", "texts", "", "lint, runtime or report: who says so"),
        Column("ran", "bool", "", "Whether the run came to this line"),
        Column("tpu_seconds", "float", "s", "Seconds of a TPU step that it costs, with --tpu"),
    ),
}  # fmt: skip
