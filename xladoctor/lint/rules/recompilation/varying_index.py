"""XLA205: a Python number that counts the steps is used as an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import Function, Kind, LoopKind, OnXla, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.loops import HOT
from xladoctor.lint.model.parts import each_in
from xladoctor.lint.model.turns import names_in
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import around, assigned, bounds
from xladoctor.lint.rules._graph_constants import graph_constants
from xladoctor.lint.rules._listed_numbers import listed_places
from xladoctor.lint.rules._read_numbers import was_read
from xladoctor.lint.rules._reads import costly_loop, loop_place, often, snippet
from xladoctor.lint.rules._rings import counted
from xladoctor.lint.rules._sources import gone_over
from xladoctor.lint.rules._tokenized import length_of_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop, Problem, Value

#: What gives one of the numbers that it is given.
_KEEPS = frozenset({"builtins.min", "builtins.max"})
#: Names on the way from a number to the counter that it is made of.
_NAMES = 3
#: What gives the whole part of a number.
_ROUNDS = frozenset({"builtins.int", "builtins.round", "math.floor", "math.ceil", "math.trunc"})


@rule("XLA205")
def varying_index(model: FileModel) -> Iterator[Problem]:
    """Find reads such as ``table[step]`` of device tensors, where ``step`` counts the loop."""
    for loop in model.loops:
        hot = loop.kind in HOT
        if not hot and loop.kind is not LoopKind.OTHER:
            continue
        counters = _counters(model, loop)
        if not counters or not (hot or _writes_in_turns(model, loop)):
            continue
        together = model.members in (frozenset(), frozenset({family.TORCH_XLA}))
        if together and not loop.iterates.is_loader and not _ends_graph(model, loop):
            continue  # all turns are one graph (accumulation of gradients): the same every time
        for node, name in _made_constants(model, loop, counters):
            numbers = graph_constants(model, node, likely=True)
            again = any(counted(model, node, number) is not number for number in numbers)
            yield model.problem(
                node,
                f"`{name}` becomes a constant of the graph: {snippet(model, node)} makes a new "
                f"graph {'in each turn' if loop.kind is LoopKind.OTHER else often(loop)}, and each "
                f"is compiled{' until they come again' if again else ''}",
                suggestion=_advice(node, loop),
                related=[loop_place(model, loop)],
            )
    yield from _kept_counters(model)
    yield from _read_places(model)
    yield from _ends_of_texts(model)
    yield from _places_of_batches(model)


def _writes_in_turns(model: FileModel, loop: Loop) -> bool:
    """A loop over tokens that runs a model in each turn, and ends its graph there itself."""
    if loop.kind is not LoopKind.OTHER or loop.implicit or not model.is_xla:
        return False
    if model.on_xla(loop.node) is OnXla.NO:
        return False
    calls = [call for call in model.reached(loop.node) if model.loop(call.node) is loop]
    if not any(model.effects.ends_graph(call) and not model.throttled(call.node) for call in calls):
        return False
    values = (x for call in calls for x in (model.value(call.node.func), _holder(model, call)))
    return any(value.kind is Kind.MODEL for value in values)


def _holder(model: FileModel, call: CallSite) -> Value:
    return model.value(call.receiver if call.receiver is not None else call.node)


def _advice(node: cst.BaseExpression, loop: Loop) -> str:
    if not isinstance(node, cst.Subscript):
        return "keep sizes and exponents the same in every step (the largest, and a mask)"
    if loop.kind is LoopKind.ROLLOUT:
        return "append to a list, and torch.stack it when the rollout is over"
    return "index with a tensor: x.index_select(0, torch.tensor([step], device=device))"


def _read_places(model: FileModel) -> Iterator[Problem]:
    """``at = int(self.queue_at)``, and then ``self.queue[:, at : at + n] = keys``."""
    for node in model.nodes(cst.Subscript):
        begins = [place for element in node.slice if (place := _begins(element.slice)) is not None]
        at = next((part for part in begins if was_read(model, part)), None)
        if at is None or not model.value(node.value).is_device_tensor:
            continue
        loop = costly_loop(model, node)
        if loop is not None:
            yield model.problem(
                node,
                f"{snippet(model, at)} was read from the device and becomes a constant of the "
                f"graph: {snippet(model, node)} makes a new graph for each of its values, and each "
                f"is compiled ({often(loop)}, until they come again)",
                suggestion="leave it on the device: x.index_copy_(1, at + torch.arange(n, "
                "device=device), values)",
                related=[loop_place(model, loop)],
            )


def _ends_of_texts(model: FileModel) -> Iterator[Problem]:
    """``labels[:, :n] = -100`` with ``n = len(tokenizer(prompt).input_ids)``."""
    for node in model.nodes(cst.Subscript):
        ends = list(bounds(node))
        loop = costly_loop(model, node) if ends else None
        if loop is None or not graph_constants(model, node, likely=True):
            continue
        end = next((one for one in ends if length_of_text(model, one) is not None), None)
        if end is not None:
            yield model.problem(
                node,
                f"{snippet(model, end)} is as long as a text and becomes a constant of the graph: "
                f"{snippet(model, node)} makes a new graph for each length, and each is compiled "
                f"({often(loop)}, until they come again)",
                suggestion="mark the tokens on the host, before they are moved; or compare places "
                "with a tensor: torch.where(torch.arange(n, device=device) < length, -100, labels)",
                related=[loop_place(model, loop)],
            )


def _places_of_batches(model: FileModel) -> Iterator[Problem]:
    """``for row, place in enumerate(batch["places"]): hidden[row, place]`` of lists."""
    for node, place in listed_places(model):
        loop = costly_loop(model, node)
        if loop is not None:
            yield model.problem(
                node,
                f"{snippet(model, place)} is a number of the batch and a constant of the graph: "
                f"each of its values is a new graph, and compiled ({often(loop)})",
                suggestion="let collate_fn make a tensor of them, padded to one length, and index "
                "with it: x.gather(1, places), or torch.where with a mask",
                related=[loop_place(model, loop)],
            )


def _begins(index: cst.BaseSlice) -> cst.BaseExpression | None:
    """``at`` of ``x[at]`` and of ``x[at : at + n]``."""
    if isinstance(index, cst.Index):
        return index.value
    return index.lower if isinstance(index, cst.Slice) else None


def _kept_counters(model: FileModel) -> Iterator[Problem]:
    """``self.queue[self.at : self.at + n] = x`` in the step, which then counts ``self.at`` up."""
    counters = _counted_up(model)
    for node in model.nodes(cst.Subscript) if counters else ():
        given = graph_constants(model, node, likely=True)
        numbers = [counted(model, node, number) for number in given]
        name = next((x for part in numbers for x in counters if _holds(model, part, x)), None)
        loop = costly_loop(model, node) if name is not None else None
        if loop is None:
            continue
        yield model.problem(
            node,
            f"`{name}` becomes a constant of the graph: {snippet(model, node)} makes a new graph "
            f"for each of its values, and each is compiled ({often(loop)}, until they come again)",
            suggestion="index with a tensor that is kept on the device: "
            "x.index_copy_(0, at + torch.arange(n, device=device), values)",
            related=[loop_place(model, loop), model.place(counters[str(name)], "counted up here")],
        )


def _counted_up(model: FileModel) -> dict[str, cst.CSTNode]:
    """Attributes that a step counts up (``self.at = (self.at + n) % size``), and where."""
    found: dict[str, cst.CSTNode] = {}
    for line in model.nodes(cst.Assign, cst.AugAssign):
        assert isinstance(line, cst.Assign | cst.AugAssign)
        target = line.target if isinstance(line, cst.AugAssign) else line.targets[0].target
        if not isinstance(target, cst.Attribute) or model.hot_loop(line) is None:
            continue
        name = model.tree.text(target).strip()
        counts = isinstance(line, cst.AugAssign) and isinstance(line.operator, cst.AddAssign)
        if counts or any(
            isinstance(part, cst.BinaryOperation)
            and isinstance(part.operator, cst.Add)
            and model.tree.text(part.left).strip() == name
            for part in walk(line.value)
        ):
            found[name] = line
    return found


def _holds(model: FileModel, node: cst.BaseExpression, name: str) -> bool:
    """Whether an index is the counter, or a sum with it (what is left over repeats: ``% 2``)."""
    if isinstance(node, cst.BinaryOperation):
        sums = isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply)
        return sums and (_holds(model, node.left, name) or _holds(model, node.right, name))
    number = model.value(node).kind in {Kind.NUMBER, Kind.UNKNOWN}
    return isinstance(node, cst.Attribute) and number and model.tree.text(node).strip() == name


def _made_constants(
    model: FileModel, loop: Loop, counters: list[str]
) -> Iterator[tuple[cst.BaseExpression, str]]:
    """The same for all counters: each operation once."""
    found = (pair for counter in counters for pair in _made_constant(model, loop, counter))
    yield from {node: (node, name) for node, name in found}.values()


def _made_constant(
    model: FileModel, loop: Loop, counter: str
) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Operations on device tensors that take the counter, and its name there."""
    places: list[tuple[cst.CSTNode, str]] = [(loop.node, counter)]
    for call in map(model.call, model.within(loop.node, cst.Call)):
        function = call.target
        if isinstance(function, Function) and model.loop(call.node) is loop:
            names = (counter,) if _sees(model, function, loop, counter) else _handed(call, counter)
            places += [(function.node, name) for name in names]
    for place, name in places:
        for node in walk(place, into_functions=False):
            numbers = graph_constants(model, node, likely=loop.kind is LoopKind.OTHER)
            if not any(
                _is_counter(model, counted(model, node, part), name)
                and not _fills_up(model, node, part, name)
                for part in numbers
            ):
                continue
            around = model.loop(node) if place is loop.node else None
            hot = costly_loop(model, node) is loop or loop.kind is LoopKind.OTHER
            if hot and around in (loop, None) and model.is_here(node):
                assert isinstance(node, cst.BaseExpression)
                yield node, name


