"""The same program written in other ways: other imports, helpers, classes, closures, files, names.

Each spelling takes a program's text and gives its files (``train.py`` is the script), or None where
it does not apply. None of them changes what the program does. They rewrite the syntax tree of
``ast``, which knows what is read and what is bound; the layout changes with it.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator

    Files: TypeAlias = "dict[str, str]"
    Spelling: TypeAlias = "Callable[[str, random.Random], Files | None]"

MAIN = "train.py"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_STARTS = ("torch_xla.launch", "xmp.spawn", "notebook_launcher")


def as_written(text: str, rng: random.Random) -> Files | None:
    return {MAIN: text}


def other_imports(text: str, rng: random.Random) -> Files | None:
    """``import a.b as x``: from its package, by its full name, or its members one by one."""
    tree = ast.parse(text)
    form = rng.choice(("from", "full", "members"))
    lines: list[ast.stmt] = []
    changed = False
    for line in tree.body:
        if not isinstance(line, ast.Import) or len(line.names) != 1:
            lines.append(line)
            continue
        [name] = line.names
        package, _, last = name.name.rpartition(".")
        if not package or not name.asname:
            lines.append(line)
            continue
        changed = True
        used = _attributes_of(tree, name.asname)
        if form == "full":
            _Replaced({name.asname: ast.parse(name.name, mode="eval").body}).visit(tree)
            lines.append(ast.Import([ast.alias(name.name)]))
        elif form == "members" and used is not None and not used & _bound(tree):
            _Members(name.asname).visit(tree)
            lines.append(ast.ImportFrom(name.name, [ast.alias(item) for item in sorted(used)], 0))
        else:
            asname = None if name.asname == last else name.asname
            lines.append(ast.ImportFrom(package, [ast.alias(last, asname)], 0))
    tree.body = lines
    return {MAIN: _text(tree)} if changed else None


def other_aliases(text: str, rng: random.Random) -> Files | None:
    """Other names for what is imported, and one more name for a function of torch_xla."""
    tree = ast.parse(text)
    names: dict[str, ast.expr] = {}
    for line in tree.body:
        for name in line.names if isinstance(line, (ast.Import, ast.ImportFrom)) else ():
            if name.asname or isinstance(line, ast.ImportFrom):
                old = name.asname or name.name
                name.asname = f"{old}_{rng.choice(('x', 'lib', 'mod'))}"
                names[old] = ast.Name(name.asname)
    _Replaced(names).visit(tree)
    step = next((node.func for node in ast.walk(tree)
                 if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                 and node.func.attr == "optimizer_step"), None)  # fmt: skip
    if step is not None:
        wanted = ast.dump(step)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.dump(node.func) == wanted:
                node.func = ast.Name("apply_step")
        made = ast.Assign([ast.Name("apply_step", ast.Store())], step)
        tree.body.insert(_first_after_imports(tree), made)
    return {MAIN: _text(tree)} if names else None


def helper(text: str, rng: random.Random) -> Files | None:
    """The body of the step loop becomes a function of the file."""
    tree = ast.parse(text)
    for function, loop in _step_loops(tree):
        body = [copy.deepcopy(line) for line in loop.body]
        if _leaves(body):
            continue
        bound = _stored(loop.target)
        taken, given = _flow(function, loop.body, first=bound)
        if not given <= _certainly(body) | taken:
            continue
        made = _function("one_step", sorted(taken), body, sorted(given))
        loop.body = [_call("one_step", sorted(taken), sorted(given))]
        _put_before(tree, function, made)
        return {MAIN: _text(tree)}
    return None


def method(text: str, rng: random.Random) -> Files | None:
    """What each core runs becomes a class: arguments and objects are its attributes."""
    tree = ast.parse(text)
    entry = _entry(tree)
    if entry is None or any(isinstance(node, ast.Global) for node in ast.walk(entry)):
        return None
    arguments = [arg.arg for arg in entry.args.args]
    kept = set(arguments) | _made_once(entry)
    kept -= {name for node in ast.walk(entry) if isinstance(node, _FUNCTIONS) and node is not entry
             for name in _stored(node) | {arg.arg for arg in node.args.args}}  # fmt: skip
    run = copy.deepcopy(entry)
    _Replaced({name: ast.parse(f"self.{name}", mode="eval").body for name in kept}).visit(run)
    run.name = "run"
    run.args = ast.arguments([], [ast.arg("self")], None, [], [], None, [])
    run.decorator_list = []
    start = ast.parse(
        f"def __init__({', '.join(['self', *arguments])}):\n"
        + ("".join(f"    self.{name} = {name}\n" for name in arguments) or "    pass\n")
    ).body[0]
    job = ast.parse("class Job:\n    pass").body[0]
    assert isinstance(job, ast.ClassDef)
    job.body = [start, run]
    call = ", ".join(
        f"{name}={name}" if default else name
        for name, default in zip(arguments, _defaulted(entry), strict=True)
    )
    entry.body = ast.parse(f"Job({call}).run()").body
    tree.body.insert(tree.body.index(entry), job)
    return {MAIN: _text(tree)}


def closure(text: str, rng: random.Random) -> Files | None:
    """The step loop moves into a function inside the function."""
    tree = ast.parse(text)
    for function, loop in _step_loops(tree):
        if any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(loop)):
            continue
        inner = copy.deepcopy(loop)
        stored = _stored(loop)
        elsewhere = _stored_outside(function, loop)
        shared = sorted(stored & elsewhere)
        given = sorted((stored - elsewhere) & _loaded_outside(function, loop))
        body: list[ast.stmt] = [ast.Nonlocal(shared)] if shared else []
        made = _function("go_over_data", [], [*body, inner], given)
        _replace(function, loop, [made, _call("go_over_data", [], given)])
        return {MAIN: _text(tree)}
    return None


def other_file(text: str, rng: random.Random) -> Files | None:
    """All but the start moves to another file."""
    tree = ast.parse(text)
    moved: list[ast.stmt] = []
    left: list[ast.stmt] = []
    for line in tree.body:
        if isinstance(line, (ast.Import, ast.ImportFrom)):
            moved.append(line)
            left.append(line)
        elif _is_start(line) or isinstance(line, (ast.Expr, ast.If)):
            left.append(line)
        else:
            moved.append(line)
    names = sorted({name for line in moved for name in _defined(line)})
    if not any(isinstance(line, ast.FunctionDef) for line in moved):
        return None
    end = max(n for n, line in enumerate(left) if isinstance(line, (ast.Import, ast.ImportFrom)))
    left.insert(end + 1, ast.ImportFrom("parts", [ast.alias(name) for name in names], 0))
    return {
        MAIN: _text(ast.Module(left, [])),
        "parts.py": _text(ast.Module(moved, [])),
    }


def other_names(text: str, rng: random.Random) -> Files | None:
    """Functions, classes, arguments and variables get names that say nothing."""
    tree = ast.parse(text)
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {(name.asname or name.name).split(".")[0] for node in imports for name in node.names}
    methods = {item.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
               for item in node.body if isinstance(item, ast.FunctionDef)}  # fmt: skip
    fields = {item.target.id for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
              for item in node.body
              if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)}  # fmt: skip
    bound = _bound(tree) - imported - keywords - methods - fields - {"self", "cls", "_"}
    order = sorted(name for name in bound if not name.startswith("__"))
    rng.shuffle(order)
    new = {name: f"v{number}" for number, name in enumerate(order)}
    _Renamed(new, methods).visit(tree)
    return {MAIN: _text(tree)}


def with_hints(text: str, rng: random.Random) -> Files | None:
    """Arguments and results with types."""
    tree = ast.parse(text)
    types = {"model": "torch.nn.Module", "device": "torch.device", "loader": "DataLoader",
             "optimizer": "torch.optim.Optimizer", "index": "int", "rank": "int"}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for arg in node.args.args:
                if arg.arg in types and arg.annotation is None:
                    arg.annotation = ast.Constant(types[arg.arg])
            if node.returns is None and not _leaves(node.body):
                node.returns = ast.Constant(None)
    return {MAIN: _text(tree)}


def imports_turned_round(text: str, rng: random.Random) -> Files | None:
    """The imports in another order."""
    tree = ast.parse(text)
    numbers = [number for number, line in enumerate(tree.body)
               if isinstance(line, (ast.Import, ast.ImportFrom))]  # fmt: skip
    lines = [tree.body[number] for number in numbers]
    rng.shuffle(lines)
    for number, line in zip(numbers, lines, strict=True):
        tree.body[number] = line
    return {MAIN: _text(tree)}


def wrapped(text: str, rng: random.Random) -> Files | None:
    """What each core runs stands in a ``try`` that does nothing but go on."""
    tree = ast.parse(text)
    entry = _entry(tree)
    if entry is None:
        return None
    shell = ast.parse("try:\n    pass\nfinally:\n    sys.stdout.flush()").body[0]
    assert isinstance(shell, ast.Try)
    shell.body = entry.body
    entry.body = [shell]
    tree.body.insert(_first_after_imports(tree), ast.Import([ast.alias("sys")]))
    return {MAIN: _text(tree)}


#: Spellings in which each fault is planted.
SPELLINGS: dict[str, Spelling] = {
    "as written": as_written, "imports": other_imports, "aliases": other_aliases,
    "helper": helper, "class": method, "closure": closure, "other file": other_file,
    "names": other_names,
}  # fmt: skip
#: Changes without a meaning: no finding may come or go.
CHANGES: dict[str, Spelling] = {
    "names": other_names, "imports turned round": imports_turned_round, "wrapped": wrapped,
    "helper": helper, "type hints": with_hints, "imports": other_imports, "closure": closure,
}  # fmt: skip


class _Replaced(ast.NodeTransformer):
    """Names replaced by expressions, where they are read and where they are bound."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name) and node.id in self.names:
            new = copy.deepcopy(self.names[node.id])
            if isinstance(new, (ast.Name, ast.Attribute)):
                new.ctx = node.ctx
            return new
        return self.generic_visit(node)


