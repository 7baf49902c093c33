"""The same program written in other ways: other imports, helpers, classes, closures, files, names.

Each spelling takes a program's text and gives its files (``train.py`` is the script), or None where
it does not apply. None of them changes what the program does. They rewrite the syntax tree of
``ast``, which knows what is read and what is bound; the layout changes with it.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, TypeAlias

from tests.accuracy.mutation.trees import (
    FUNCTIONS,
    Members,
    Renamed,
    Replaced,
    as_text,
    attributes_of,
    bound_in,
    certainly,
    defaulted,
    defined_by,
    entry_of,
    first_after_imports,
    flow_of,
    is_start,
    leaves_block,
    loaded_outside,
    made_once,
    make_call,
    make_function,
    put_before,
    replace_in,
    step_loops,
    stored_in,
    stored_outside,
)
from xladoctor import catalogue

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Files: TypeAlias = "dict[str, str]"
    Spelling: TypeAlias = "Callable[[str, random.Random], Files | None]"

MAIN = "train.py"


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
        used = attributes_of(tree, name.asname)
        if form == "full":
            Replaced({name.asname: ast.parse(name.name, mode="eval").body}).visit(tree)
            lines.append(ast.Import([ast.alias(name.name)]))
        elif form == "members" and used is not None and not used & bound_in(tree):
            Members(name.asname).visit(tree)
            lines.append(ast.ImportFrom(name.name, [ast.alias(item) for item in sorted(used)], 0))
        else:
            asname = None if name.asname == last else name.asname
            lines.append(ast.ImportFrom(package, [ast.alias(last, asname)], 0))
    tree.body = lines
    return {MAIN: as_text(tree)} if changed else None


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
    Replaced(names).visit(tree)
    step = next((node.func for node in ast.walk(tree)
                 if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                 and node.func.attr == "optimizer_step"), None)  # fmt: skip
    if step is not None:
        wanted = ast.dump(step)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.dump(node.func) == wanted:
                node.func = ast.Name("apply_step")
        made = ast.Assign([ast.Name("apply_step", ast.Store())], step)
        tree.body.insert(first_after_imports(tree), made)
    return {MAIN: as_text(tree)} if names else None


def helper(text: str, rng: random.Random) -> Files | None:
    """The body of the step loop becomes a function of the file."""
    tree = ast.parse(text)
    for function, loop in step_loops(tree):
        body = [copy.deepcopy(line) for line in loop.body]
        if leaves_block(body):
            continue
        bound = stored_in(loop.target)
        taken, given = flow_of(function, loop.body, first=bound)
        if not given <= certainly(body) | taken:
            continue
        made = make_function("one_step", sorted(taken), body, sorted(given))
        loop.body = [make_call("one_step", sorted(taken), sorted(given))]
        put_before(tree, function, made)
        return {MAIN: as_text(tree)}
    return None


def method(text: str, rng: random.Random) -> Files | None:
    """What each core runs becomes a class: arguments and objects are its attributes."""
    tree = ast.parse(text)
    entry = entry_of(tree)
    if entry is None or any(isinstance(node, ast.Global) for node in ast.walk(entry)):
        return None
    arguments = [arg.arg for arg in entry.args.args]
    kept = set(arguments) | made_once(entry)
    kept -= {name for node in ast.walk(entry) if isinstance(node, FUNCTIONS) and node is not entry
             for name in stored_in(node) | {arg.arg for arg in node.args.args}}  # fmt: skip
    run = copy.deepcopy(entry)
    Replaced({name: ast.parse(f"self.{name}", mode="eval").body for name in kept}).visit(run)
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
        for name, default in zip(arguments, defaulted(entry), strict=True)
    )
    entry.body = ast.parse(f"Job({call}).run()").body
    tree.body.insert(tree.body.index(entry), job)
    return {MAIN: as_text(tree)}


def closure(text: str, rng: random.Random) -> Files | None:
    """The step loop moves into a function inside the function."""
    tree = ast.parse(text)
    for function, loop in step_loops(tree):
        if any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(loop)):
            continue
        inner = copy.deepcopy(loop)
        stored = stored_in(loop)
        elsewhere = stored_outside(function, loop)
        shared = sorted(stored & elsewhere)
        given = sorted((stored - elsewhere) & loaded_outside(function, loop))
        body: list[ast.stmt] = [ast.Nonlocal(shared)] if shared else []
        made = make_function("go_over_data", [], [*body, inner], given)
        replace_in(function, loop, [made, make_call("go_over_data", [], given)])
        return {MAIN: as_text(tree)}
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
        elif is_start(line) or isinstance(line, (ast.Expr, ast.If)):
            left.append(line)
        else:
            moved.append(line)
    names = sorted({name for line in moved for name in defined_by(line)})
    if not any(isinstance(line, ast.FunctionDef) for line in moved):
        return None
    end = max(n for n, line in enumerate(left) if isinstance(line, (ast.Import, ast.ImportFrom)))
    left.insert(end + 1, ast.ImportFrom("parts", [ast.alias(name) for name in names], 0))
    return {
        MAIN: as_text(ast.Module(left, [])),
        "parts.py": as_text(ast.Module(moved, [])),
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
    bound = bound_in(tree) - imported - keywords - methods - fields - {"self", "cls", "_"}
    bound -= {name for row in catalogue.table("called")["called"] for name in _named(row["call"])}
    order = sorted(name for name in bound if not name.startswith("__"))
    rng.shuffle(order)
    new = {name: f"v{number}" for number, name in enumerate(order)}
    Renamed(new, methods).visit(tree)
    return {MAIN: as_text(tree)}


def _named(call: str) -> set[str]:
    """What a framework gives by name to a method that the program writes: it keeps its name."""
    made = ast.parse("name(" + call.partition("(")[2])
    return {node.arg for node in ast.walk(made) if isinstance(node, ast.keyword) and node.arg}


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
            if node.returns is None and not leaves_block(node.body):
                node.returns = ast.Constant(None)
    return {MAIN: as_text(tree)}


def imports_turned_round(text: str, rng: random.Random) -> Files | None:
    """The imports in another order."""
    tree = ast.parse(text)
    numbers = [number for number, line in enumerate(tree.body)
               if isinstance(line, (ast.Import, ast.ImportFrom))]  # fmt: skip
    lines = [tree.body[number] for number in numbers]
    rng.shuffle(lines)
    for number, line in zip(numbers, lines, strict=True):
        tree.body[number] = line
    return {MAIN: as_text(tree)}


def wrapped(text: str, rng: random.Random) -> Files | None:
    """What each core runs stands in a ``try`` that does nothing but go on."""
    tree = ast.parse(text)
    entry = entry_of(tree)
    if entry is None:
        return None
    shell = ast.parse("try:\n    pass\nfinally:\n    sys.stdout.flush()").body[0]
    assert isinstance(shell, ast.Try)
    shell.body = entry.body
    entry.body = [shell]
    tree.body.insert(first_after_imports(tree), ast.Import([ast.alias("sys")]))
    return {MAIN: as_text(tree)}


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
