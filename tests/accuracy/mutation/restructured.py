"""A rewrite that moves what a function holds into an object, as engines and Trainers are written.

``def train(model, loader): ...`` becomes a class that is made of ``model`` and ``loader``, keeps
them and what the function assigns once as attributes, and does in ``run`` what the function did.
The function stays and makes the object, so that nothing that calls it changes.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from tests.accuracy.mutation.trees import Replaced, stored_in

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What keeps names of its own inside a function, or needs the function's frame.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FRAMES = (ast.Global, ast.Nonlocal, ast.ClassDef, ast.AsyncFunctionDef, ast.Yield, ast.YieldFrom,
           ast.Await, ast.NamedExpr, ast.Delete)  # fmt: skip
_LONG = 4  # shorter ones nobody makes a class of
_LOOPS = (ast.For, ast.While)


def functions_as_objects(tree: ast.Module) -> int:
    """Functions of the module with loops in them become classes with ``__init__`` and ``run``."""
    body: list[ast.stmt] = []
    changed = 0
    for line in tree.body:
        if isinstance(line, ast.FunctionDef) and _can_be_object(line):
            body += _as_object(line)
            changed += 1
        else:
            body.append(line)
    tree.body = body
    return changed


def _can_be_object(function: ast.FunctionDef) -> bool:
    inside = [node for line in function.body for node in ast.walk(line)]
    taken = {node.id for node in inside if isinstance(node, ast.Name)}
    return (
        len(function.body) >= _LONG
        and not function.decorator_list
        and not {"self", "super", "locals", "__class__"} & taken
        and any(isinstance(node, _LOOPS) for node in inside)
        and not any(isinstance(node, _FRAMES) for node in inside)
    )


def _as_object(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    name = "".join(part.title() for part in function.name.split("_")) + "Run"
    given = [*_parameters(function.args)]
    kept = {*given, *_assigned_once(function)} - bound_elsewhere(function)
    arguments = copy.deepcopy(function.args)
    arguments.args = [ast.arg("self"), *arguments.args]
    if function.args.posonlyargs:
        arguments.posonlyargs = [ast.arg("self"), *function.args.posonlyargs]
        arguments.args = function.args.args
    of_self = [_attribute(one) for one in given]
    stores = [ast.Assign([ast.Attribute(ast.Name("self"), one, ast.Store())], ast.Name(one))
              for one in given]  # fmt: skip
    own = Replaced({name: _attribute(name) for name in kept})
    run = [own.visit(line) for line in function.body]
    first = [ast.Assign([ast.Name(one, ast.Store())], value)
             for one, value in zip(given, of_self, strict=True) if one not in kept]  # fmt: skip
    alone = ast.arguments([], [ast.arg("self")], None, [], [], None, [])
    methods: list[ast.stmt] = [
        _function("__init__", arguments, stores or [ast.Pass()]),
        _function("run", alone, [*first, *run]),
    ]
    yield ast.ClassDef(name=name, bases=[], keywords=[], decorator_list=[], body=methods)
    made = ast.Call(ast.Name(name), _handed_on(function.args), _by_name(function.args))
    call = ast.Call(ast.Attribute(made, "run", ast.Load()), [], [])
    yield _function(function.name, function.args, [ast.Return(call)])


def _function(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    yield from (one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
    yield from (one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _handed_on(arguments: ast.arguments) -> list[ast.expr]:
    given: list[ast.expr] = [ast.Name(one.arg) for one in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg is not None:
        given.append(ast.Starred(ast.Name(arguments.vararg.arg), ast.Load()))
    return given


def _by_name(arguments: ast.arguments) -> list[ast.keyword]:
    given = [ast.keyword(one.arg, ast.Name(one.arg)) for one in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        given.append(ast.keyword(None, ast.Name(arguments.kwarg.arg)))
    return given


def _assigned_once(function: ast.FunctionDef) -> set[str]:
    """What the function itself assigns, outside of its loops: ``optimizer = Adam(...)``."""
    return {name for line in function.body for name in _assigned_in(line)}


def _assigned_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (*_SCOPES, *_LOOPS)):
        return
    for target in node.targets if isinstance(node, ast.Assign) else ():
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,)
        yield from (part.id for part in parts if isinstance(part, ast.Name))
    for child in ast.iter_child_nodes(node):
        yield from _assigned_in(child)


def bound_elsewhere(function: ast.FunctionDef) -> set[str]:
    """Names that are bound in ways that attributes cannot be, or by functions inside."""
    bound: set[str] = set()
    for node in (one for line in function.body for one in ast.walk(line)):
        if isinstance(node, _SCOPES):
            bound |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            bound |= stored_in(node)
            bound |= {node.name} if isinstance(node, ast.FunctionDef) else set()
        elif isinstance(node, ast.comprehension | ast.For):
            bound |= stored_in(node.target)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bound |= stored_in(node.optional_vars)
    return bound


def _attribute(name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name("self"), name, ast.Load())
