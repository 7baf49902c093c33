"""Whether what a loop moves is its batch: fetched on the host, or made of what was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Returns
from xladoctor.lint.model import Function, Kind, walk
from xladoctor.lint.model.dotted import dotted_text, is_name, last_name
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.knowledge import (
    HOST_ATTRIBUTES,
    JOINS_AND_STACKS,
    LOADER_NAME,
    PICKS,
)
from xladoctor.lint.model.training import steps_environment
from xladoctor.lint.rules._cuts import gives_cut, is_cut
from xladoctor.lint.rules._exact import indices
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Loop

#: Functions of other files that fetch a batch, by their names.
_FETCHES = re.compile(
    r"(^|_)(batch(es)?|fetch|minibatch|next_(data|item|sample))(_|$)", re.IGNORECASE
)
#: What keeps an agent's experience, by its name.
_KEPT = re.compile(
    r"(^|_)(memory|(replay_?)?buffers?|replay|storage|experiences?|rollouts?|transitions?)(_|$)",
    re.IGNORECASE,
)
#: What makes one tensor of several, or a longer one.
_JOINS = JOINS_AND_STACKS | {"torch.nn.functional.pad"}
#: Kinds of value that may still be on the host.
_ON_HOST = frozenset({Kind.UNKNOWN, Kind.CPU_TENSOR, Kind.ARRAY, Kind.CONTAINER})


class Batches:
    """Answers for one loop.

    Args:
        model: The file.
        loop: The loop; it goes over nothing that puts its batches on the device.
        fed: Whether what the loop goes over is fetched on the host, as far as anybody can know.
    """

    def __init__(self, model: FileModel, loop: Loop, *, fed: bool) -> None:
        self._model = model
        self._loop = loop
        self._fed = fed
        # A loop over a range cuts its batches out of data, where no device loader is at work.
        self._cuts = fed or (loop.iterates.kind is Kind.CONTAINER and not is_loaded_for(model))
        self._asked: set[cst.CSTNode] = set()
        self._makes = False

    def holds(self, node: cst.BaseExpression, *, makes: bool = False) -> bool:
        """Whether an expression is the batch, a part of it, or made of one.

        Args:
            node: The expression.
            makes: A tensor is made of it, so that it is none yet: what an environment gives may be
                one on the device.
        """
        self._asked = set()
        self._makes = makes or isinstance(node, cst.Call)
        value = self._model.value(node)
        moved = value.made_of_device or any(road.is_device_tensor for road in value.roads)
        return value.kind in _ON_HOST and not moved and self._is_of(node)

    def _is_of(self, node: cst.BaseExpression) -> bool:
        if node in self._asked:
            return False
        self._asked.add(node)
        if isinstance(node, cst.Call):
            return self._call(self._model.call(node))
        if isinstance(node, cst.Subscript) and any(map(self._is_of, indices(node))):
            return True  # ``rows[i]`` of a place that was fetched
        if isinstance(node, cst.Subscript) and self._cuts and is_cut(self._model, self._loop, node):
            return True
        if isinstance(node, cst.Attribute) and node.attr.value in HOST_ATTRIBUTES:
            return False  # ``torch.arange(x.shape[-1])`` is no batch
        if isinstance(node, cst.Subscript | cst.Attribute):
            return self._is_of(node.value)
        if isinstance(node, cst.Name):
            if self._model.value(node).kind is Kind.NUMBER:
                return False
            return any(self._is_of(source) for source in self._sources(node)) or (
                self._fed and self._is_target(node)
            )
        if isinstance(node, cst.Dict | cst.List | cst.Tuple):
            return any(self._is_of(element.value) for element in node.elements)
        if isinstance(node, cst.DictComp):
            return self._is_of(node.value)
        if isinstance(node, cst.ListComp | cst.GeneratorExp):
            return self._is_of(node.elt)
        return False

    def _call(self, call: CallSite) -> bool:
        if call.name == "builtins.next" or call.method in {"__next__", "next"}:
            source = call.receiver if call.name is None else call.argument(0, "iterator")
            kind = self._model.value(source).kind if source is not None else Kind.UNKNOWN
            return self._fed and kind is not Kind.DEVICE_LOADER
        if call.name in PICKS:
            return self._fed  # samples of what the host keeps
        if call.target is None and steps_environment(call.node):
            return self._makes
        if call.name is None and call.receiver is not None and self._is_of(call.receiver):
            return True
        if call.last in {"sample", "choices"} and self._of_memory(call):
            return self._fed
        if isinstance(call.target, Function):
            # What it gives back says where it is from, if anything is known of that.
            cut = self._cuts and gives_cut(self._model, self._loop, call.target)
            return cut or self._hands_on(call, call.target)
        if call.target is not None:
            return False
        if call.method in {"get", "get_nowait"} and call.receiver is not None:
            text = dotted_text(call.receiver) or ""
            return self._fed and "queue" in words(text.rpartition(".")[2])
        if _FETCHES.search(call.last) and not (call.name or "").startswith(("torch", "builtins.")):
            return self._fed
        handed = call.name is not None and call.name.startswith(("torch.", "builtins."))
        return handed and any(self._is_of(argument.value) for argument in call.node.args)

    def _hands_on(self, call: CallSite, function: Function) -> bool:
        """``pad(row, length)``, which gives ``torch.cat((row, zeros))`` back: made of its row."""
        named = {
            part.value
            for value in returned(function)
            if isinstance(value, cst.Call) and (self._model.name(value.func) or "") in _JOINS
            for part in walk(value)
            if isinstance(part, cst.Name) and part.value in function.parameters
        }
        given = (call.given_to(function, name) for name in named)
        return any(self._is_of(one) for one in given if one is not None)

    def _of_memory(self, call: CallSite) -> bool:
        """``self.memory.sample(64)``, ``random.sample(replay, 64)``."""
        kept = call.argument(0) if (call.name or "").startswith("random.") else call.receiver
        text = dotted_text(kept) if kept is not None else None
        return bool(_KEPT.search((text or "").rpartition(".")[2]))

    def _is_target(self, node: cst.Name) -> bool:
        taken = (self._model.taken(one.node) for one in self._model.bindings(node.value, node))
        lines = (part.line for part in taken if part is not None)
        return any(line is self._loop.node or self._feeds(line) for line in lines)

    def _feeds(self, loop: cst.CSTNode) -> bool:
        """``for batch in loader: yield ...`` of a generator that the loop goes over."""
        if not isinstance(loop, cst.For) or self._model.hot_loop(loop.body) is not self._loop:
            return False
        text = last_name(loop.iter)
        kind = self._model.value(loop.iter).kind
        return kind is Kind.LOADER or (kind is Kind.UNKNOWN and bool(LOADER_NAME.search(text)))

    def _sources(self, node: cst.Name) -> Iterator[cst.BaseExpression]:
        """What a name is bound to within the loop."""
        for binding in self._model.bindings(node.value, node):
            at = binding.node
            if binding.kind == "assign" and isinstance(at, cst.BaseExpression):
                if self._model.hot_loop(at) is self._loop:
                    yield at
                    yield from self._gathered(at, node)
            elif binding.kind == "other":
                yield from self._unpacked(at)
            elif binding.kind == "param":
                yield from self._given(node)

    def _gathered(self, made: cst.BaseExpression, name: cst.Name) -> Iterator[cst.BaseExpression]:
        """What ``rows = []`` gets by ``rows.append(row)``."""
        if not isinstance(made, cst.List) or made.elements:
            return
        function = self._model.function_of(name)
        for call in self._model.methods("append"):
            to = call.receiver
            if is_name(to, name.value) and call.function is function:
                yield from call.positional

    def _unpacked(self, target: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """``x, y = batch``, ``for k, v in batch.items()``."""
        part = self._model.taken(target)
        if part is None or part.line is self._loop.node:
            return
        loop = not isinstance(part.line, cst.Assign)
        if loop or self._model.hot_loop(part.value) is self._loop:
            yield part.value

    def _given(self, node: cst.Name) -> Iterator[cst.BaseExpression]:
        """What the callers give for a parameter."""
        function = self._model.function_of(node)
        if function is not None and _is_star(function, node.value):
            for call in self._model.callers(function):
                yield from call.positional
            return
        if function is None or node.value not in (*function.parameters, *function.keyword_only):
            return
        for call in self._model.callers(function):
            given = call.given_to(function, node.value)
            if given is not None:
                yield given


def _is_star(function: Function, name: str) -> bool:
    """Whether ``*name`` takes what else a function is given."""
    star = function.node.params.star_arg
    return isinstance(star, cst.Param) and star.name.value == name


def is_loaded_for(model: FileModel) -> bool:
    """Whether the program has device loaders."""
    return any(has_device_loader(other) for other in (model, *model.linked))


def makes_device_loader(model: FileModel) -> bool:
    """Whether any file makes one that is linted with this, also one that imports it nowhere."""
    loaders = _device_loaders(model)
    return any(call.name in loaders for call in model.program.sites.values())


def has_device_loader(model: FileModel) -> bool:
    """Whether a file makes a device loader."""
    return any(model.calls(*_device_loaders(model))) or any(model.methods("per_device_loader"))


def _device_loaders(model: FileModel) -> frozenset[str]:
    """The names of what makes one."""
    known = model.library
    return known.returning(Returns.DEVICE_LOADER) | known.returning(Returns.PARALLEL_LOADER)
