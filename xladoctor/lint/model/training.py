"""What a call does for training: a backward pass, an optimizer step, a model's forward pass."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text, last_name
from xladoctor.lint.model.syntax import walk
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from xladoctor.lint.model.callgraph import CallGraph
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.nesting import Nesting
    from xladoctor.lint.model.syntax import Function

#: How many calls deep it may do so.
_DEPTH = 3
#: Methods of every model that take tensors and compute nothing.
_KEEP_TENSORS = frozenset(
    {"load_state_dict", "register_buffer", "register_parameter", "set_input_embeddings"}
)


class Training:
    """Answers for calls.

    Args:
        names: What names are bound to.
        flow: The values of expressions.
        graph: Which function calls which.
        nesting: The loops around calls.
    """

    def __init__(self, flow: Flow, graph: CallGraph, nesting: Nesting) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self.graph = graph
        self.around = nesting.around

    def trains(self, call: cst.Call, depth: int = _DEPTH) -> bool:
        """Whether a call makes a backward pass or an optimizer step, in no loop of its own."""
        if self._is_training(call):
            return True
        target = self.graph.called(call)
        if target is None or depth == 0 or target is self.graph.home[call]:
            return False
        if target in self._by_hand:
            return True
        return any(
            self.around[inner] is None and self.trains(inner, depth - 1)
            for inner in self.graph.calls_in(target)
        )

    def _is_training(self, call: cst.Call) -> bool:
        name = self._names.resolve(call.func)
        if name is not None:
            return name in {f"{know.XM}.optimizer_step", f"{know.XM}.reduce_gradients"}
        if self._flow.target(call) is not None:
            return False
        if self._scales(call):
            return True
        if not isinstance(call.func, cst.Attribute):
            return False
        method = call.func.attr.value
        if method in {"backward", "manual_backward"} or know.STEP_NAME.match(method):
            return True
        if method != "step":
            return False
        holders = [call.func.value, *(argument.value for argument in call.args[:1])]
        return any(self._flow.value(holder).kind is Kind.OPTIMIZER for holder in holders)

    @functools.cached_property
    def _by_hand(self) -> frozenset[Function]:
        """Methods that learn without gradients, in programs where nothing goes backward or steps.

        ``self.weights = self.weights + rate * torch.outer(after, before)``, of an object that has
        a method by which it is trained.
        """
        if any(map(self._is_training, self._tree.calls)):
            return frozenset()
        return frozenset(
            function
            for function in self._tree.functions.values()
            if function.owner is not None
            and any(map(know.TRAINS_NAME.search, function.owner.methods))
            and any(map(self._adapts, walk(function.node, into_functions=False)))
        )

    def _adapts(self, node: cst.CSTNode) -> bool:
        """Whether a statement makes a tensor that an object keeps anew, of what it was."""
        if isinstance(node, cst.AugAssign):
            target: cst.BaseExpression = node.target
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            target = node.targets[0].target
            name = dotted_text(target)
            parts = (part for part in walk(node.value) if isinstance(part, cst.Attribute))
            if name is None or all(dotted_text(part) != name for part in parts):
                return False
        else:
            return False
        return isinstance(target, cst.Attribute) and self._flow.value(node.value).is_device_tensor

    def _scales(self, call: cst.Call) -> bool:
        """``loss_scaler(loss, optimizer)``: an object that goes backward and steps (timm)."""
        name = last_name(call.func)
        return bool(know.SCALER_NAME.search(name)) and any(
            self._flow.value(argument.value).kind is Kind.OPTIMIZER for argument in call.args
        )

    def asks_model(self, call: cst.Call, depth: int = _DEPTH) -> bool:
        """Whether a call runs a model forward, by itself or in a function of the file."""
        if self._flow.value(call.func).kind is Kind.MODEL:
            return True
        target = self.graph.called(call)
        if target is None:
            asked = method(call)
            if not asked or self._flow.value(call.func.value).kind is not Kind.MODEL:  # type: ignore[attr-defined]
                return False
            return bool(know.FORWARD_METHODS.search(asked)) or self._takes_batch(call, asked)
        if depth == 0 or target is self.graph.home[call]:
            return False
        return any(self.asks_model(inner, depth - 1) for inner in self.graph.calls_in(target))

    def _takes_batch(self, call: cst.Call, asked: str) -> bool:
        """``net.fill_queue(batch)``: what a method of a model nobody has read is given tensors for.

        Modules of torch take tensors in few methods that compute nothing.
        """
        return asked not in _KEEP_TENSORS and any(
            not argument.star and self._flow.value(argument.value).holds_device_tensor
            for argument in call.args
        )


def steps_environment(call: cst.Call) -> bool:
    """``env.step(action)``, ``self.envs.step(actions)``."""
    if method(call) != "step" or not call.args:
        return False
    holder = dotted_text(call.func.value) or ""  # type: ignore[attr-defined]
    return bool(know.ENVIRONMENT_NAME.search(holder.rpartition(".")[2]))


def method(call: cst.Call) -> str:
    """The method that a call is of, "" for a plain name."""
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def steps_one_of(call: cst.Call, names: set[str]) -> bool:
    """``optimizer.step()``, ``xm.optimizer_step(optimizer)``: a step of one of these names."""
    asked = method(call)
    if asked == "step":
        stepped = call.func.value  # type: ignore[attr-defined]
    elif asked in {"optimizer_step", "reduce_gradients"} and call.args:
        stepped = call.args[0].value
    else:
        return False
    return isinstance(stepped, cst.Name) and stepped.value in names
