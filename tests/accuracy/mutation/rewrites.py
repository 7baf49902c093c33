"""Small rewrites that change nothing of what a program does, for programs of any kind.

Each takes a module's tree, rewrites it wherever it applies, and gives the number of places. They
are for whole public files, where ``spellings`` (which moves parts of a program to other places) is
for the healthy programs. What a rewrite needs to know it takes from the tree alone: the order in
which arguments are computed may change, which nothing here depends on.
"""

from __future__ import annotations

import ast
import copy
import random
from typing import TYPE_CHECKING

from tests.accuracy.mutation import carried
from tests.accuracy.mutation.lines import (
    bind,
    blocks,
    calls_one_of,
    each_line,
    is_text,
    numbered,
    put_first,
    put_import,
)
from tests.accuracy.mutation.restructured import functions_as_objects
from tests.accuracy.mutation.trees import (
    certainly,
    flow_of,
    leaves_block,
    make_call,
    make_function,
    put_before,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Global, ast.Nonlocal)
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)
_COMPUTED = (ast.Call, ast.BinOp, ast.Subscript, ast.List, ast.Dict, ast.Tuple)


def arguments_by_name(tree: ast.Module) -> int:
    """``f(g(x))``: ``given = g(x)`` in the line before."""
    names = numbered("given")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        call = _call_of(line)
        if call is None or any(isinstance(part, ast.Call) for part in ast.walk(call.func)):
            return None
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return None
        made: list[ast.stmt] = []
        holders = [*enumerate(call.args), *((one, one.value) for one in call.keywords if one.arg)]
        for holder, value in holders:
            if not isinstance(value, _COMPUTED):
                continue
            made.append(bind(name := next(names), value))
            if isinstance(holder, int):
                call.args[holder] = ast.Name(name)
            else:
                holder.value = ast.Name(name)
        return [*made, line] if made else None

    return each_line(tree, rewrite)


def receivers_by_name(tree: ast.Module) -> int:
    """``f(x).g()``: ``held = f(x)`` in the line before."""
    names = numbered("held")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        call = _call_of(line)
        if call is None or not isinstance(call.func, ast.Attribute):
            return None
        receiver = call.func.value
        if not isinstance(receiver, (ast.Call, ast.Subscript)) or _is_super(receiver):
            return None
        call.func.value = ast.Name(name := next(names))
        return [bind(name, receiver), line]

    return each_line(tree, rewrite)


def results_by_name(tree: ast.Module) -> int:
    """``return f(x)``: ``outcome = f(x)`` in the line before."""

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.Return) or isinstance(line.value, (ast.Name, ast.Constant)):
            return None
        if line.value is None:
            return None
        return [bind("outcome", line.value), ast.Return(ast.Name("outcome"))]

    return each_line(tree, rewrite)


def conditions_by_name(tree: ast.Module) -> int:
    """``if f(x):``: ``asked = f(x)`` in the line before."""
    names = numbered("asked")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.If) or _is_start(line.test) or _has(line.test, _SUSPENDS):
            return None
        if not isinstance(line.test, (ast.Call, ast.Compare, ast.BoolOp)):
            return None
        made = bind(name := next(names), line.test)
        line.test = ast.Name(name)
        return [made, line]

    return each_line(tree, rewrite)


def iterables_by_name(tree: ast.Module) -> int:
    """``for x in f(y):``: ``over = f(y)`` in the line before."""
    names = numbered("over")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.For) or not isinstance(line.iter, ast.Call):
            return None
        made = bind(name := next(names), line.iter)
        line.iter = ast.Name(name)
        return [made, line]

    return each_line(tree, rewrite)


def keywords_from_dict(tree: ast.Module) -> int:
    """``f(a=1, b=2)``: ``options = {"a": 1, "b": 2}`` in the line before, and ``f(**options)``."""
    names = numbered("options")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        call = _call_of(line)
        if call is None or len(call.keywords) < 2 or any(not one.arg for one in call.keywords):
            return None
        keys: list[ast.expr | None] = [ast.Constant(one.arg) for one in call.keywords]
        made = bind(name := next(names), ast.Dict(keys, [one.value for one in call.keywords]))
        call.keywords = [ast.keyword(None, ast.Name(name))]
        return [made, line]

    return each_line(tree, rewrite)


