"""Questions about syntax trees of ``ast``, and small changes to them, for ``spellings``."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
STARTS = ("torch_xla.launch", "xmp.spawn", "notebook_launcher")


class Replaced(ast.NodeTransformer):
    """Names replaced by expressions, where they are read and where they are bound."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name) and node.id in self.names:
            new = copy.deepcopy(self.names[node.id])
            if isinstance(new, (ast.Name, ast.Attribute, ast.Subscript)):
                new.ctx = node.ctx
            return new
        return self.generic_visit(node)


class Members(ast.NodeTransformer):
    """``module.name`` becomes ``name``."""

    def __init__(self, module: str) -> None:
        self.module = module

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Attribute) and is_name(node.value, self.module):
            return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)


class Renamed(ast.NodeTransformer):
    """Variables, arguments, functions and classes renamed."""

    def __init__(self, names: dict[str, str], methods: set[str]) -> None:
        self.names = names
        self.methods = methods

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            node.id = self.names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = self.names.get(node.arg, node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.name = self.names.get(node.name, node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [self.names.get(name, name) for name in node.names]
        return self.generic_visit(node)


def as_text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def attributes_of(tree: ast.AST, name: str) -> set[str] | None:
    """What is read from a module; None if the module itself is used."""
    used = [node for node in ast.walk(tree) if is_name(node, name)]
    read = [node.attr for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and is_name(node.value, name)]  # fmt: skip
    return set(read) if len(used) == len(read) and read else None


def bound_in(tree: ast.AST) -> set[str]:
    """All names that the tree binds, in any scope."""
    names = stored_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


def stored_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip


def loaded_in(tree: ast.AST) -> set[str]:
    """What is read, what is added to with ``+=`` too."""
    read = {node.id for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip
    added = {node.target.id for node in ast.walk(tree)
             if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}  # fmt: skip
    return read | added


def outside_of(function: ast.FunctionDef, part: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that are in no part of it."""
    inside = set(map(id, ast.walk(part)))
    return (node for node in ast.walk(function) if id(node) not in inside)


def stored_outside(function: ast.FunctionDef, part: ast.AST) -> set[str]:
    names = {node.id for node in outside_of(function, part)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    return names | {arg.arg for arg in function.args.args}


def loaded_outside(function: ast.FunctionDef, part: ast.AST) -> set[str]:
    return {node.id for node in outside_of(function, part)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip


def flow_of(
    function: ast.FunctionDef, body: list[ast.stmt], first: set[str]
) -> tuple[set[str], set[str]]:
    """What a block takes from its function, and what it gives back to it (or to its next turn)."""
    block = ast.Module(body, [])
    elsewhere = stored_outside(function, block) | first
    stored = stored_in(block)
    taken = loaded_in(block) & elsewhere
    # What it takes and binds anew is what its next turn takes.
    given = stored & (loaded_outside(function, block) | taken)
    return taken, given - first


def certainly(body: list[ast.stmt]) -> set[str]:
    """What the statements of a block bind whichever way it goes."""
    return {
        name
        for line in body
        if isinstance(line, (ast.Assign, ast.With))
        for name in stored_in(line)
    }


def leaves_block(body: list[ast.stmt]) -> bool:
    """Whether something in a block leaves it for its loop or its function."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return False


def step_loops(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Innermost loops of functions that go backward, or call what does."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    going = {function.name for function in functions if goes_backward(function.body)}
    for function in functions:
        for loop in ast.walk(function):
            if isinstance(loop, ast.For) and takes_steps(loop.body, going):
                yield function, loop


def takes_steps(body: list[ast.stmt], going: set[str]) -> bool:
    """Whether a block goes backward itself, and not in a loop of its own."""
    nodes = [node for line in body for node in ast.walk(line)]
    if any(goes_backward(node.body) for node in nodes if isinstance(node, ast.For)):
        return False
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {name.id for name in calls if isinstance(name, ast.Name)}
    return goes_backward(body) or bool(called & going)


def goes_backward(body: object) -> bool:
    return isinstance(body, list) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        for line in body
        for node in ast.walk(line)
    )


def make_function(
    name: str, arguments: Iterable[str], body: list[ast.stmt], given: list[str]
) -> ast.FunctionDef:
    made = ast.parse(f"def {name}({', '.join(arguments)}):\n    pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = [*body, returning(given)] if given else body
    return made


def returning(given: list[str]) -> ast.stmt:
    values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in given]
    return ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load()))


def make_call(name: str, arguments: Iterable[str], given: list[str]) -> ast.stmt:
    targets = f"{', '.join(given)} = " if given else ""
    return ast.parse(f"{targets}{name}({', '.join(arguments)})").body[0]


def put_before(tree: ast.Module, function: ast.FunctionDef, made: ast.stmt) -> None:
    """A function of the module, before the one (or the class) that calls it."""
    for number, line in enumerate(tree.body):
        if any(node is function for node in ast.walk(line)):
            tree.body.insert(number, made)
            return


def replace_in(function: ast.AST, old: ast.stmt, new: list[ast.stmt]) -> None:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and any(line is old for line in block):
                at = next(n for n, line in enumerate(block) if line is old)
                block[at : at + 1] = new
                return


def is_start(line: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS
               for node in ast.walk(line))  # fmt: skip


def entry_of(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that each core runs, or ``main`` of a program that starts nothing."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    starts = [node for node in calls if ast.unparse(node.func) in STARTS]
    wanted = {ast.unparse(node.args[0]) for node in starts} or {"main"}
    functions = (line for line in tree.body if isinstance(line, ast.FunctionDef))
    return next((line for line in functions if line.name in wanted), None)


def made_once(entry: ast.FunctionDef) -> set[str]:
    """Variables that one statement of the function itself binds, and nothing else."""
    targets = [line.targets for line in entry.body if isinstance(line, ast.Assign)]
    once = [first.id for first, *others in targets if isinstance(first, ast.Name) and not others]
    every = [node.id for node in ast.walk(entry)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]  # fmt: skip
    return {name for name in once if every.count(name) == 1}


def defaulted(entry: ast.FunctionDef) -> list[bool]:
    count = len(entry.args.args) - len(entry.args.defaults)
    return [number >= count for number in range(len(entry.args.args))]


def first_after_imports(tree: ast.Module) -> int:
    return 1 + max(
        n for n, line in enumerate(tree.body) if isinstance(line, (ast.Import, ast.ImportFrom))
    )


def defined_by(line: ast.stmt) -> set[str]:
    if isinstance(line, (ast.FunctionDef, ast.ClassDef)):
        return {line.name}
    return stored_in(line) if isinstance(line, (ast.Assign, ast.AnnAssign)) else set()
