"""Where all cores meet, although a condition lets only some of them come to a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.turns import both_sides

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xladoctor.lint.events import Event
    from xladoctor.lint.model import CallSite, Class, FileModel, Function, Guard

#: Names of groups of cores: a collective of one waits for its cores alone.
_GROUP = re.compile(r"(?i)(^|_)(groups?|ranks|members)$")


def all_cores_meet(model: FileModel, event: Event, call: CallSite, guard: Guard) -> bool:
    """Whether the other cores reach a meeting of the same kind at another line.

    In the well-known pair the first holds back the rest while the master downloads, the second
    releases them.
    """
    same = [
        other.call
        for other in model.effects.of(event.effect)
        if other.call is not None
        and other.name is event.name
        and other.call.function is call.function
    ]
    # A meeting without a result: each core may come at another line, as long as each comes once.
    empty = event.name is not None and event.name.empty
    if empty:
        home = model.function_of(guard.node)
        if call.function is not None and home is not call.function:
            # The meeting is in a helper, and the condition around a call of it.
            same = [other for other in model.callers(call.function) if other.function is home]
        for met in (same, _of_one_tag(model, call, same)):
            if _held_back_and_released(model, met) or _meet_in_both(model, met, guard):
                return True
    if _in_both_branches(model, event, guard) or _said_of_others_too(model, guard):
        return True
    if _between_neighbours(model, call, same):
        return True
    if _of_its_group(call, guard) or _holds_for_all(model, call, guard):
        return True
    if _both_lead_to_it(model, call, guard):
        return True
    if guard.master is None:
        return False
    sides = [
        found.master
        for other in same
        if (found := model.core_guard(other.node) or model.master_only(other.node)) is not None
    ]
    arms = {guard.node for other in same for guard in model.guards(other.node)}
    paired = sides.count(True) == sides.count(False) > 0
    return paired and (empty or guard.node in arms)


def _of_its_group(call: CallSite, guard: Guard) -> bool:
    """``if rank not in ranks: return x`` before a collective of a group: its cores all come."""
    if any(isinstance(part, cst.Equal | cst.NotEqual) for part in walk(guard.test)):
        return False  # one of the group: ``dist.get_rank(group) == src``
    asked = {part.value for part in walk(guard.test) if isinstance(part, cst.Name)}
    if not any(_GROUP.search(name) for name in asked):
        return False
    group = call.argument(None, "group") or call.argument(None, "groups")
    return group is not None or (call.function is not None and "group" in call.function.parameters)


def _between_neighbours(model: FileModel, call: CallSite, same: Sequence[CallSite]) -> bool:
    """``x = xm.all_reduce(SUM, zeros, groups=behind())`` beside one with ``groups=before()``.

    So tensors are sent from stage to stage: the other one of each pair comes by the other line.
    """
    groups = {
        model.tree.text(given).strip()
        for one in (call, *same)
        if (given := one.argument(None, "groups")) is not None
        and model.literal(given) is NotImplemented
    }
    return call.argument(None, "groups") is not None and len(groups) > 1


def _holds_for_all(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """``if everywhere or is_master: load(everywhere)``, which meets ``if everywhere:``."""
    sides = both_sides(guard.test)
    if sides is None or sides[2] or not guard.when or model.function_of(guard.node) is None:
        return False
    equal = {model.tree.text(side).strip() for side in sides[:2] if not model.value(side).local}
    return any(
        inner.when and model.tree.text(inner.test).strip() in equal
        for inner in model.guards(call.node)
        if inner.node is not guard.node
    )


def _of_one_tag(model: FileModel, call: CallSite, same: list[CallSite]) -> list[CallSite]:
    """The meetings with the tag of a call: ``xm.rendezvous("cache")``, where it is written."""
    tag = call.argument(0, "tag")
    written = model.literal(tag) if tag is not None else None
    if not isinstance(written, str):
        return same
    tags = ((other, other.argument(0, "tag")) for other in same)
    return [one for one, told in tags if told is not None and model.literal(told) == written]


def _said_of_others_too(model: FileModel, guard: Guard) -> bool:
    """``if mine != rank: barrier()``, and then ``if mine == rank: barrier()``: one after the rest.

    Whatever functions lie between these lines and the meeting.
    """
    first, home = guard.node, model.function_of(guard.node)
    if not isinstance(first, cst.If) or home is None or first.orelse is not None:
        return False
    return any(
        isinstance(other, cst.If)
        and other is not first
        and other.orelse is None
        and _is_denied(model, first.test, other.test)
        and model.tree.text(other.body).split() == model.tree.text(first.body).split()
        for other in walk(home.node.body, into_functions=False)
    )


def _is_denied(model: FileModel, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether one comparison asks for equality, and the other for the opposite of the same."""
    if not isinstance(one, cst.Comparison) or not isinstance(other, cst.Comparison):
        return False
    kinds = {type(each.comparisons[0].operator) for each in (one, other)}
    sides = [
        {model.tree.text(part).strip() for part in (each.left, each.comparisons[0].comparator)}
        for each in (one, other)
    ]
    return kinds == {cst.Equal, cst.NotEqual} and sides[0] == sides[1]


