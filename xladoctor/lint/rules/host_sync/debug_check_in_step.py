"""XLA106: a check of PyTorch's that reads every step's values, left on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._reads import costly_loop, loop_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")


@rule("XLA106")
def debug_check_in_step(model: FileModel) -> Iterator[Problem]:
    """Find anomaly detection and checks of gradients that no condition turns off."""
    if not model.is_xla:
        return
    for call in model.calls("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"):
        if call.name == "torch.autograd.set_detect_anomaly":
            mode = call.argument(0, "mode")
            if mode is None or model.literal(mode) is not True:
                continue
        if model.guards(call.node) or _is_test(call.function.name if call.function else ""):
            continue
        yield model.problem(
            call.node,
            "anomaly detection reads the result of every backward operation on the host: measured "
            "10 reads and 11 graphs in a step of a model of two layers",
            suggestion="turn it on only while you look for a NaN: `if args.debug:`",
        )
    for call in model.calls(*_CLIPS):
        value = given_true(model, call, "error_if_nonfinite")
        loop = costly_loop(model, call.node)
        if value is not None and loop is not None:
            yield model.problem(
                value,
                "error_if_nonfinite=True reads the norm on the host in every step: the host waits "
                "for the device and the graph is cut there",
                suggestion="leave it out, and look at the returned norm every 100 steps",
                related=[loop_place(model, loop)],
            )


def _is_test(name: str) -> bool:
    return name.startswith("test_")