def settings_as_parameters(tree: ast.Module) -> int:
    """``def load(rows): f(rows, most=4)``: ``def load(rows, *, most_1): f(rows, most=most_1)``.

    Every call of the function gives what was written in it; the function is only called.
    """
    count = 0
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        calls = _only_called(tree, function)
        named = [
            one
            for node in _inside(function)
            if isinstance(node, ast.Call)
            for one in node.keywords
            if one.arg and isinstance(one.value, ast.Constant)
        ]
        if not calls or not named:
            continue
        for number, one in enumerate(named, 1):
            name, value = f"{one.arg}_{number}", one.value
            one.value = ast.Name(name)
            function.args.kwonlyargs.append(ast.arg(name))
            function.args.kw_defaults.append(None)
            for call in calls:
                call.keywords.append(ast.keyword(name, copy.deepcopy(value)))
        count += 1
    return count


def _only_called(tree: ast.Module, function: ast.FunctionDef) -> list[ast.Call]:
    """The calls of a function; none where its name is used in any other way, or its own body."""
    uses = [x for x in ast.walk(tree) if isinstance(x, ast.Name) and x.id == function.name]
    calls = [
        x
        for x in ast.walk(tree)
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id == function.name
    ]
    own = any(node in calls for node in _inside(function))
    others = (x for x in ast.walk(tree) if isinstance(x, (ast.FunctionDef, ast.ClassDef)))
    again = sum(one.name == function.name for one in others) > 1
    starred = any(one.arg is None for call in calls for one in call.keywords)
    return [] if own or again or starred or len(uses) > len(calls) else calls


def assigned_in_pairs(tree: ast.Module) -> int:
    """``a = 1`` and ``b = 2`` in one line: ``a, b = 1, 2``."""
    count = 0
    for block in blocks(tree):
        at = 0
        while at + 1 < len(block):
            one, two = block[at], block[at + 1]
            if _is_plain(one) and _is_plain(two) and _apart(one, two):
                assert isinstance(one, ast.Assign)
                assert isinstance(two, ast.Assign)
                targets = ast.Tuple([one.targets[0], two.targets[0]], ast.Store())
                block[at : at + 2] = [ast.Assign([targets], ast.Tuple([one.value, two.value]))]
                count += 1
            at += 1
    return count


def parameters_renamed(tree: ast.Module) -> int:
    """``def f(x):`` with ``x_here = x`` as its first line, and ``x_here`` from there on."""
    count = 0
    for function in _plain_functions(tree):
        given = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
        names = [node for node in _inside(function) if isinstance(node, ast.Name)]
        used = sorted({node.id for node in names} & given - {"self", "cls"})
        for node in names:
            node.id += "_here" if node.id in used else ""
        put_first(function, [bind(f"{name}_here", ast.Name(name)) for name in used])
        count += bool(used)
    return count


def kept_in_namespace(tree: ast.Module) -> int:
    """``model = Net()`` of a function as ``env.model = Net()``; device and optimizer too."""
    count = 0
    for function in _plain_functions(tree):
        kept = {"device", "model", "net", "optimizer"} & _assigned(function)
        if not kept:
            continue
        for node in _inside(function):
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.Name) and value.id in kept:
                    setattr(node, field, ast.Attribute(ast.Name("env"), value.id, value.ctx))
                elif isinstance(value, list):
                    value[:] = [
                        ast.Attribute(ast.Name("env"), one.id, one.ctx)
                        if isinstance(one, ast.Name) and one.id in kept
                        else one
                        for one in value
                    ]
        put_first(function, ast.parse("env = SimpleNamespace()").body)
        count += 1
    if count:
        put_import(tree, "from types import SimpleNamespace")
    return count


def conditions_turned(tree: ast.Module) -> int:
    """``if c: f()``: ``if not c: pass``, and ``f()`` under ``else``."""

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.If) or line.orelse or _is_start(line.test):
            return None
        return [ast.If(ast.UnaryOp(ast.Not(), line.test), [ast.Pass()], line.body)]

    return each_line(tree, rewrite)