def _in_both_branches(model: FileModel, event: Event, guard: Guard) -> bool:
    """Whether the other branch comes to it too, and in loops or callbacks that nobody can count.

    A search on the master that sends each trial to the others, who wait for them in a loop.
    """
    if not isinstance(guard.node, cst.If) or guard.node.orelse is None:
        return False
    branches = [set(walk(guard.node.body)), set(walk(guard.node.orelse))]
    alike = [other.node for other in model.effects.of(event.effect) if other.name is event.name]
    found = [[node for node in alike if node in branch] for branch in branches]
    if not any(found):  # ``trainer.train(trial)`` in both comes to the meetings of each step
        found = [_lines_to(model, event, branch) for branch in branches]
    home = model.function_of(guard.node)
    repeated = any(
        model.function_of(node) is not home
        or ((loop := model.loop(node)) is not None and loop.node in branch)
        for branch, nodes in zip(branches, found, strict=True)
        for node in nodes
    )
    return all(found) and repeated


def _lines_to(model: FileModel, event: Event, branch: Iterable[cst.CSTNode]) -> list[cst.CSTNode]:
    """The calls in a branch that lead to a meeting."""
    calls = (node for node in branch if isinstance(node, cst.Call))
    return [call for call in calls if any(one.node is event.node for one in model.reached(call))]


def _meet_in_both(model: FileModel, same: list[CallSite], guard: Guard) -> bool:
    """``if due: meet("a"); save(); meet("b") else: meet("a"); meet("b")``, whatever ``due`` is."""
    if not isinstance(guard.node, cst.If) or guard.node.orelse is None:
        return False
    numbers = []
    for branch in (guard.node.body, guard.node.orelse):
        inside = set(walk(branch))
        met = [call for call in same if call.node in inside]
        loops = [model.loop(call.node) for call in met]
        if any(loop is not None and loop.node in inside for loop in loops):
            return False
        numbers.append(len(met))
    return numbers[0] == numbers[1] > 0


def _both_lead_to_it(model: FileModel, call: CallSite, guard: Guard) -> bool:
    """``if mine == rank: send(size); send(data) else: send(empty); send(buffer)``.

    The meeting is in a helper, which both branches call as often, by no condition of their own.
    """
    if not isinstance(guard.node, cst.If) or not isinstance(guard.node.orelse, cst.Else):
        return False
    if guard.node in model.tree.ancestors(call.node):
        return False
    first, second = (
        _leading_to(model, call, branch.body) for branch in (guard.node, guard.node.orelse)
    )
    return first == second and bool(first)


def _leading_to(
    model: FileModel, call: CallSite, body: cst.BaseSuite
) -> Sequence[Function | Class] | None:
    """What a branch calls that comes to a call, in order; None if not each line is sure to run."""
    found: list[Function | Class] = []
    for line in body.body:
        for node in walk(line):
            if not isinstance(node, cst.Call) or (target := model.call(node).target) is None:
                continue
            if all(inner.node is not call.node for inner in model.reached(node)):
                continue
            if not isinstance(line, cst.SimpleStatementLine):
                return None
            found.append(target)
    return found


def _held_back_and_released(model: FileModel, same: list[CallSite]) -> bool:
    """``if rank not in (-1, 0): barrier()`` and later ``if rank == 0: barrier()``."""
    tests, conditions, sides = [], set[cst.CSTNode](), set[bool | None]()
    for other in same:
        guard = model.core_guard(other.node) or model.master_only(other.node)
        guard = guard or next(iter(model.guards(other.node)), None)
        if guard is not None:
            tests.append(_asked(model, guard.test))
            conditions.add(guard.node)
            sides.add(guard.master)
    if sides in ({True}, {False}):
        return False  # held back twice, and never released
    paired = len(tests) % 2 == 0 and len(conditions) >= 2
    return paired and bool(set.intersection(*tests))


def _asked(model: FileModel, test: cst.BaseExpression) -> set[str]:
    """What a condition asks for: ``rank`` of ``self.rank == 0``, not the object that has it."""
    return {
        part.value
        for part in model.within(test, cst.Name)
        if not (isinstance(above := model.parent(part), cst.Attribute) and above.value is part)
    }
