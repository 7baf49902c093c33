"""XLA106: a check of PyTorch's that reads every step's values, left on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_true
from xladoctor.lint.rules._fabric import clips_of_fabric
from xladoctor.lint.rules._lightning import for_xla
from xladoctor.lint.rules._reads import costly_loop, loop_place
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

#: Words of conditions that look for a fault.
_DEBUGS = frozenset({"debug", "debugging", "anomaly", "detect", "nan", "check", "fast"})
#: What stops the program and waits for somebody at a terminal.
_DEBUGGERS = ("pdb.set_trace", "ipdb.set_trace", "builtins.breakpoint")
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
        if _is_switched(model, call):
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
    yield from _by_fabric(model)
    yield from _by_debugger(model)
    for call in model.calls("lightning.pytorch.Trainer"):
        value = given_true(model, call, "detect_anomaly")
        if value is not None and for_xla(model, call) is not None:
            yield model.problem(
                value,
                "anomaly detection reads the result of every backward operation on the host, in "
                "each step",
                suggestion="turn it on only while you look for a NaN",
            )


def _by_debugger(model: FileModel) -> Iterator[Problem]:
    """``pdb.set_trace()`` that each step comes to."""
    for call in model.calls(*_DEBUGGERS):
        loop = costly_loop(model, call.node)
        if loop is None or model.guards(call.node):
            continue
        yield model.problem(
            call.node,
            "every step stops in the debugger here, which a process of several cores has no "
            "terminal for: it raises BdbQuit",
            suggestion="take it out, or ask for it: `if args.debug:`",
            related=[loop_place(model, loop)],
        )


def _is_switched(model: FileModel, call: CallSite) -> bool:
    """Whether a condition turns it on; what leaves the loop before is one if it says so."""
    around = model.tree.ancestors(call.node)
    return any(
        guard.node in around or not _DEBUGS.isdisjoint(words(model.tree.text(guard.test)))
        for guard in model.guards(call.node)
    )


def _by_fabric(model: FileModel) -> Iterator[Problem]:
    """``fabric.clip_gradients(net, optimizer, max_norm=1.0)``: it checks unless told not to."""
    for call in clips_of_fabric(model) if "lightning" in model.frameworks else ():
        checks, loop = call.keywords.get("error_if_nonfinite"), costly_loop(model, call.node)
        off = call.has_star or (checks is not None and model.literal(checks) is not True)
        if loop is not None and not off:
            yield model.problem(
                call.node,
                "Fabric checks the norm (error_if_nonfinite is True unless it is said), which "
                "reads it on the host in every step: the host waits and the graph is cut there",
                suggestion="error_if_nonfinite=False",
                related=[loop_place(model, loop)],
                fix=None
                if checks is not None
                else model.fix(
                    "Do not check",
                    model.add_argument(call.node, "error_if_nonfinite=False"),
                    safe=False,
                ),
            )