def branches_swapped(tree: ast.Module) -> int:
    """``if c: f() else: g()``: ``if not c: g() else: f()``."""

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.If) or not line.orelse or isinstance(line.orelse[0], ast.If):
            return None
        return [ast.If(ast.UnaryOp(ast.Not(), line.test), line.orelse, line.body)]

    return each_line(tree, rewrite)


def left_early(tree: ast.Module) -> int:
    """``if c: f()`` at the end of a loop or function: ``if not c: continue``, then ``f()``."""
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, (ast.For, ast.FunctionDef)) or _has(node, _SUSPENDS):
            continue
        last = node.body[-1]
        if not isinstance(last, ast.If) or last.orelse or getattr(node, "orelse", None):
            continue
        leave = ast.Continue() if isinstance(node, ast.For) else ast.Return(None)
        node.body[-1:] = [ast.If(ast.UnaryOp(ast.Not(), last.test), [leave], []), *last.body]
        count += 1
    return count


def loops_counted(tree: ast.Module) -> int:
    """``for x in y:``: ``for turn, x in enumerate(y):``."""
    count = 0
    for loop in _loops(tree):
        if not calls_one_of(loop.iter, "enumerate", "range", "zip"):
            loop.target = ast.Tuple([ast.Name("turn", ast.Store()), loop.target], ast.Store())
            loop.iter = ast.Call(ast.Name("enumerate"), [loop.iter], [])
            count += 1
    return count


def loops_with_bars(tree: ast.Module) -> int:
    """``for x in y:`` with a progress bar that is off: ``bar = tqdm(y, disable=True)``."""
    names = numbered("bar")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.For) or calls_one_of(line.iter, "range"):
            return None
        off = ast.keyword("disable", ast.Constant(True))
        made = bind(name := next(names), ast.Call(ast.Name("show_turns"), [line.iter], [off]))
        line.iter = ast.Name(name)
        return [made, line]

    count = each_line(tree, rewrite)
    if count:
        put_import(tree, "from tqdm.auto import tqdm as show_turns")
    return count


def loops_unpacked_inside(tree: ast.Module) -> int:
    """``for x, y in z:``: ``for drawn in z:``, and ``x, y = drawn`` as the first line."""
    count = 0
    for loop in _loops(tree):
        target = loop.target
        if not isinstance(target, ast.Tuple) or calls_one_of(loop.iter, "enumerate"):
            continue
        loop.target = ast.Name("drawn", ast.Store())
        loop.body.insert(0, ast.Assign([target], ast.Name("drawn")))
        count += 1
    return count


def loops_guarded(tree: ast.Module) -> int:
    """The body of a loop in ``with record_function("turn"):`` and a ``try`` that goes on."""
    loops = list(_loops(tree))
    for loop in loops:
        handler = ast.ExceptHandler(ast.Name("KeyboardInterrupt"), None, [ast.Raise()])
        shown = ast.parse('with record_function("turn"):\n    pass').body[0]
        assert isinstance(shown, ast.With)
        shown.body = loop.body
        loop.body = [ast.Try([shown], [handler], [], [])]
    if loops:
        put_import(tree, "from torch.profiler import record_function")
    return len(loops)


def lines_in_helpers(tree: ast.Module) -> int:
    """Two or three lines of a function or of a loop of it become a function of the module."""
    chance = random.Random(1)
    count = 0
    for function in _plain_functions(tree):
        if any(calls_one_of(node, "super", "locals", "vars") for node in ast.walk(function)):
            continue
        blocks = [
            node.body
            for node in ast.walk(function)
            if isinstance(node, (ast.For, ast.With, ast.FunctionDef)) and len(node.body) > 3
        ]
        for block in chance.sample(blocks, min(2, len(blocks))):
            size = chance.choice((2, 3))
            start = chance.randrange(len(block) - size)
            part = block[start : start + size]
            taken, given = flow_of(function, part, set())
            if not _can_move(function, part) or not given <= certainly(part) | taken:
                continue
            count += 1
            name = f"part_{count}"
            made = make_function(name, sorted(taken), copy.deepcopy(part), sorted(given))
            block[start : start + size] = [make_call(name, sorted(taken), sorted(given))]
            put_before(tree, function, made)
    return count


