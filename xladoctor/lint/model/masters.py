"""What the master core alone has: ``writer = SummaryWriter() if is_master else None``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import called_name, given
from xladoctor.lint.model.conditions import meant, without_not
from xladoctor.lint.model.dotted import assignments, is_name, paired
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.model.kept import kept_by
from xladoctor.lint.model.syntax import Function
from xladoctor.lint.model.turns import leaves
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Class

#: How many calls and other names may stand in between.
_DEPTH = 3
#: What is there once a function has been called: wandb.run is None before ``wandb.init()``.
_MADE_BY = {"wandb.run": "wandb.init"}


class Masters:
    """Tells of an object whether the master core alone has it, and the others None.

    It asks no guards, since these ask it.

    Args:
        flow: The program, and the values of its expressions.
    """

    def __init__(self, flow: Flow) -> None:
        self._tree = flow.tree
        self._names = flow.names
        self._flow = flow
        self._asking: set[tuple[object, str]] = set()
        self._known: dict[tuple[object, str], bool] = {}
        self._kept_by = functools.cache(kept_by)

    def has(self, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
        """Whether what a name or attribute holds is None on all cores but the master.

        ``writer = None``, then ``if is_master: writer = SummaryWriter()``; in one line too, kept in
        ``self.writer``, handed to a function, or made by one that gives the others nothing.
        """
        if not isinstance(node, cst.Name | cst.Attribute) or depth == 0:
            return False
        dotted = _MADE_BY.get(self._names.resolve(node) or "")
        if dotted is not None:
            calls = [x for x in self._tree.calls if self._names.resolve(x.func) == dotted]
            return bool(calls) and all(self.on_master(call, depth) for call in calls)
        key = self._key(node)
        if key is None or key in self._asking:
            return False
        if key in self._known:
            return self._known[key]
        self._asking.add(key)
        made = self._given(node, depth)
        found = made is not None and self._of_master(made, depth)
        self._asking.discard(key)
        if not self._asking and depth == _DEPTH:  # what is found on the way may be cut short
            self._known[key] = found
        return found

    def _key(self, node: cst.Name | cst.Attribute) -> tuple[object, str] | None:
        """What a name or attribute is known by: the scope or class, and its name there."""
        if isinstance(node, cst.Attribute):
            owners = self._owners(node)
            return (owners[0], node.attr.value) if owners else None
        if node not in self._tree.scopes:
            return None
        scope = self._tree.scopes[node].holder(node.value)
        return None if scope is None else (scope, node.value)

    def _of_master(self, made: Sequence[cst.BaseExpression], depth: int) -> bool:
        """Whether of all that a name is given, what is not None is the master's alone."""
        there = [one for one in made if not is_name(one, "None")]
        lacking = len(there) < len(made)
        return bool(there) and all(
            self._made_for_master(one, depth) or (lacking and self.on_master(one, depth))
            for one in there
        )

    def _made_for_master(self, node: cst.BaseExpression, depth: int) -> bool:
        """Whether an expression itself gives the others None."""
        if isinstance(node, cst.IfExp):
            one, other = is_name(node.orelse, "None"), is_name(node.body, "None")
            return one is not other and self._asks_for_master(node.test, depth, when=one)
        if isinstance(node, cst.Call):
            target = self._flow.target(node)
            return isinstance(target, Function) and self._gives_master(target, depth - 1)
        return self.has(node, depth - 1)

    def _gives_master(self, function: Function, depth: int) -> bool:
        """``def make_writer(): if not is_master: return None``, then ``return SummaryWriter()``."""
        if depth <= 0 or (function, "") in self._asking:
            return False
        made = [one for one in returned(function) if not is_name(one, "None")]
        self._asking.add((function, ""))
        found = bool(made) and all(
            self._made_for_master(one, depth) or self._is_branch_of_master(one, depth)
            for one in made
        )
        self._asking.discard((function, ""))
        return found

    # What a name or attribute is given

    def _given(
        self, node: cst.Name | cst.Attribute, depth: int
    ) -> Sequence[cst.BaseExpression] | None:
        """All that a name or attribute is given; None if somebody else may give it something."""
        if isinstance(node, cst.Attribute):
            return self._kept(node)
        found: list[cst.BaseExpression] = []
        for one in self._tree.bindings(node):
            if one.kind == "param":
                given_by_callers = self._handed(one.node, depth)
                if given_by_callers is None:
                    return None
                found += given_by_callers
            elif isinstance(one.node, cst.BaseExpression) and one.kind == "assign":
                found.append(one.node)
            else:
                return None
        return found

    def _handed(self, param: cst.CSTNode, depth: int) -> Sequence[cst.BaseExpression] | None:
        """What all calls of a function give a parameter, or its default."""
        function = self._tree.function_of(param)
        if function is None or not isinstance(param, cst.Param) or depth <= 1:
            return None
        name = param.name.value
        names = {function.name, "super"}
        if function.name == "__init__" and function.owner is not None:
            names |= {one.name for one in (function.owner, *self._flow.classes.heirs(function))}
        found = []
        for call in self._flow.callers(function):
            argument = given(call, function.place(name), name) or function.default(name)
            starred = any(one.star for one in call.args)
            if argument is None or starred or called_name(call) not in names:
                return None
            found.append(argument)
        return found

    def _owners(self, node: cst.Attribute) -> Sequence[Class]:
        """The classes of the object whose attribute is asked for, with those around them."""
        if is_name(node.value, "self"):
            function = self._tree.function_of(node)
            owners = (one.owner for one in (() if function is None else function.around))
            found = [one for one in owners if one is not None][:1]
        else:
            objects = self._flow.classes.objects(self._flow.value(node.value))
            found = [one.cls for one in objects]
        classes = self._flow.classes
        return list(
            dict.fromkeys(x for y in found for x in (y, *classes.above(y), *classes.below(y)))
        )

    def _kept(self, node: cst.Attribute) -> Sequence[cst.BaseExpression] | None:
        """All that classes, and others, set an attribute of their objects to."""
        name = node.attr.value
        found = [*self._set_from_outside.get(name, ())]
        for owner in self._owners(node):
            kept = self._kept_by(owner)
            if name in kept.apart:
                return None
            found += kept.given.get(name, ())
            lines = (line for body in owner.node.body.body for line in _simple(body))
            for target, value in (pair for line in lines for pair in assignments(line)):
                if is_name(target, name):
                    found.append(value)
        return found

    @functools.cached_property
    def _set_from_outside(self) -> dict[str, list[cst.BaseExpression]]:
        """What is given to attributes of others than ``self``: ``trainer.writer = writer``."""
        found: dict[str, list[cst.BaseExpression]] = {}
        for line in self._tree.nodes(cst.Assign):
            for one in line.targets:
                for target, value in paired(one.target, line.value):
                    if isinstance(target, cst.Attribute) and not is_name(target.value, "self"):
                        found.setdefault(target.attr.value, []).append(value)
        return found

    # Where it is given

    def on_master(self, node: cst.CSTNode, depth: int = _DEPTH) -> bool:
        """Whether a node stands under ``if is_master:``, or behind a return of the others.

        Or its function is called there alone.
        """
        if self._is_branch_of_master(node, depth):
            return True
        function = self._tree.function_of(node)
        if function is None or depth <= 1:
            return False
        callers = self._flow.callers(function)
        return bool(callers) and all(self.on_master(call, depth - 1) for call in callers)

    def _is_branch_of_master(self, node: cst.CSTNode, depth: int) -> bool:
        """Whether a branch within its function keeps all but the master from a node."""
        return any(
            self._asks_for_master(test, depth, when=when) for test, when in self._tests(node)
        )

    def _tests(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The conditions under which a node of a function runs, and what they have to be."""
        child = node
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return
            if isinstance(parent, cst.If | cst.IfExp) and child is not parent.test:
                yield parent.test, child is parent.body
            elif isinstance(parent, cst.IndentedBlock):
                for line in parent.body:
                    if line is child:
                        break
                    if isinstance(line, cst.If) and leaves(line.body):
                        yield line.test, False
            child = parent

    def _asks_for_master(self, test: cst.BaseExpression, depth: int, *, when: bool) -> bool:
        """Whether a condition is so (``when``) on the master alone."""
        written, wanted = without_not(test, when=when)
        asked, holds = meant(self._tree, written, when=wanted)
        for one, so in ((written, wanted), (asked, holds)):
            if isinstance(one, cst.BooleanOperation) and so is isinstance(one.operator, cst.Or):
                continue  # ``not (is_due and is_other)`` is so on others too
            kind = self._flow.value(one).kind
            if kind is Kind.CORE_NUMBER:
                kind = Kind.NOT_MASTER
            if kind is (Kind.IS_MASTER if so else Kind.NOT_MASTER):
                return True
        return wanted and self.has(written, depth - 1)


def _simple(line: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """The statements on a line."""
    return line.body if isinstance(line, cst.SimpleStatementLine) else ()
