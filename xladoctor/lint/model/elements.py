"""The value of containers as they are written, and of what is taken out of one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.contained import container, dictionary, element_of, under
from xladoctor.lint.model.dotted import dotted_text, string, text_of
from xladoctor.lint.model.indexed import taken
from xladoctor.lint.model.iterators import iterated
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Kind, Value, join

if TYPE_CHECKING:
    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame

#: Functions that look up a variable of the environment.
ASKS_ENVIRONMENT = frozenset({"os.getenv", "os.environ.get"})
#: Variables that torchrun, Slurm and MPI give each process its number in.
_RANKS = frozenset({"RANK", "LOCAL_RANK", "GLOBAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})

#: What values under a key are believed by that name, where they are used as such.
_USED = frozenset({Kind.MODEL, Kind.OPTIMIZER, Kind.LOSS})
#: What models and optimizers are asked for, and neither their states nor settings.
_ASKED_FOR = frozenset({"train", "eval", "parameters", "step", "zero_grad"})


class Elements:
    """Evaluates expressions that put values into containers, or take them out.

    Args:
        evaluator: Evaluates what stands in them.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._flow = evaluator.flow

    def subscript(self, node: cst.Subscript, frame: Frame) -> Value:
        """``holder[...]``."""
        holder = self._evaluator.evaluate(node.value, frame)
        for element in node.slice:
            self._evaluator.inside(element, frame)
        text = dotted_text(node.value)
        if text == "os.environ":
            return of_environment(node, index_of(node))
        found = self._element(node, holder)
        if found.kind is Kind.UNKNOWN and type(node.value) in {cst.Attribute, cst.Call}:
            functions, classes = self._evaluator.by_name.of_table(node)
            if functions or classes:
                return Value(Kind.FUNCTION, origin=node, functions=functions, makes=classes)
        if found.kind is Kind.UNKNOWN and holder.kind in {Kind.UNKNOWN, Kind.CONTAINER}:
            return self._by_key(node) or found
        return found

    def _by_key(self, node: cst.Subscript) -> Value | None:
        """``config["device"]``, ``cfg["DEVICE"]``, ``parts["model"](images)``."""
        key = index_of(node)
        if not isinstance(key, cst.SimpleString):
            return None
        guessed = self._evaluator.guess(str(string(key)).lower())
        known = guessed.kind is Kind.DEVICE or (guessed.kind in _USED and self._is_used(node))
        return guessed if known else None

    def _is_used(self, node: cst.Subscript) -> bool:
        """Whether it is called, or asked for what a state or a setting has not."""
        parent = self._flow.tree.parents.get(node)
        if isinstance(parent, cst.Call):
            return parent.func is node
        return isinstance(parent, cst.Attribute) and parent.attr.value in _ASKED_FOR

    def _element(self, node: cst.Subscript, holder: Value) -> Value:
        """What ``holder[...]`` is by what is known of the holder."""
        if holder.kind is Kind.CONTAINER:
            if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Slice):
                return holder
            number = index_of(node)
            if holder.items is not None and isinstance(number, cst.Integer):
                place = int(number.value.replace("_", ""), 0)
                if place < len(holder.items):
                    return holder.items[place]
            return under(holder, text_of(number))
        if holder.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER}:
            return holder
        if holder.kind is Kind.MODEL and holder.element is not None:
            return element_of(holder)
        if holder.kind is Kind.OBJECT:
            kept = taken(self._evaluator, holder, self._evaluator.around(node))
            if kept != UNKNOWN:
                return kept
        return Value(local=holder.local, made_of_device=holder.made_of_device)

    def sequence(self, node: cst.Tuple | cst.List | cst.Set, frame: Frame) -> Value:
        """``(a, b)``, ``[a, b]``, ``{a, b}``."""
        items = [self._evaluator.evaluate(element.value, frame) for element in node.elements]
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return container(None)
        fixed = tuple(items) if isinstance(node, cst.Tuple | cst.List) and items else None
        return container(functools.reduce(join, items) if items else None, fixed)

    def spread(
        self, node: cst.BaseExpression, target: cst.BaseAssignTargetExpression, frame: Frame
    ) -> Value | None:
        """``*x.shape, x.device`` as ``rows, columns, device = ...`` takes it: one for each name.

        None of everything else, and where the names are fewer than what stands there.
        """
        if not isinstance(node, cst.Tuple) or not isinstance(target, cst.Tuple):
            return None
        stars = [isinstance(element, cst.StarredElement) for element in node.elements]
        more = len(target.elements) - len(stars)
        known = any(isinstance(element, cst.StarredElement) for element in target.elements)
        if sum(stars) != 1 or known or more < -1:
            return None
        items: list[Value] = []
        for element, star in zip(node.elements, stars, strict=True):
            value = self._evaluator.evaluate(element.value, frame)
            items += [element_of(value)] * (more + 1) if star else [value]
        return container(None, tuple(items))

    def dictionary(self, node: cst.Dict, frame: Frame) -> Value:
        """``{"loss": loss}``."""
        parts: list[tuple[str | None, Value]] = []
        for element in node.elements:
            value = self._evaluator.evaluate(element.value, frame)
            if isinstance(element, cst.DictElement):
                self._evaluator.evaluate(element.key, frame)
                key = text_of(element.key)
                parts.append((key, value if key is not None else container(value)))
            else:
                parts.append((None, value))  # ``{"loss": loss, **parts}``
        return dictionary(parts)

    def comprehension(self, node: cst.BaseComp, frame: Frame) -> Value:
        """``[f(x) for x in xs]``."""
        outside = dict(frame.env)
        self._comp_for(node.for_in, frame)
        if isinstance(node, cst.DictComp):
            self._evaluator.evaluate(node.key, frame)
            value = self._evaluator.evaluate(node.value, frame)
        else:
            value = self._evaluator.evaluate(node.elt, frame)  # type: ignore[attr-defined]
        frame.env = outside
        return container(value)

    def _comp_for(self, node: cst.CompFor, frame: Frame) -> None:
        over = iterated(self._flow, node.iter, self._evaluator.evaluate(node.iter, frame))
        self._flow.statements.assign(node.target, element_of(over), frame)
        for item in node.ifs:
            self._evaluator.evaluate(item.test, frame)
        if node.inner_for_in is not None:
            self._comp_for(node.inner_for_in, frame)


def of_environment(node: cst.CSTNode, key: cst.BaseExpression | None) -> Value:
    """What a variable of the environment is: a text, or the number that torchrun gives a core.

    ``os.environ["RANK"]``, ``os.environ.get("LOCAL_RANK", 0)``.
    """
    name = str(string(key)) if isinstance(key, cst.SimpleString) else ""
    if name in _RANKS:
        return Value(Kind.CORE_NUMBER, origin=node, local=True)
    return NUMBER
