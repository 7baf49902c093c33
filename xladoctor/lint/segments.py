"""Order within a step: what stands between the ends of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.loops import opposed
from xladoctor.lint.model.parts import names_added, walk
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.taken import targets
from xladoctor.lint.model.wrappers import may_end_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.loops import Loop

_TENSOR_OF = "torch.tensor"
#: Functions that a tensor goes through.
_DEPTH = 3


class Segments:
    """The segments of a file's loops.

    Args:
        model: The file.
        ends_graph: Whether a call by itself ends the pending graph.
    """

    def __init__(self, model: FileModel, ends_graph: Callable[[CallSite], bool]) -> None:
        self._model = model
        self._ends_graph = ends_graph

    def ran_before(self, node: cst.CSTNode, value: cst.BaseExpression, loop: Loop) -> bool:
        """Whether the graph that computes a value may have ended when a node reads it.

        An end *before* the value is computed is that of the step before: it does not run this one.
        """
        model, function = self._model, self._model.function_of(node)
        order = model.tree.order
        made = self._made_last(value, node, loop)
        for call in model.reached(loop.node):
            if not self._ends_graph(call) and not may_end_graph(call.name):
                continue
            places = self._places(call, function, loop)
            if not places:
                if self._went_backward(value, node):
                    continue  # since then nothing but this function has run
                return True  # in a function around this one: before or behind, nobody knows
            if made in places and self._ran_within(made, loop):
                return True
            pending = made is not None and not self._of_numbers(made)
            first = order[made] if made is not None and pending else -1
            between = (place for place in places if first < order[place] < order[node])
            if any(self._has_run(place, node) for place in between):
                return True
        return False

    def made_behind(
        self, node: cst.CSTNode, value: cst.BaseExpression, loop: Loop, within: cst.CSTNode
    ) -> bool:
        """Whether a value is computed under a condition, of what had run by then.

        ``torch_xla.sync()``, and then ``mean = xm.all_reduce("sum", loss) / cores`` where a line is
        due: nothing of the step waits in it. What is computed is a small graph of its own.

        Args:
            node: What reads it.
            value: The value.
            loop: The loop of the steps.
            within: The condition.
        """
        model = self._model
        made = self._made_last(value, node, loop)
        if not isinstance(made, cst.BaseExpression) or within not in model.tree.ancestors(made):
            return False
        found = [part for part in walk(made) if isinstance(part, cst.Name | cst.Attribute)]
        of = [part for part in found if model.value(part).is_device_tensor]
        called = {part.func for part in walk(made) if isinstance(part, cst.Call)}
        return bool(of) and all(
            self.made_behind(made, part, loop, within)
            or (self.ran_before(made, part, loop) and not self._filled(part, made, loop))
            for part in of
            if part not in called
        )

    def _filled(self, tensor: cst.BaseExpression, node: cst.CSTNode, loop: Loop) -> bool:
        """Whether ``counts[0] += hits`` of a tensor is pending where a node stands."""
        order, text = self._model.tree.order, dotted_text(tensor)
        for line in walk(loop.node, into_functions=False):
            if not isinstance(line, cst.Assign | cst.AugAssign) or order[line] > order[node]:
                continue
            held = [one.value for one in targets(line) if isinstance(one, cst.Subscript)]
            if text in map(dotted_text, held) and not self.ends_between(line, node, loop):
                return True
        return False

    def _went_backward(self, value: cst.BaseExpression, node: cst.CSTNode) -> bool:
        """Whether the function of a node has run the backward pass of a loss that a value is of.

        ``self.accelerator.backward(loss)``, and then ``gather(loss).mean().item()``: all of the
        step is pending, but for what that function itself ends.
        """
        model = self._model
        order, names = model.tree.order, {x.value for x in walk(value) if type(x) is cst.Name}
        for call in model.methods("backward"):
            of = call.positional[0] if call.positional else call.receiver
            if (
                isinstance(of, cst.Name)
                and of.value in names
                and call.function is model.function_of(node)
                and order[call.node] < order[node]
                and not opposed(model.guards(call.node), model.guards(node))
            ):
                return True
        return False

    def _of_numbers(self, made: cst.CSTNode, depth: int = _DEPTH) -> bool:
        """``torch.tensor(total, device=device)`` of a number, also through what reduces it.

        Nothing of the step waits in it, so it is no matter whether it was made behind the end.
        """
        model, order = self._model, self._model.tree.order
        if not isinstance(made, cst.Call) or depth == 0:
            return False
        call = model.call(made)
        if call.name == _TENSOR_OF:
            data = call.argument(0, "data")
            return data is not None and not model.value(data).is_device_tensor
        given = [*call.positional, *call.keywords.values()]
        names = [one for one in given if isinstance(one, cst.Name)]
        if not isinstance(call.target, Function) or len(names) < len(given) or call.has_star:
            return False
        for name in names:
            bound = [item.node for item in model.bindings(name.value, name) if item.node in order]
            before = [node for node in bound if order[node] < order[made]]
            last = max(before, key=order.__getitem__, default=None)
            if last is None or not self._of_numbers(last, depth - 1):
                return False
        return bool(names)

    def _ran_within(self, made: cst.CSTNode | None, loop: Loop) -> bool:
        """Whether the function that gave a value back ended the graph behind what it computed."""
        function = self._model.call(made).target if isinstance(made, cst.Call) else None
        if not isinstance(function, Function):
            return False
        order = self._model.tree.order
        for value in returned(function):
            named = [part for part in walk(value) if isinstance(part, cst.Name)]
            bound = [
                order[item.node]
                for name in named
                for item in self._model.bindings(name.value, name)
                if self._model.function_of(item.node) is function and item.node in order
            ]
            ends = (call for call in self._model.reached(loop.node) if self._ends_graph(call))
            places = (order[place] for call in ends for place in self._places(call, function, loop))
            if bound and any(max(bound) < place < order[value] for place in places):
                return True
        return False

    def _has_run(self, call: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a call may have run: not what ``node`` is given to, nor in the other branch."""
        model = self._model
        inside = call in model.tree.ancestors(node)
        return not inside and not opposed(model.guards(call), model.guards(node))

    def ends_between(
        self, first: cst.CSTNode, second: cst.CSTNode, loop: Loop
    ) -> Sequence[cst.CSTNode]:
        """The calls of a node's function that end the graph between two nodes of one iteration."""
        model, function = self._model, self._model.function_of(second)
        order = model.tree.order
        within = loop.node if loop.function is function or loop.implicit else None
        ends = [call for call in model.reached(loop.node) if self._ends_graph(call)]
        places = {place: None for call in ends for place in self._places(call, function, loop)}
        return [
            place
            for place in sorted(places, key=order.__getitem__)
            if order[first] < order[place] < order[second]
            and (within is None or within in model.tree.ancestors(place))
        ]

    def ends_behind(self, node: cst.CSTNode, loop: Loop) -> bool:
        """Whether something ends the graph behind a node, in the same iteration of a loop."""
        model, function = self._model, self._model.function_of(node)
        order = model.tree.order
        around = set(model.tree.ancestors(node))
        for call in model.reached(loop.node):
            if not self._ends_graph(call):
                continue
            places = self._places(call, function, loop)
            if not places:
                return True  # in a function around this one: before or behind, nobody knows
            if any(
                order[place] > order[node] or self._block_of(place) in around for place in places
            ):
                return True
        return False

    def _block_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The ``with`` block that a call opens: ``torch_xla.step()`` ends the graph at its exit."""
        item = self._model.parent(node)
        return self._model.parent(item) if isinstance(item, cst.WithItem) else None

    def _places(
        self, call: CallSite, function: Function | None, loop: Loop
    ) -> Sequence[cst.CSTNode]:
        """The calls that stand in a function, within a loop, and run another call."""
        if call.function is function:
            return [call.node]
        model = self._model
        return [
            other.node
            for other in model.reached(loop.node)
            if other.function is function
            and other.target is not None
            and any(inner is call for inner in model.reached(other.node))
        ]

    def _made_last(
        self, value: cst.BaseExpression, node: cst.CSTNode, loop: Loop
    ) -> cst.CSTNode | None:
        """The last assignment in the loop to the name that a value is, before a node.

        Of a mean that is put together of sums (``mean = (total - before) / 50``), where those were
        last added to: that is what the step computed.
        """
        model = self._model
        while isinstance(value, cst.Call | cst.Attribute) and not isinstance(value, cst.Name):
            inner = value.func if isinstance(value, cst.Call) else value.value
            if not isinstance(inner, cst.BaseExpression):
                return None
            value = inner
        if not isinstance(value, cst.Name):
            return None
        order = model.tree.order
        made = [
            item.node
            for item in model.bindings(value.value, value)
            if (item.kind == "assign" or type(model.parent(item.node)) is cst.AugAssign)
            and item.node in order and order[item.node] < order[node]
            and loop.node in model.tree.ancestors(item.node)
        ]  # fmt: skip
        last = max(made, key=order.__getitem__, default=None)
        if isinstance(last, cst.Call) and model.call(last).method == "detach":
            return self._made_last(last, last, loop) or last  # the same numbers
        parts = [self._made_last(part, last, loop) for part in names_added(last)] if last else []
        known = [part for part in parts if part is not None]
        return max(known, key=order.__getitem__, default=last)
