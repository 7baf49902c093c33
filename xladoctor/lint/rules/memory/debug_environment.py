"""XLA714: a switch for looking for faults is left on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint import family
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._environment import SETTING, SHELL, is_off, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.file import Place

_EAGER = "torch_xla.experimental.eager_mode"


@functools.cache
def _switches() -> dict[str, str]:
    """What each switch does, of all members of the family of devices."""
    rows = [*catalogue.table("environment")["debugging"], *catalogue.table("devices")["debugging"]]
    return {row["name"]: row["effect"] for row in rows}


def _known(model: FileModel) -> frozenset[str]:
    """The switches of the devices that a file is for."""
    own = catalogue.table("environment")["debugging"] if family.TORCH_XLA in model.members else []
    others = (
        row for row in catalogue.table("devices")["debugging"] if row["member"] in model.members
    )
    return frozenset(row["name"] for row in (*own, *others))


@rule("XLA714")
def debug_environment(model: FileModel) -> Iterator[Problem]:
    """Find settings of debugging variables that no condition turns off."""
    if not model.is_xla:
        return
    known = _known(model)
    for node in model.nodes(*SETTING):
        for name, spot in settings(model, node):
            if name in known and not _meant(model, spot) and not is_off(model, spot):
                yield _problem(model, spot, name)
    for number, line in model.shell:
        for match in SHELL.finditer(line):
            if match["name"] in known and not line[match.end() - 1 :].startswith("=0"):
                yield _problem(model, model.place_of_row(number), match["name"])
    yield from _modes(model, known)
    for call in model.calls(_EAGER):
        mode = call.argument(0, "enable")
        if mode is None or model.literal(mode) is not True or _meant(model, call.node):
            continue
        compiles = any(True for _ in model.calls("torch_xla.compile", "torch_xla.step"))
        if compiles or _compiled(model) or _inherits(model):
            continue  # eager outside, compiled steps: what eager mode is for
        yield model.problem(
            call.node,
            "eager mode compiles and runs every operation by itself: torch_xla's own figures are "
            "a small fraction of the speed of a traced step",
            suggestion="leave it out, or put the step into torch_xla.compile",
        )


def _modes(model: FileModel, known: frozenset[str]) -> Iterator[Problem]:
    """Modes that are chosen in Python: ``torch.tpu.eager_mode = ...``, ``set_eager_mode(...)``."""
    for node in model.nodes(cst.Assign):
        assert isinstance(node, cst.Assign)
        name = model.name(node.value)
        if name not in known:
            named = (model.name(item.target) for item in node.targets)
            name = next((one for one in named if one in known), None)
            if name is None or model.literal(node.value) is not True:
                continue
        if name is not None and not _meant(model, node):
            yield _problem(model, node, name)
    for call in model.calls("torch.tpu.set_eager_mode"):
        mode = call.argument(0, "mode")
        name = model.name(mode) if mode is not None else None
        if name in known and name is not None and not _meant(model, call.node):
            yield _problem(model, call.node, name)


def _problem(model: FileModel, spot: cst.CSTNode | Place, name: str) -> Problem:
    return model.problem(
        spot,
        f"{name} is for looking for faults and is left on: it {_switches()[name]}",
        suggestion="set it where you need it, in the shell or under `if args.debug:`",
    )


def _meant(model: FileModel, node: cst.CSTNode) -> bool:
    """Under a condition, or in a test: someone has thought of it."""
    function = model.function_of(node)
    while function is not None:
        if function.name.startswith(("test_", "debug", "setUp")):
            return True
        function = function.outer
    return bool(
        [guard for guard in model.guards(node) if "__name__" not in model.tree.text(guard.test)]
    )


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