def _sees(model: FileModel, function: Function, loop: Loop, counter: str) -> bool:
    """Whether a function within the loop's own takes the counter from there, as a closure does."""
    if loop.function is None or loop.function.node not in model.tree.ancestors(function.node):
        return False
    bound = (part for part in walk(function.node) if isinstance(part, cst.AssignTarget | cst.For))
    return counter not in function.parameters and not any(
        is_name(name, counter) for part in bound for name in (part.target, *each_in(part.target))
    )


def _handed(call: CallSite, counter: str) -> Iterator[str]:
    """The parameters of a function that a call in the loop gives the counter to."""
    assert isinstance(call.target, Function)
    for index, name in enumerate(call.target.parameters):
        given = call.argument(index, name)
        if is_name(given, counter):
            yield name


def _ends_graph(model: FileModel, loop: Loop) -> bool:
    """Whether something ends the graph of each turn: in a rollout, what brings the action back."""
    reads = {"item", "cpu", "tolist"} if loop.kind is LoopKind.ROLLOUT else {"item"}
    return any(
        model.effects.ends_graph(call) or call.method in reads for call in model.reached(loop.node)
    )


def _counters(model: FileModel, loop: Loop) -> list[str]:
    """The names that count the iterations: of ``enumerate`` or ``range``, or ``at += 1``."""
    node = loop.node
    if not isinstance(node, cst.For | cst.While):
        return []
    found = [
        line.target.value
        for line in model.within(node.body, cst.AugAssign)
        if isinstance(line.operator, cst.AddAssign)
        and isinstance(line.target, cst.Name)
        and (isinstance(line.value, cst.Integer) or model.value(line.value).kind is Kind.NUMBER)
        and model.loop(line) is loop
    ]
    counter = _counter(model, node) if isinstance(node, cst.For) else None
    if counter is None or not isinstance(node, cst.For) or _takes_models(model, node):
        return found
    return [counter, *found]


