"""XLA803: an argument that a function of torch_xla no longer takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._spmd import FSDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel, Problem

_XM = "torch_xla.core.xla_model."
_PL = "torch_xla.distributed.parallel_loader."
#: Function, keyword, position (None: by name only), first release without it, what to do.
_REMOVED = (
    (f"{_XM}get_xla_supported_devices", "devkind", 0, (2, 8), "leave it out"),
    (f"{_PL}ParallelLoader", "fixed_batch_size", None, (1, 8), "leave it out"),
    (f"{_PL}MpDeviceLoader", "fixed_batch_size", None, (1, 8), "leave it out"),
    (f"{_XM}all_reduce", "cctx", None, (2, 1), "leave it out"),
)
#: Functions, their parameters, how many of them a position gives, first release of which this holds
#: (pytorch/xla of May 2024; its guide still writes ``FSDPv2(module, mesh)``).
_BY_NAME = (
    (
        FSDP,
        ("module", "mesh", "shard_output", "auto_wrap_policy", "auto_wrapper_callable"),
        1,
        (2, 4),
    ),
)


@rule("XLA803")
def removed_argument(model: FileModel) -> Iterator[Problem]:
    """Find arguments that raise ``TypeError`` in the torch_xla to lint for."""
    for name, keyword, index, release, advice in _REMOVED:
        if model.target < release:
            continue
        for call in model.calls(name):
            value = _given(model, call, keyword, index)
            if value is None:
                continue
            version = ".".join(map(str, release))
            yield model.problem(
                value,
                f"{name.rpartition('.')[2]} takes no {keyword} since torch_xla {version}: this "
                "raises TypeError",
                suggestion=advice,
                fix=model.fix(
                    f"Remove {keyword}", model.remove_argument(call.node, value), safe=True
                ),
            )
    yield from _by_name_alone(model)


def _by_name_alone(model: FileModel) -> Iterator[Problem]:
    """``FSDPv2(module, mesh)``: all but the module is given by name since torch_xla 2.4."""
    for names, parameters, most, release in _BY_NAME:
        for call in model.calls(*names) if model.target >= release else ():
            more = call.positional[most:]
            if not more or call.has_star or len(call.positional) > len(parameters):
                continue
            version = ".".join(map(str, release))
            named = list(zip(parameters[most:], more, strict=False))
            changes = [
                model.replace(value, f"{keyword}={model.tree.text(value)}")
                for keyword, value in named
                if not _in_parentheses(model, value)
            ]
            yield model.problem(
                more[0],
                f"{(call.name or '').rpartition('.')[2]} takes {named[0][0]} by its name alone "
                f"since torch_xla {version}: this raises TypeError",
                suggestion=", ".join(
                    f"{keyword}={model.tree.text(value).strip()}" for keyword, value in named
                ),
                fix=model.fix("Name it", *changes, safe=True)
                if len(changes) == len(named)
                else None,
            )


def _in_parentheses(model: FileModel, value: cst.BaseExpression) -> bool:
    argument = model.parent(value)
    return argument is None or model.tree.text(argument).lstrip().startswith("(")


def _given(
    model: FileModel, call: CallSite, keyword: str, index: int | None
) -> cst.BaseExpression | None:
    value = call.keywords.get(keyword)
    if value is not None or index is None or index >= len(call.positional):
        return value
    # The first argument is the number of devices today; a kind of device is a string.
    first = call.positional[index]
    return first if isinstance(model.literal(first), str) else None