def _can_move(function: ast.FunctionDef, part: list[ast.stmt]) -> bool:
    if leaves_block(part) or is_text(part[0]):
        return False
    nodes = [node for line in part for node in ast.walk(line)]
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    others = [*function.args.kwonlyargs, function.args.vararg, function.args.kwarg]
    hidden = {argument.arg for argument in others if argument is not None}
    return not named & hidden and not any(
        isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes
    )


def _loops(tree: ast.Module) -> Iterator[ast.For]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.For))


def _plain_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions without others in them, whose names are all their own."""
    for node in list(ast.walk(tree)):
        if isinstance(node, ast.FunctionDef) and not any(
            isinstance(part, (*_NESTED, *_SUSPENDS)) for part in _inside(node)
        ):
            yield node


def _inside(function: ast.FunctionDef) -> list[ast.AST]:
    return [node for line in function.body for node in ast.walk(line)]


def _assigned(function: ast.FunctionDef) -> set[str]:
    """The names that assignments of a function bind, without those that it is given."""
    bound = {node.id for line in _inside(function) if isinstance(line, ast.Assign)
             for node in line.targets if isinstance(node, ast.Name)}  # fmt: skip
    return bound - {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}


def _call_of(line: ast.stmt) -> ast.Call | None:
    """The call whose result a statement is about."""
    if not isinstance(line, (ast.Assign, ast.Expr, ast.AugAssign, ast.Return)):
        return None
    value = line.value
    if not isinstance(value, ast.Call) or _is_super(value) or _has(line, _SUSPENDS):
        return None
    return value if isinstance(value.func, (ast.Name, ast.Attribute)) else None


def _is_plain(line: ast.stmt) -> bool:
    """``name = value``, and nothing else happens in it."""
    return (
        isinstance(line, ast.Assign)
        and len(line.targets) == 1
        and isinstance(line.targets[0], ast.Name)
        and not _has(line, _SUSPENDS)
    )


def _apart(one: ast.stmt, two: ast.stmt) -> bool:
    """Whether an assignment takes nothing of the one before it, and binds another name."""
    assert isinstance(one, ast.Assign)
    assert isinstance(one.targets[0], ast.Name)
    bound = one.targets[0].id
    return not any(isinstance(node, ast.Name) and node.id == bound for node in ast.walk(two))


def _is_super(node: ast.AST) -> bool:
    return calls_one_of(node, "super")


def _is_start(test: ast.expr) -> bool:
    """``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and ast.unparse(test.left) == "__name__"


def _has(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(part, kinds) for part in ast.walk(node))


#: All of them, by what the table of docs/accuracy.md calls them.
REWRITES: dict[str, Callable[[ast.Module], int]] = {
    "arguments get a name first": arguments_by_name,
    "receivers get a name first": receivers_by_name,
    "results get a name first": results_by_name,
    "conditions get a name first": conditions_by_name,
    "what a loop goes over gets a name first": iterables_by_name,
    "keywords come from a dictionary": keywords_from_dict,
    "settings come as parameters": settings_as_parameters,
    "two assignments in one line": assigned_in_pairs,
    "parameters get another name": parameters_renamed,
    "model, device and optimizer in a namespace": kept_in_namespace,
    "`if` turned round, with `else`": conditions_turned,
    "branches swapped": branches_swapped,
    "`continue` or `return` in place of a last `if`": left_early,
    "loops with `enumerate`": loops_counted,
    "loops with a progress bar": loops_with_bars,
    "batches unpacked in the loop": loops_unpacked_inside,
    "loop bodies in `with` and `try`": loops_guarded,
    "a few lines in a helper": lines_in_helpers,
    "functions become classes": functions_as_objects,
    "results in a dictionary": carried.results_in_dict,
    "batches in a dictionary": carried.batches_in_dict,
    "loops over generators": carried.loops_over_generators,
    "loops with `next`": carried.loops_with_next,
    "functions behind a decorator": carried.functions_decorated,
    "calls bound by `partial`": carried.calls_bound_first,
    "classes with a base of their own": carried.classes_inherited,
}