def _counter(model: FileModel, loop: cst.For) -> str | None:
    """The name that ``range`` or ``enumerate`` gives its numbers to."""
    calls = (one for one in gone_over(model, loop.iter) if isinstance(one, cst.Call))
    names = [model.name(one.func) for one in calls]
    if "builtins.range" in names and isinstance(loop.target, cst.Name):
        return loop.target.value
    first = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else None
    counts = "builtins.enumerate" in names and isinstance(first, cst.Name)
    return first.value if counts and isinstance(first, cst.Name) else None


def _takes_models(model: FileModel, loop: cst.For) -> bool:
    """``for i, agent in enumerate(self.agents)``: a model or optimizer of its own in each turn.

    There are as many numbers as models, and they come again.
    """
    taken = names_in(loop.target)
    for line in walk(loop.body, into_functions=False):
        if isinstance(line, cst.Assign) and isinstance(line.value, cst.Subscript):
            index = line.value.slice[0].slice
            if isinstance(index, cst.Index) and names_in(index) & taken:
                taken |= names_in(line.targets[0].target)
    return any(
        isinstance(part, cst.Name | cst.Attribute | cst.Subscript)
        and model.value(part).kind in {Kind.MODEL, Kind.OPTIMIZER}
        and bool(names_in(part) & taken)
        for part in walk(loop.body, into_functions=False)
    )


