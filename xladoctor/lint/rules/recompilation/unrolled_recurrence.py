"""XLA216: a recurrent layer whose graph grows with the length of the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._row_by_row import row_by_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_LAYERS = ("torch.nn.LSTM", "torch.nn.RNN")
_CELLS = frozenset({"torch.nn.LSTMCell", "torch.nn.GRUCell", "torch.nn.RNNCell"})
#: What comes to attributes that no line names.
_BY_TEXT = ("getattr(", ".children(", ".modules(", ".named_children(", "._modules", "__dict__")
#: The release from which torch.nn.GRU is a scan (torch_xla replaces the class on import).
_SCAN = (2, 7)
#: Loops of this length or less are not worth a word.
_SHORT = 16


@rule("XLA216")
def unrolled_recurrence(model: FileModel) -> Iterator[Problem]:
    """Find ``nn.LSTM`` and ``nn.RNN``, and loops over time that call a recurrent cell."""
    if not model.is_xla:
        return
    layers = _LAYERS if model.target >= _SCAN else (*_LAYERS, "torch.nn.GRU")
    for call in model.calls(*layers):
        if model.on_xla(call.node) is not OnXla.YES or _is_kept_unused(model, call):
            continue
        name = (call.name or "").rpartition(".")[2]
        yield model.problem(
            call.node,
            f"XLA unrolls nn.{name}: the graph holds every time step, and compiling it takes "
            "longer the longer the sequences are (measured: 8 steps 1.1 s, 64 steps 24 s)",
            suggestion="nn.GRU, which torch_xla compiles as one scan since 2.7, or short and "
            "fixed lengths"
            if model.target >= _SCAN
            else "short and fixed lengths of sequences",
        )
    for call in model.calls():
        loop = model.loop(call.node)
        if (
            loop is None
            or loop.implicit
            or not _is_cell(model, call)
            or _is_short(model, loop.node)
        ):
            continue
        if model.function_of(loop.node) is not model.function_of(call.node):
            continue
        yield model.problem(
            call.node,
            "every turn of this loop puts another copy of the cell into the graph, which is "
            "compiled as a whole (measured: about 33 ms of compilation a time step, forward only)",
            suggestion="torch_xla.experimental.scan.scan(step, init, xs), which compiles the step "
            "once",
            related=[model.place(loop.node, "the loop over time")],
        )
    yield from row_by_row(model)


def _is_kept_unused(model: FileModel, call: CallSite) -> bool:
    """``self.detector = nn.LSTM(...)``, whose name stands nowhere else in the program.

    In a file that asks for attributes by text, or whose modules run in a row, it may still run.
    """
    line = model.parent(call.node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Attribute):
        return False
    name = target.attr.value
    parts = (model, *model.linked)
    if any(word in part.text for part in parts for word in _BY_TEXT):
        return False
    found = (node for part in parts for node in part.nodes(cst.Name) if isinstance(node, cst.Name))
    return not any(node.value == name and node is not target.attr for node in found)


def _is_cell(model: FileModel, call: CallSite) -> bool:
    """A call of an instance of a recurrent cell inside of ``forward``."""
    if call.name is not None or call.function is None or call.function.name != "forward":
        return False
    maker = model.value(call.node.func).origin
    return isinstance(maker, cst.Call) and model.name(maker.func) in _CELLS


def _is_short(model: FileModel, loop: cst.CSTNode) -> bool:
    """``for _ in range(8)``: not a sequence."""
    if not isinstance(loop, cst.For) or not isinstance(loop.iter, cst.Call):
        return False
    call = model.call(loop.iter)
    if call.name != "builtins.range" or not call.positional:
        return False
    given = call.positional[-1]
    length = model.literal(given)
    if length is NotImplemented and isinstance(given, cst.Name):
        length = _unless_asked(model, given)
    return isinstance(length, int) and length <= _SHORT


def _unless_asked(model: FileModel, name: cst.Name) -> object:
    """The default of a parameter that no call gives: ``def forward(self, x, future=0)``."""
    function = model.function_of(name)
    written = function.default(name.value) if function is not None else None
    if function is None or written is None or name.value not in function.parameters:
        return NotImplemented
    calls = [call for part in (model, *model.linked) for call in part.calls()]
    by_place = (call.given_to(function, name.value) for call in model.callers(function))
    if any(name.value in call.keywords for call in calls) or any(by_place):
        return NotImplemented
    return model.literal(written)
