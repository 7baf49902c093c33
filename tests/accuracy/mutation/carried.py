"""Rewrites in which values and turns of loops come by another road, as frameworks hand them on.

Results that a dictionary holds, batches that are dictionaries, loops over generators and with
``next``, functions behind a decorator or bound by ``partial``, classes with a base of their own.
Each takes a module's tree, rewrites it wherever it applies, and gives the number of places.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.accuracy.mutation.lines import (
    bind,
    calls_one_of,
    each_line,
    numbered,
    put_first,
    put_import,
)
from tests.accuracy.mutation.restructured import bound_elsewhere
from tests.accuracy.mutation.trees import Replaced, stored_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FRAMES = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Delete)
_COUNTS = ("range", "enumerate", "zip")
_WRAPS = """
def watched(function):
    @functools.wraps(function)
    def called(*args, **kwargs):
        return function(*args, **kwargs)
    return called
"""


def results_in_dict(tree: ast.Module) -> int:
    """What the loops of a function assign is kept in a dictionary: ``kept["loss"] = f(x)``."""
    count = 0
    for function in _functions(tree):
        inside = [node for line in function.body for node in ast.walk(line)]
        if any(isinstance(node, (*_SCOPES, *_FRAMES)) for node in inside):
            continue
        loops = [node for node in inside if isinstance(node, (ast.For, ast.While))]
        names = {name for loop in loops for line in loop.body for name in _assigned_in(line)}
        names -= _bound_otherwise(function)
        if not names:
            continue
        places = _in_places("kept", names)
        function.body = [places.visit(line) for line in function.body]
        put_first(function, ast.parse("kept = {}").body)
        count += 1
    return count


def batches_in_dict(tree: ast.Module) -> int:
    """``for x, y in z: f(x)``: ``batch = {"x": x, "y": y}`` first, and ``f(batch["x"])``."""
    count = 0
    for loop in [node for node in ast.walk(tree) if isinstance(node, ast.For)]:
        target = loop.target
        if isinstance(target, ast.Tuple) and calls_one_of(loop.iter, "enumerate"):
            target = target.elts[-1]
        if not isinstance(target, ast.Tuple):
            continue
        names = [one.id for one in target.elts if isinstance(one, ast.Name)]
        block = ast.Module(loop.body, [])
        bound = {one.arg for one in ast.walk(block) if isinstance(one, ast.arg)}
        if len(names) < len(target.elts) or {*names} & (stored_in(block) | bound):
            continue
        if any(isinstance(node, (*_FRAMES, ast.Delete)) for node in ast.walk(block)):
            continue
        places = _in_places("batch_held", names)
        lines = [places.visit(line) for line in loop.body]
        made = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name) for name in names])
        loop.body = [bind("batch_held", made), *lines]
        count += 1
    return count


def loops_over_generators(tree: ast.Module) -> int:
    """``for x in y:``: over a function inside that yields each of ``y``."""
    names = numbered("drawn")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.For) or calls_one_of(line.iter, *_COUNTS):
            return None
        if any(isinstance(node, _FRAMES) for node in ast.walk(line.iter)):
            return None
        name = next(names)
        made = ast.parse(f"def {name}():\n    for one in over:\n        yield one").body[0]
        drawn = Replaced({"over": line.iter}).visit(made)
        line.iter = ast.Call(ast.Name(name), [], [])
        return [drawn, line]

    return each_line(tree, rewrite)


def loops_with_next(tree: ast.Module) -> int:
    """``for x in y:``: ``x = next(turns)`` in a ``while`` that ends with the iterator."""
    names = numbered("turns")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        if not isinstance(line, ast.For) or line.orelse or calls_one_of(line.iter, *_COUNTS):
            return None
        name = next(names)
        ends = ast.ExceptHandler(ast.Name("StopIteration"), None, [ast.Break()])
        turn = ast.Call(ast.Name("next"), [ast.Name(name)], [])
        drawn = ast.Try([ast.Assign([line.target], turn)], [ends], [], [])
        made = bind(name, ast.Call(ast.Name("iter"), [line.iter], []))
        return [made, ast.While(ast.Constant(True), [drawn, *line.body], [])]

    return each_line(tree, rewrite)


def functions_decorated(tree: ast.Module) -> int:
    """Functions with loops get a decorator that calls them and does nothing else."""
    count = 0
    for function in _functions(tree):
        loops = any(isinstance(node, (ast.For, ast.While)) for node in ast.walk(function))
        if loops and not function.decorator_list and not function.name.startswith("__"):
            function.decorator_list = [ast.Name("watched")]
            count += 1
    if count:
        put_import(tree, f"import functools\n{_WRAPS}")
    return count


def calls_bound_first(tree: ast.Module) -> int:
    """``f(a, b)`` of a function of the module: ``bound = partial(f, a)``, then ``bound(b)``."""
    own = {line.name for line in tree.body if isinstance(line, ast.FunctionDef)}
    names = numbered("bound")

    def rewrite(line: ast.stmt) -> Sequence[ast.stmt] | None:
        call = line.value if isinstance(line, (ast.Assign, ast.Expr, ast.Return)) else None
        if not isinstance(call, ast.Call) or not calls_one_of(call, *own) or len(call.args) < 2:
            return None
        if any(isinstance(node, (*_FRAMES, ast.Starred)) for node in ast.walk(line)):
            return None
        made = ast.Call(ast.Name("bound_to"), [call.func, call.args.pop(0)], [])
        call.func = ast.Name(name := next(names))
        return [bind(name, made), line]

    count = each_line(tree, rewrite)
    if count:
        put_import(tree, "from functools import partial as bound_to")
    return count


def classes_inherited(tree: ast.Module) -> int:
    """``class A(B): ...``: ``class ABase(B): ...``, and ``class A(ABase): pass``."""
    body: list[ast.stmt] = []
    count = 0
    for line in tree.body:
        if not isinstance(line, ast.ClassDef) or line.decorator_list or line.keywords:
            body.append(line)
            continue
        named = [node for node in ast.walk(line) if isinstance(node, ast.Name)]
        if any(node.id in (line.name, "__class__") for node in named):
            body.append(line)
            continue
        base = f"{line.name}Base"
        made = ast.parse(f"class {line.name}({base}):\n    pass").body[0]
        line.name = base
        body += [line, made]
        count += 1
    tree.body = body
    return count


def _in_places(holder: str, names: Iterable[str]) -> Replaced:
    """Names replaced by places in a dictionary."""
    return Replaced({name: ast.Subscript(ast.Name(holder), ast.Constant(name)) for name in names})


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of the module and methods of its classes."""
    for line in tree.body:
        for one in line.body if isinstance(line, ast.ClassDef) else (line,):
            if isinstance(one, ast.FunctionDef):
                yield one


def _assigned_in(line: ast.stmt) -> set[str]:
    return {
        node.id
        for part in ast.walk(line)
        if isinstance(part, ast.Assign) and any(isinstance(x, ast.Call) for x in ast.walk(part))
        for target in part.targets
        for node in (target.elts if isinstance(target, ast.Tuple) else (target,))
        if isinstance(node, ast.Name)
    }


def _bound_otherwise(function: ast.FunctionDef) -> set[str]:
    """Names that anything but assignments without a type binds, the parameters too."""
    typed = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.AnnAssign)
        for name in stored_in(node.target)
    }
    given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return given | typed | bound_elsewhere(function)
