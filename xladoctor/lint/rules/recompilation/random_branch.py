"""XLA207: Python's dice decide which operations a step has."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.conditions import compared
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.turns import last_of
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import assigned, drawn, drawn_in, tossed
from xladoctor.lint.rules._reads import costly_loop, loop_place, snippet
from xladoctor.lint.rules._sources import the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem

#: What picks of a list.
_PICKS = frozenset(
    f"{module}.{name}"
    for module in ("random", "numpy.random")
    for name in ("choice", "choices", "sample")
)
#: Shares of layers that models leave out in training, which are 0 unless a configuration says so.
_OFF = re.compile(r"(layer|path|depth)_?(drop|prob|rate)|drop_?(layer|path|depth)", re.IGNORECASE)
_LOOPS = (cst.For, cst.While, cst.FunctionDef)
_LEAVES = (cst.Return, cst.Continue, cst.Break)
_NOT_DICE = frozenset({"random.seed", "random.Random", "numpy.random.seed"})


@rule("XLA207")
def random_branch(model: FileModel) -> Iterator[Problem]:
    """Find ``if random.random() < p`` around device work in hot loops."""
    for node in model.nodes(cst.If, cst.While):
        assert isinstance(node, cst.If | cst.While)
        if not _throws(model, node.test) or _may_be_off(model, node.test):
            continue
        if node.test in model.tree.decided:
            continue  # the dice are thrown for nothing
        loop = costly_loop(model, node)
        if loop is None or not _decides_work(model, node, loop):
            continue
        yield model.problem(
            node.test,
            f"{snippet(model, node.test)} decides which operations the step has: each combination "
            "of such choices is a graph of its own, compiled when it first comes up",
            suggestion="choose with data: keep = torch.rand(n, device=device) < p, then "
            "torch.where(keep, a, b); or choose in the Dataset, on the host",
            related=[loop_place(model, loop)],
        )
    yield from _rounds(model)
    yield from _sizes(model)
    yield from _modes(model)
    yield from _callees(model)


def _decides_work(model: FileModel, node: cst.If | cst.While, loop: Loop) -> bool:
    """Whether work of the device runs by a condition.

    What is read there has a graph of its own, the same each time: an agent that acts by chance or
    asks its network.
    """
    if any(_computes(model, part) for part in walk(node.body)):
        return True
    other = list(_otherwise(model, node, loop))
    return any(_computes(model, part) for part in other) and not any(
        isinstance(part, cst.Call) and model.effects.is_read(part) for part in other
    )


def _otherwise(model: FileModel, node: cst.If | cst.While, loop: Loop) -> Iterator[cst.CSTNode]:
    """What runs if a condition does not hold: the other branch, what stands behind one that leaves.

    A turn of the step loop that is left whole is no other step.
    """
    if isinstance(node, cst.While):
        return
    if isinstance(node.orelse, cst.Else):
        yield from walk(node.orelse)
    last, block = last_of(node.body), model.parent(node)
    around = next((x for x in model.tree.ancestors(node) if isinstance(x, _LOOPS)), None)
    if isinstance(last, cst.Return):
        whole = last.value is None and loop.implicit and model.function_of(node) is loop.function
    else:
        whole = around is loop.node
    if isinstance(last, _LEAVES) and not whole and isinstance(block, cst.IndentedBlock):
        behind = itertools.dropwhile(lambda line: line is not node, block.body)
        for line in itertools.islice(behind, 1, None):
            yield from walk(line)


def _rounds(model: FileModel) -> Iterator[Problem]:
    """``for _ in range(random.randint(1, 4)): x = layer(x)``: how often, by Python's dice."""
    for node in model.nodes(cst.For):
        over = node.iter
        if not isinstance(over, cst.Call) or model.name(over.func) != "builtins.range":
            continue
        made = next(filter(None, (drawn_in(model, one.value) for one in over.args)), None)
        loop = costly_loop(model, node) if made is not None else None
        if made is None or loop is None or loop.node is node:
            continue
        if model.hot_loop(made.node) is None or not any(_computes(model, x) for x in walk(node)):
            continue
        yield model.problem(
            over,
            f"{snippet(model, made.node)} decides how often this is computed: each number of turns "
            "is a graph of its own, compiled when it first comes up",
            suggestion="take the same number in every step; or compute the most, and choose with "
            "data: torch.where(turn < n, new, x)",
            related=[loop_place(model, loop), model.place(made.node, "drawn here")],
        )