class _Members(ast.NodeTransformer):
    """``module.name`` becomes ``name``."""

    def __init__(self, module: str) -> None:
        self.module = module

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Attribute) and _is_name(node.value, self.module):
            return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)


class _Renamed(ast.NodeTransformer):
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


def _text(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _attributes_of(tree: ast.AST, name: str) -> set[str] | None:
    """What is read from a module; None if the module itself is used."""
    used = [node for node in ast.walk(tree) if _is_name(node, name)]
    read = [node.attr for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and _is_name(node.value, name)]  # fmt: skip
    return set(read) if len(used) == len(read) and read else None


def _bound(tree: ast.AST) -> set[str]:
    """All names that the tree binds, in any scope."""
    names = _stored(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


def _stored(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip


def _loaded(tree: ast.AST) -> set[str]:
    """What is read, what is added to with ``+=`` too."""
    read = {node.id for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip
    added = {node.target.id for node in ast.walk(tree)
             if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}  # fmt: skip
    return read | added


def _outside(function: ast.FunctionDef, part: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that are in no part of it."""
    inside = set(map(id, ast.walk(part)))
    return (node for node in ast.walk(function) if id(node) not in inside)


def _stored_outside(function: ast.FunctionDef, part: ast.AST) -> set[str]:
    names = {node.id for node in _outside(function, part)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    return names | {arg.arg for arg in function.args.args}


def _loaded_outside(function: ast.FunctionDef, part: ast.AST) -> set[str]:
    return {node.id for node in _outside(function, part)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}  # fmt: skip


def _flow(
    function: ast.FunctionDef, body: list[ast.stmt], first: set[str]
) -> tuple[set[str], set[str]]:
    """What a block takes from its function, and what it gives back to it (or to its next turn)."""
    block = ast.Module(body, [])
    elsewhere = _stored_outside(function, block) | first
    stored = _stored(block)
    added = {node.target.id for node in ast.walk(block)
             if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}  # fmt: skip
    taken = _loaded(block) & elsewhere
    given = stored & (_loaded_outside(function, block) | added)
    return taken, given - first


def _certainly(body: list[ast.stmt]) -> set[str]:
    """What the statements of a block bind whichever way it goes."""
    return {
        name for line in body if isinstance(line, (ast.Assign, ast.With)) for name in _stored(line)
    }


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether something in a block leaves it for its loop or its function."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return False


def _step_loops(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Innermost loops of functions that go backward, or call what does."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    going = {function.name for function in functions if _goes_backward(function.body)}
    for function in functions:
        for loop in ast.walk(function):
            if isinstance(loop, ast.For) and _steps(loop.body, going):
                yield function, loop


def _steps(body: list[ast.stmt], going: set[str]) -> bool:
    """Whether a block goes backward itself, and not in a loop of its own."""
    nodes = [node for line in body for node in ast.walk(line)]
    if any(_goes_backward(node.body) for node in nodes if isinstance(node, ast.For)):
        return False
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {name.id for name in calls if isinstance(name, ast.Name)}
    return _goes_backward(body) or bool(called & going)


def _goes_backward(body: object) -> bool:
    return isinstance(body, list) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        for line in body
        for node in ast.walk(line)
    )


def _function(
    name: str, arguments: Iterable[str], body: list[ast.stmt], given: list[str]
) -> ast.FunctionDef:
    made = ast.parse(f"def {name}({', '.join(arguments)}):\n    pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.body = [*body, _returning(given)] if given else body
    return made


def _returning(given: list[str]) -> ast.stmt:
    values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in given]
    return ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load()))


def _call(name: str, arguments: Iterable[str], given: list[str]) -> ast.stmt:
    targets = f"{', '.join(given)} = " if given else ""
    return ast.parse(f"{targets}{name}({', '.join(arguments)})").body[0]


def _put_before(tree: ast.Module, function: ast.FunctionDef, made: ast.stmt) -> None:
    """A function of the module, before the one (or the class) that calls it."""
    for number, line in enumerate(tree.body):
        if any(node is function for node in ast.walk(line)):
            tree.body.insert(number, made)
            return


def _replace(function: ast.AST, old: ast.stmt, new: list[ast.stmt]) -> None:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and any(line is old for line in block):
                at = next(n for n, line in enumerate(block) if line is old)
                block[at : at + 1] = new
                return


def _is_start(line: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) in _STARTS
               for node in ast.walk(line))  # fmt: skip


def _entry(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that each core runs, or ``main`` of a program that starts nothing."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    starts = [node for node in calls if ast.unparse(node.func) in _STARTS]
    wanted = {ast.unparse(node.args[0]) for node in starts} or {"main"}
    functions = (line for line in tree.body if isinstance(line, ast.FunctionDef))
    return next((line for line in functions if line.name in wanted), None)


def _made_once(entry: ast.FunctionDef) -> set[str]:
    """Variables that one statement of the function itself binds, and nothing else."""
    targets = [line.targets for line in entry.body if isinstance(line, ast.Assign)]
    once = [first.id for first, *others in targets if isinstance(first, ast.Name) and not others]
    every = [node.id for node in ast.walk(entry)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]  # fmt: skip
    return {name for name in once if every.count(name) == 1}


def _defaulted(entry: ast.FunctionDef) -> list[bool]:
    count = len(entry.args.args) - len(entry.args.defaults)
    return [number >= count for number in range(len(entry.args.args))]


def _first_after_imports(tree: ast.Module) -> int:
    return 1 + max(
        n for n, line in enumerate(tree.body) if isinstance(line, (ast.Import, ast.ImportFrom))
    )


def _defined(line: ast.stmt) -> set[str]:
    if isinstance(line, (ast.FunctionDef, ast.ClassDef)):
        return {line.name}
    return _stored(line) if isinstance(line, (ast.Assign, ast.AnnAssign)) else set()
