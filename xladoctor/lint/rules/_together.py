"""What brings the values of the cores together, and in which names they stand then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Equal
from xladoctor.lint.model import Function
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules._handed_over import is_accelerator

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel

#: Methods that bring the values of the cores together.
_GATHERS = know.REDUCE_METHODS | {"synchronize"}


def brings_together(model: FileModel, call: CallSite) -> bool:
    """Whether a call brings the values of the cores together by itself: not a bare meeting."""
    if call.last == "rendezvous" and len(call.node.args) == 1:
        return False
    if picks(model, call):
        return False
    return model.effects.equals(call, Equal.RESULT) or call.method in _GATHERS


def picks(model: FileModel, call: CallSite) -> bool:
    """``logits.gather(1, labels)``, ``torch.gather``: of a tensor's own elements."""
    place = call.argument(0, "dim") if call.method == "gather" and call.name is None else None
    return call.name == "torch.gather" or (
        place is not None and isinstance(model.literal(place), int)
    )


class Together:
    """Questions about functions: what do they bring together, on their way or in place?

    Args:
        model: The file that asks.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._meets: dict[Function, bool] = {}
        self._names: dict[Function | None, frozenset[str] | None] = {}

    def meets(self, function: Function) -> bool:
        """Whether a function, or what it runs, may bring anything together in place.

        Methods of Accelerate's object give back what they have brought together.
        """
        if function not in self._meets:
            self._meets[function] = any(
                brings_together(self._model, call) and not is_accelerator(self._model, call)
                for call in self._model.reached(function.node)
            )
        return self._meets[function]

    def names(self, function: Function | None, home: FileModel) -> frozenset[str] | None:
        """The names that a function may bring together in place; None where these may be any."""
        if function not in self._names:
            self._names[function] = self._brought_in(function, home)
        return self._names[function]

    def _brought_in(self, function: Function | None, home: FileModel) -> frozenset[str] | None:
        found: set[str] = set()
        loops = (one for one in self._model.loops_of_program if one.function is function)
        has_batches = any(one.iterates.is_loader for one in loops)
        for call in home.calls():
            if call.function is not function or not self.joins(call):
                continue
            # What a loop's own function reduces as well it tells beside that on purpose.
            used = not isinstance(home.parent(call.node), cst.Expr)
            if used and not has_batches and not (call.name or "").startswith("torch.distributed."):
                continue
            given = (x.value for x in call.node.args if not isinstance(x.value, cst.Lambda))
            names = {name for one in given for name in names_in(one)}
            if call.name is None and call.receiver is not None:
                names |= names_in(call.receiver)
            unknown = call.name is None and call.target is None
            if not names or unknown:
                return None
            found |= names
        return frozenset(_behind(self._model, function, found)) if function else frozenset(found)

    def joins(self, call: CallSite) -> bool:
        """Whether a call brings something together by itself, or by the function that it runs."""
        if is_accelerator(self._model, call):
            return False
        if isinstance(call.target, Function):
            return self.meets(call.target)
        return brings_together(self._model, call)


def _behind(model: FileModel, function: Function, names: set[str]) -> set[str]:
    """Names, and what a function computes them of: ``both = torch.stack([hits, count])``."""
    lines = [
        (names_in(target.target), names_in(line.value))
        for line in model.within(function.node, cst.Assign)
        for target in line.targets
    ]
    found, before = set(names), 0
    while len(found) > before:
        before = len(found)
        for targets, value in lines:
            if targets & found:
                found |= value
    return found