def _callees(model: FileModel) -> Iterator[Problem]:
    """``criterion = random.choice(self.losses)``, and then ``criterion(outputs, labels)``."""
    told: set[cst.Call] = set()
    for call in model.calls():
        made = drawn(model, call.node.func) or _drawn_turn(model, call.node.func)
        if made is None or made.name not in _PICKS or made.node in told:
            continue
        given = [*call.positional, *call.keywords.values()]
        loop = costly_loop(model, call.node)
        if loop is None or model.hot_loop(made.node) is None:
            continue
        if not any(model.value(one).holds_device_tensor for one in (call.node, *given)):
            continue
        told.add(made.node)
        yield model.problem(
            made.node,
            f"{snippet(model, made.node)} decides what the step computes: each choice is a graph "
            "of its own, compiled when it first comes up",
            suggestion="choose in the Dataset, on the host; or compute all and choose with data: "
            "torch.where(coin < p, a, b)",
            related=[loop_place(model, loop), model.place(call.node, "computes what was drawn")],
        )


def _drawn_turn(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """``for op in random.sample(ops, 2)``: the call that draws what a name is in each turn."""
    if not isinstance(node, cst.Name):
        return None
    for binding in model.bindings(node.value, node):
        part = model.taken(binding.node)
        if part is not None and isinstance(part.line, cst.For) and not part.places:
            return drawn(model, part.value)
    return None


def _sizes(model: FileModel) -> Iterator[Problem]:
    """``n = 2 if random.random() < p else 1``, and then ``torch.randn(n, 8, device=device)``."""
    for node in model.nodes(cst.IfExp):
        loop = costly_loop(model, node) if _throws(model, node.test) else None
        if loop is None:
            continue
        chosen = [part for side in (node.body, node.orelse) for part in (side, *walk(side))]
        if not any(_computes(model, part) for part in chosen) and not _is_size(model, node):
            continue
        yield model.problem(
            node.test,
            f"{snippet(model, node.test)} decides what the step computes, and with which shapes: "
            "each combination of such choices is a graph of its own, compiled when it first comes "
            "up",
            suggestion="compute both and choose with data: torch.where(coin < p, a, b)",
            related=[loop_place(model, loop)],
        )


def _is_size(model: FileModel, node: cst.IfExp) -> bool:
    """Whether what is chosen is a number that a tensor of the device is made with."""
    line = model.parent(node)
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(target, cst.Name):
        return False
    return any(
        isinstance(part, cst.Name)
        and part.value == target.value
        and node in model.assigned_to(part)
        for call in model.calls()
        if (call.name or "").startswith("torch.") and model.value(call.node).is_device_tensor
        for argument in call.node.args
        for part in walk(argument)
    )


def _modes(model: FileModel) -> Iterator[Problem]:
    """``F.interpolate(x, mode=mode)`` with ``mode = random.choice(["area", "bilinear"])``."""
    for call in model.calls():
        if not (call.name or "").startswith("torch.") or not call.positional:
            continue
        given = model.value(call.positional[0])
        if not given.is_device_tensor and not given.made_of_device:
            continue
        for value in call.keywords.values():
            made = drawn(model, value)
            texts = made is not None and any(
                isinstance(part, cst.SimpleString)
                for argument in made.node.args
                for part in walk(argument)
            )
            loop = costly_loop(model, call.node) if texts else None
            if made is None or loop is None or model.hot_loop(made.node) is None:
                continue
            yield model.problem(
                value,
                f"{snippet(model, value)} is drawn, and decides which operations the step has: "
                "each combination of such choices is a graph of its own, compiled when it first "
                "comes up",
                suggestion="choose in the Dataset, on the host; or take one of them for all",
                related=[loop_place(model, loop), model.place(made.node, "drawn here")],
            )


def _throws(model: FileModel, test: cst.BaseExpression) -> bool:
    """``random.random() < p``, and ``"box" in kind`` of ``kind = random.choice(kinds)``."""
    for part in walk(test):
        made = drawn(model, part) or tossed(model, part) or _tossed_before(model, part)
        if made is None or made.name in _NOT_DICE:
            continue
        if made.node is part or model.hot_loop(made.node) is not None:
            return True
    return False


def _may_be_off(model: FileModel, test: cst.BaseExpression) -> bool:
    """``random.random() < self.layerdrop``: 0 in most models, unless the program says a number."""
    return any(
        _OFF.search(model.tree.text(side)) is not None
        and model.literal(the_source(model, side)) in (NotImplemented, 0)
        for part in model.within(test, cst.Comparison)
        for side in compared(part)
    )


def _tossed_before(model: FileModel, node: cst.CSTNode) -> CallSite | None:
    """``forced = random.random() < 0.5`` before ``if forced:``."""
    values = assigned(model, node) if isinstance(node, cst.Name) else []
    for value in values:
        for part in _decides(model, value):
            made = drawn(model, part) if isinstance(part, cst.Call) else None
            made = made or tossed(model, part)
            if made is not None:
                return made
    return None


def _is_certain(model: FileModel, ratio: cst.BaseExpression) -> bool:
    """Whether a probability is 0 or 1, so far as anybody says: a default that nobody overrides.

    Not what the command line may set: an option that is off by default is there to be turned on.
    """
    number = model.literal(ratio)
    function = model.with_parameter(ratio) if isinstance(ratio, cst.Name) else None
    if number is not NotImplemented or not isinstance(ratio, cst.Name) or function is None:
        return number in (0, 1)
    given = [call.given_to(function, ratio.value) for call in model.callers(function)]
    said = [one for one in (*given, function.default(ratio.value)) if one is not None]
    return bool(said) and all(model.literal(one) in (0, 1) for one in said)


def _decides(model: FileModel, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a yes or no is decided by: both sides of a comparison, the test of a choice."""
    if isinstance(node, cst.Comparison):
        sides = compared(node)
        yield from () if any(_is_certain(model, side) for side in sides) else sides
    elif isinstance(node, cst.BooleanOperation):
        yield from (*_decides(model, node.left), *_decides(model, node.right))
    elif isinstance(node, cst.UnaryOperation):
        yield from _decides(model, node.expression)
    elif isinstance(node, cst.IfExp):
        yield from _decides(model, node.test)


def _computes(model: FileModel, node: cst.CSTNode) -> bool:
    """A call, an operator or an assignment whose result is a device tensor."""
    if isinstance(node, cst.Assign):
        taken = isinstance(node.value, cst.Subscript)
        held = taken and model.value(node.value).holds_device_tensor
        return held or (is_name(node.value, "None") and _is_left_out(model, node))
    if isinstance(node, cst.Call | cst.BinaryOperation):
        value = model.value(node)
        return (value.is_device_tensor or value.made_of_device) and not _moves(node)
    return False


def _is_left_out(model: FileModel, line: cst.Assign) -> bool:
    """``labels = None``, which the model gets: it computes without them then."""
    target = line.targets[0].target
    function = model.function_of(line)
    return isinstance(target, cst.Name) and any(
        call.function is function and model.value(call.node).is_device_tensor
        for call in model.calls()
        if any(is_name(argument.value, target.value) for argument in call.node.args)
    )


def _moves(node: cst.CSTNode) -> bool:
    method = node.func.attr.value if _is_method(node) else ""  # type: ignore[attr-defined]
    return method in {"to", "detach", "item", "cpu"}


def _is_method(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
