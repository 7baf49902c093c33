"""XLA861: arguments of ``torch.compile`` that the backend for the device refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint import family
from xladoctor.lint.model import OnXla
from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.findings import Edit
    from xladoctor.lint.model import CallSite, FileModel, Problem

_TPU, _NEURON = "torch_tpu", "torch_neuron"
#: Backends of torch.compile that run the captured code without compiling it: they work everywhere.
_UNCOMPILED = frozenset({"eager", "aot_eager"})
_USUAL = (None, "default")


@rule("XLA861")
def refused_compile_option(model: FileModel) -> Iterator[Problem]:
    """Find ``dynamic=True``, modes and backends that end in an error on the device."""
    member = next((name for name in (_TPU, _NEURON) if name in model.members), None)
    if member is None or family.TORCH_XLA in model.members:
        return  # of two kinds of device, which one a call is for is not said
    for call in model.calls("torch.compile"):
        if call.has_star or _chosen_options(model, call):
            continue
        if model.on_xla(call.node) is not OnXla.YES:
            continue
        for argument, message, advice in _refused(model, call, member):
            yield model.problem(
                argument,
                message,
                suggestion=advice,
                fix=model.fix(
                    "Leave it to the device's own backend",
                    _change(model, call, argument, member),
                    safe=False,
                ),
            )


def _refused(
    model: FileModel, call: CallSite, member: str
) -> Iterator[tuple[cst.BaseExpression, str, str]]:
    title = family.members()[member].title
    dynamic, mode = call.keywords.get("dynamic"), call.keywords.get("mode")
    backend = call.keywords.get("backend")
    if dynamic is not None and model.literal(dynamic) is True:
        yield (
            dynamic,
            f"{title}'s compiler takes fixed shapes alone: with dynamic=True the first call raises",
            "leave it out, and pad to a few lengths",
        )
    named = model.literal(backend) if backend is not None else None
    wrong = isinstance(named, str) and family.of_compiler(named) != member
    if backend is not None and wrong and named not in _UNCOMPILED:
        own = family.members()[member].compilers[0]
        what = f'the backend "{named}" has no code for {title}: the first call with its tensors'
        yield backend, f"{what} raises", f'backend="{own}"'
    if member == _TPU and mode is not None and model.literal(mode) not in _USUAL:
        yield (
            mode,
            "TorchTPU's backend knows no modes: the first call raises TypeError",
            "leave it out",
        )


def _chosen_options(model: FileModel, call: CallSite) -> bool:
    """``options={"tpu_backend": "pallas"}``, with which Inductor is allowed on a TPU."""
    options = call.keywords.get("options")
    return options is not None and "tpu_backend" in model.tree.text(options)


def _change(
    model: FileModel, call: CallSite, argument: cst.BaseExpression, member: str
) -> Edit | None:
    if argument is call.keywords.get("backend"):
        return model.replace(argument, f'"{family.members()[member].compilers[0]}"')
    return model.remove_argument(call.node, argument)
