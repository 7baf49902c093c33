"""XLA314: ``torch.compile`` with a backend that has no code for XLA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._checkpointing import meant_for_xla
from xladoctor.lint.rules._cuda import runs_with_xla
from xladoctor.lint.rules._given import each_given
from xladoctor.lint.rules._training_arguments import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_RENAMED = frozenset({"torchxla_trace_once", "aot_torchxla_trace_once", "aot_torchxla_trivial"})


@rule("XLA314")
def torch_compile_backend(model: FileModel) -> Iterator[Problem]:
    """Find ``torch.compile`` without ``backend="openxla"`` in files for XLA devices."""
    if not model.is_xla:
        return
    for call in model.calls("torch.compile"):
        if call.has_star or not runs_with_xla(model, call.node):
            continue
        backend = call.keywords.get("backend")
        name = "inductor" if backend is None else model.literal(backend)
        if name == "inductor":
            message = "torch.compile's default backend has no code for XLA devices: it raises"
        elif name in _RENAMED:
            message = f"the backend {name} was renamed to openxla: torch.compile raises"
        else:
            continue
        change = (
            model.add_argument(call.node, 'backend="openxla"')
            if backend is None
            else model.replace(backend, '"openxla"')
        )
        yield model.problem(
            call.node,
            message + " when the compiled code meets an XLA tensor",
            suggestion='give backend="openxla"; for training torch_xla.compile makes one graph of '
            "the step",
            fix=model.fix('Give backend="openxla"', change, safe=True),
        )
    yield from _by_trainers(model)
    for function in model.functions:
        for decorator in function.decorators:
            if isinstance(decorator, cst.Call) or model.name(decorator) != "torch.compile":
                continue
            if runs_with_xla(model, decorator):
                yield model.problem(
                    decorator,
                    "torch.compile's default backend has no code for XLA devices: it raises when "
                    "the function is called with an XLA tensor",
                    suggestion='write @torch.compile(backend="openxla")',
                )


def _by_trainers(model: FileModel) -> Iterator[Problem]:
    """``TrainingArguments(torch_compile=True)``, which takes inductor where nothing else is said.

    Of dictionaries that are unpacked each way: TPUs may come to any (transformers 5.24).
    """
    for call in model.calls():
        if ARGUMENTS.search(call.name or "") is None or not meant_for_xla(model, call.node):
            continue
        said = [*each_given(model, call)]
        backends = [value for name, value in said if name == "torch_compile_backend"]
        turned_on = [value for name, value in said if name == "torch_compile"]
        told = [value for value in backends if model.literal(value) == "inductor"]
        if not backends:
            told = [value for value in turned_on if model.literal(value) is True]
        for value in told:
            yield model.problem(
                value,
                "the Trainer compiles its model with inductor, which has no code for XLA devices: "
                "it raises when it meets an XLA tensor",
                suggestion='torch_compile_backend="openxla", or no torch_compile',
            )
