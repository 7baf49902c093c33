"""Rewrites in which values and turns of loops come by another road, as frameworks hand them on.

Results that a dictionary holds, batches that are dictionaries, loops over generators and with
``next``, functions behind a decorator or bound by ``partial``, classes with a base of their own.
Each takes a module's tree, rewrites it wherever it applies, and gives the number of places.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.accuracy.mutation.trees import Replaced, first_after_imports, stored_in

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        places = {
            name: ast.Subscript(ast.Name("kept"), ast.Constant(name)) for name in sorted(names)
        }
        function.body = [_InPlaces(places).visit(line) for line in function.body]
        _put_first(function, ast.parse("kept = {}").body)
        count += 1
    return count


def batches_in_dict(tree: ast.Module) -> int:
    """``for x, y in z: f(x)``: ``batch = {"x": x, "y": y}`` first, and ``f(batch["x"])``."""
    count = 0
    for loop in [node for node in ast.walk(tree) if isinstance(node, ast.For)]:
        target = loop.target
        if isinstance(target, ast.Tuple) and _calls(loop.iter, "enumerate"):
            target = target.elts[-1]
        if not isinstance(target, ast.Tuple):
            continue
        names = [one.id for one in target.elts if isinstance(one, ast.Name)]
        block = ast.Module(loop.body, [])
        bound = {one.arg for one in ast.walk(block) if isinstance(one, ast.arg)}
        if len(names) < len(target.elts) or {*names} & (stored_in(block) | bound):
            continue
        held: dict[str, ast.expr] = {
            name: ast.Subscript(ast.Name("batch_held"), ast.Constant(name)) for name in names
        }
        if any(isinstance(node, (*_FRAMES, ast.Delete)) for node in ast.walk(block)):
            continue
        lines = [_InPlaces(held).visit(line) for line in loop.body]
        made = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name) for name in names])
        loop.body = [ast.Assign([ast.Name("batch_held", ast.Store())], made), *lines]
        count += 1
    return count


def loops_over_generators(tree: ast.Module) -> int:
    """``for x in y:``: over a function inside that yields each of ``y``."""
    count = 0
    for block in _blocks(tree):
        lines: list[ast.stmt] = []
        for line in block:
            if (
                isinstance(line, ast.For)
                and not _calls(line.iter, *_COUNTS)
                and not any(isinstance(node, _FRAMES) for node in ast.walk(line.iter))
            ):
                count += 1
                name = f"drawn_{count}"
                made = ast.parse(f"def {name}():\n    for one in over:\n        yield one")
                lines.append(Replaced({"over": line.iter}).visit(made.body[0]))
                line.iter = ast.Call(ast.Name(name), [], [])
            lines.append(line)
        block[:] = lines
    return count


def loops_with_next(tree: ast.Module) -> int:
    """``for x in y:``: ``x = next(turns)`` in a ``while`` that ends with the iterator."""
    count = 0
    for block in _blocks(tree):
        lines: list[ast.stmt] = []
        for line in block:
            if not isinstance(line, ast.For) or line.orelse or _calls(line.iter, *_COUNTS):
                lines.append(line)
                continue
            count += 1
            name = f"turns_{count}"
            drawn = ast.parse(
                f"while True:\n    try:\n        x = next({name})\n    except StopIteration:\n"
                "        break"
            ).body[0]
            assert isinstance(drawn, ast.While)
            tried = drawn.body[0]
            assert isinstance(tried, ast.Try)
            assert isinstance(tried.body[0], ast.Assign)
            tried.body[0].targets = [line.target]
            drawn.body += line.body
            iterator = ast.Call(ast.Name("iter"), [line.iter], [])
            lines += [ast.Assign([ast.Name(name, ast.Store())], iterator), drawn]
        block[:] = lines
    return count


def functions_decorated(tree: ast.Module) -> int:
    """Functions with loops get a decorator that calls them and does nothing else."""
    count = 0
    for function in _functions(tree):
        loops = any(isinstance(node, (ast.For, ast.While)) for node in ast.walk(function))
        if loops and not function.decorator_list and not function.name.startswith("__"):
            function.decorator_list = [ast.Name("watched")]
            count += 1
    if count:
        at = first_after_imports(tree)
        tree.body[at:at] = ast.parse("import functools\n" + _WRAPS).body
    return count


def calls_bound_first(tree: ast.Module) -> int:
    """``f(a, b)`` of a function of the module: ``bound = partial(f, a)``, then ``bound(b)``."""
    own = {line.name for line in tree.body if isinstance(line, ast.FunctionDef)}
    count = 0
    for block in _blocks(tree):
        lines: list[ast.stmt] = []
        for line in block:
            call = getattr(line, "value", None)
            if (
                isinstance(line, (ast.Assign, ast.Expr, ast.Return))
                and isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id in own
                and len(call.args) > 1
                and not any(isinstance(node, (*_FRAMES, ast.Starred)) for node in ast.walk(line))
            ):
                count += 1
                name = f"bound_{count}"
                first = [call.func, call.args.pop(0)]
                call.func = ast.Name(name)
                made = ast.Call(ast.Name("bound_to"), first, [])
                lines.append(ast.Assign([ast.Name(name, ast.Store())], made))
            lines.append(line)
        block[:] = lines
    if count:
        at = first_after_imports(tree)
        tree.body[at:at] = ast.parse("from functools import partial as bound_to").body
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


class _InPlaces(ast.NodeTransformer):
    """Names replaced by places in a dictionary."""

    def __init__(self, places: dict[str, ast.Subscript]) -> None:
        self._places = places

    def visit_Name(self, node: ast.Name) -> ast.expr:
        place = self._places.get(node.id)
        return node if place is None else ast.Subscript(place.value, place.slice, node.ctx)


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
    """Names that anything but assignments binds: parameters, loops, imports, ``with``."""
    bound = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for node in (one for line in function.body for one in ast.walk(line)):
        if isinstance(node, (ast.For, ast.comprehension)):
            bound |= stored_in(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bound |= stored_in(node.optional_vars)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.AnnAssign):
            bound |= stored_in(node.target)
    return bound


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        if not isinstance(node, ast.ClassDef)
        for field in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, field, None), list) and block
    ]


def _put_first(function: ast.FunctionDef, lines: list[ast.stmt]) -> None:
    first = function.body[0]
    told = int(isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))
    function.body[told:told] = lines


def _calls(node: ast.AST, *names: str) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in names