def _fills_up(
    model: FileModel, node: cst.CSTNode, number: cst.BaseExpression, counter: str
) -> bool:
    """``if done + len(x) > most: x = x[: most - done]``: the last batch alone is cut so."""
    made = assigned(model, number) if isinstance(number, cst.Name) else [number]
    for left in made:
        if not isinstance(left, cst.BinaryOperation) or not isinstance(left.operator, cst.Subtract):
            continue
        most = model.tree.text(left.left).strip()
        for guard in model.guards(node):
            test = guard.test
            if not isinstance(test, cst.Comparison) or not guard.when:
                continue
            names = {part.value for part in walk(test) if isinstance(part, cst.Name)}
            sides = [model.tree.text(one).strip() for one in (test.left, *_compared(test))]
            if counter in names and most in sides:
                return True
    return False


def _compared(test: cst.Comparison) -> list[cst.BaseExpression]:
    return [each.comparator for each in test.comparisons]


def _is_counter(model: FileModel, node: cst.BaseExpression, counter: str) -> bool:
    """The counter itself, or a sum or product with it; not ``step % 2``, which repeats."""
    if isinstance(node, cst.BinaryOperation):
        if not isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply):
            return False
        return _is_counter(model, node.left, counter) or _is_counter(model, node.right, counter)
    if isinstance(node, cst.Call):
        return _counts_too(model, model.call(node), counter)
    if isinstance(node, cst.Name) and node.value != counter:
        made = assigned(model, node)
        return (
            len(made) == 1
            and not isinstance(made[0], cst.Name)
            and _is_sum(model, made[0], counter)
        )
    if not isinstance(node, cst.Name):
        return False
    # Another loop around the index may bind the name anew.
    return not any(isinstance(parent, cst.CompFor | cst.Lambda) for parent in around(model, node))


def _counts_too(model: FileModel, call: CallSite, counter: str) -> bool:
    """``int(n * step / total)``, and ``budget(step)`` of the program, which gives such a number."""
    if call.name in _KEEPS:
        return any(_is_counter(model, one, counter) for one in call.positional)
    if call.name in _ROUNDS:
        return any(_is_share(model, one, counter) for one in call.positional)
    function = call.target
    return isinstance(function, Function) and any(
        _is_counter(model, value, name)
        for name in _handed(call, counter)
        for value in returned(function)
    )


def _is_share(
    model: FileModel, node: cst.BaseExpression, counter: str, depth: int = _NAMES
) -> bool:
    """Arithmetic with the counter, of which the whole part is taken: ``n * (1 - step / total)``."""
    if isinstance(node, cst.BinaryOperation):
        repeats = isinstance(node.operator, cst.Modulo | cst.FloorDivide)
        return not repeats and any(
            _is_share(model, side, counter, depth) for side in (node.left, node.right)
        )
    if isinstance(node, cst.Call) and model.name(node.func) in _KEEPS | _ROUNDS:
        return any(_is_share(model, one.value, counter, depth) for one in node.args)
    if isinstance(node, cst.Name) and node.value != counter:
        made = assigned(model, node) if depth else []
        return len(made) == 1 and _is_share(model, made[0], counter, depth - 1)
    return _is_counter(model, node, counter)


def _is_sum(model: FileModel, node: cst.BaseExpression, counter: str) -> bool:
    """``length = 64 + step``, and then ``x[:, :length]``."""
    if isinstance(node, cst.Call) and model.name(node.func) in _ROUNDS:
        return _is_counter(model, node, counter)
    named = (part for part in walk(node) if isinstance(part, cst.Name))
    return any(part.value == counter for part in named) and _is_counter(model, node, counter)
