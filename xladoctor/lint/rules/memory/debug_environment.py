"""XLA714: a switch for looking for faults is left on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint import family
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import SHELL, exported_alone, is_off, settings
from xladoctor.lint.rules._protocol import EAGER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.problems import Place


@functools.cache
def _switches() -> tuple[tuple[str, str, str], ...]:
    """The member of the family of devices, name and effect of each switch."""
    own = catalogue.table("environment")["debugging"]
    rows = [{"member": family.TORCH_XLA, **row} for row in own]
    rows += catalogue.table("devices")["debugging"]
    return tuple((row["member"], row["name"], row["effect"]) for row in rows)


def _known(model: FileModel) -> dict[str, str]:
    """What each switch of the devices that a file is for does."""
    return {name: effect for member, name, effect in _switches() if member in model.members}


@rule("XLA714")
def debug_environment(model: FileModel) -> Iterator[Problem]:
    """Find settings of debugging variables that no condition turns off."""
    if not model.is_xla:
        return
    known = _known(model)
    for name, spot, _ in settings(model):
        if name in known and not _meant(model, spot) and not is_off(model, spot):
            yield _problem(model, spot, name, known[name])
    for number, line in model.shell:
        if line.startswith("!") and exported_alone(line[1:]) is not None:
            continue  # a shell of its own, gone after the line
        for match in SHELL.finditer(line):
            name = match["name"]
            if name in known and not line[match.end() - 1 :].startswith("=0"):
                yield _problem(model, model.place_of_row(number), name, known[name])
    yield from _modes(model, known)
    for call in model.calls(EAGER):
        mode = call.argument(0, "enable")
        if mode is None or model.literal(mode) is not True or _meant(model, call.node):
            continue
        compiles = next(iter(model.calls("torch_xla.compile", "torch_xla.step")), None)
        if compiles is not None or _compiled(model) or _inherits(model):
            continue  # eager outside, compiled steps: what eager mode is for
        yield model.problem(
            call.node,
            "eager mode compiles and runs every operation by itself: torch_xla's own figures are "
            "a small fraction of the speed of a traced step",
            suggestion="leave it out, or put the step into torch_xla.compile",
        )


def _modes(model: FileModel, known: dict[str, str]) -> Iterator[Problem]:
    """Modes that are chosen in Python: ``torch.tpu.eager_mode = ...``, ``set_eager_mode(...)``."""
    for node in model.nodes(cst.Assign):
        name = model.name(node.value)
        if name not in known:
            named = (model.name(item.target) for item in node.targets)
            name = next((one for one in named if one in known), None)
            if name is None or model.literal(node.value) is not True:
                continue
        if name is not None and not _meant(model, node):
            yield _problem(model, node, name, known[name])
    for call in model.calls("torch.tpu.set_eager_mode"):
        mode = call.argument(0, "mode")
        name = model.name(mode) if mode is not None else None
        if name in known and name is not None and not _meant(model, call.node):
            yield _problem(model, call.node, name, known[name])


def _problem(model: FileModel, spot: cst.CSTNode | Place, name: str, effect: str) -> Problem:
    return model.problem(
        spot,
        f"{name} is for looking for faults and is left on: it {effect}",
        suggestion="set it where you need it, in the shell or under `if args.debug:`",
    )


def _meant(model: FileModel, node: cst.CSTNode) -> bool:
    """Under a condition, or in a test: someone has thought of it."""
    starts = ("test_", "debug", "setUp")
    if any(function.name.startswith(starts) for function in model.functions_around(node)):
        return True
    return any("__name__" not in model.tree.text(guard.test) for guard in model.guards(node))


def _compiled(model: FileModel) -> bool:
    names = {
        model.name(item.func if isinstance(item, cst.Call) else item)
        for function in model.functions
        for item in function.decorators
    }
    return bool(names & {"torch_xla.compile", "torch_xla.step"})


def _inherits(model: FileModel) -> bool:
    """Whether a class gets its methods from a file that is not in sight, and may compile there."""
    names = (model.name(base) for cls in model.classes for base in cls.bases)
    return any(name is not None and not name.startswith(("torch.", "builtins.")) for name in names)
