"""Names of torch_xla by version: what XLA801 and XLA802 share."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.findings import Edit, Position
from xladoctor.lint.module_names import had_never, lost_names, module_names
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rewrites.moves import insert_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import FileModel


def version(text: str) -> tuple[int, ...]:
    """``"2.5"`` as ``(2, 5)``."""
    return tuple(int(part) for part in text.split("."))


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A row of ``tables/api.toml``; see there."""

    old: str
    kind: str
    new: str | None = None
    since: str | None = None
    deprecated_in: str | None = None
    removed_in: str | None = None
    arguments: str = "none"
    names: tuple[str, ...] = ()
    advice: str = ""
    no_fix: str = ""
    always: str | None = None
    never: bool = False
    no_module: bool = False
    stub: bool = False

    @property
    def package(self) -> str:
        """Whose name it is: that of torch_xla, or of the torch of the same release."""
        return self.old.partition(".")[0]

    def removed(self, target: tuple[int, ...]) -> bool:
        """Whether the target version lacks the name."""
        if self.never or self.no_module:
            return True
        return self.removed_in is not None and target >= version(self.removed_in)

    def deprecated(self, target: tuple[int, ...]) -> bool:
        """Whether the target version warns about the name, and has the replacement."""
        return (
            not self.removed(target)
            and self.deprecated_in is not None
            and target >= version(self.deprecated_in)
            and (self.since is None or target >= version(self.since))
        )

    def replaced(self, target: tuple[int, ...]) -> bool:
        """Whether the target version has the replacement."""
        return self.new is not None and (self.since is None or target >= version(self.since))


@functools.cache
def entries() -> dict[str, Entry]:
    """All rows by old name."""
    rows = catalogue.table("api")["name"]
    made = (Entry(**{**row, "names": tuple(row.get("names", ()))}) for row in rows)
    return {entry.old: entry for entry in made}


@functools.lru_cache(maxsize=4096)
def entry_for(dotted: str) -> Entry | None:
    """The row that a full name falls under: its own, or that of a module it is in."""
    while dotted:
        found = entries().get(dotted) or _never_had(dotted)
        if found is not None:
            return found
        dotted = dotted.rpartition(".")[0]
    return None


def _never_had(dotted: str) -> Entry | None:
    """A row for a name that no release of a module that is known by heart has had.

    Also for a private one that was lost, of which ``tables/api.toml`` says nothing.
    """
    module, _, name = dotted.rpartition(".")
    if not had_never(dotted):
        return None
    lost = lost_names().get(dotted)
    if lost is not None:
        return Entry(
            dotted, "function", removed_in=lost, advice="a public function, if there is one"
        )
    close = difflib.get_close_matches(name, module_names()[module], n=1, cutoff=0.75)
    kept = [one for one in close if (row := entries().get(f"{module}.{one}")) is None or row.new]
    advice = f"{module} has {kept[0]}" if kept else f"look at what {module} has"
    return Entry(dotted, "function", advice=advice, no_fix="the meaning is a guess", never=True)


def _is_no_module(dotted: str) -> Entry | None:
    """A row for what is imported as a module and is a function, or another name, of one."""
    module, _, name = dotted.rpartition(".")
    known = module_names()
    unlisted = dotted in known or dotted in catalogue.table("names")["unlisted"]
    if unlisted or name not in known.get(module, ()):
        return None
    return Entry(
        dotted,
        "module",
        advice=f"from {module} import {name}",
        no_fix="what is taken from it is not there",
        no_module=True,
    )


def never_reached(model: FileModel, node: cst.CSTNode, entry: Entry) -> bool:
    """Whether ``hasattr`` of a name that no release had keeps a use of it from ever running."""
    module, _, name = entry.old.rpartition(".")
    child, parent = node, model.parent(node)
    while entry.never and parent is not None:
        if isinstance(parent, cst.If) and child is parent.body:
            test = parent.test
            asks = isinstance(test, cst.Call) and model.name(test.func) == "builtins.hasattr"
            if asks and isinstance(test, cst.Call) and len(test.args) == 2:
                of, what = (argument.value for argument in test.args)
                return model.name(of) == module and model.literal(what) == name
        child, parent = parent, model.parent(parent)
    return False


def uses(model: FileModel) -> Iterator[tuple[cst.BaseExpression, str, Entry]]:
    """Expressions that name something of the table: node, full name, row; each chain once."""
    found = [
        (node, dotted, entry)
        for dotted, nodes in model.named.items()
        if (entry := entry_for(dotted)) is not None
        for node in nodes
    ]
    order = model.tree.order
    for node, dotted, entry in sorted(found, key=lambda item: order[item[0]]):
        if _in_import(model, node):
            continue
        parent = model.parent(node)
        if isinstance(parent, cst.Attribute) and (parent.attr is node or _names(model, parent)):
            continue
        if not _is_bound_here(parent, node) and not _is_told_above(model, node):
            yield node, dotted, entry


def imported(model: FileModel) -> Iterator[tuple[cst.ImportAlias, str, Entry]]:
    """Imports of something of the table: the alias, full name, row."""
    for statement in model.tree.imports:
        if isinstance(statement, cst.ImportFrom):
            if isinstance(statement.names, cst.ImportStar) or statement.relative:
                continue
            module = model.tree.text(statement.module).strip() if statement.module else ""
            names = [(alias, f"{module}.{_alias_name(alias)}", module) for alias in statement.names]
        else:
            names = [(alias, _alias_name(alias), _alias_name(alias)) for alias in statement.names]
        for alias, dotted, module in names:
            entry = entry_for(dotted) or _is_no_module(module)
            if entry is not None:
                yield alias, dotted, entry


def replacement_fix(model: FileModel, node: cst.BaseExpression, entry: Entry) -> Fix | None:
    """Write the new name where the old one is called, with the import that it needs.

    None if arguments do not carry over, or a name that the import would bind is taken.
    """
    parent = model.parent(node)
    if entry.always is not None and isinstance(parent, cst.Call) and not parent.args:
        return model.fix(f"Write {entry.always}", model.replace(parent, entry.always), safe=True)
    if entry.new is None or not isinstance(parent, cst.Call) or parent.func is not node:
        return None
    new = spell(model, node, entry.new, beside=node)
    arguments = _arguments(model, parent, entry.arguments)
    if new is None or arguments is None:
        return None
    spelled, added = new
    change = (
        model.replace(node, spelled)
        if entry.arguments == "same"
        else model.replace(parent, f"{spelled}({arguments})")
    )
    message = f"Replace by {spelled}"
    return model.fix(message, change, added, safe=True)


def import_fix(model: FileModel, alias: cst.ImportAlias, dotted: str, entry: Entry) -> Fix | None:
    """Import the new name under the old one, so that every use stays as it is."""
    statement = model.parent(alias)
    if entry.always is not None and isinstance(statement, cst.ImportFrom):
        return _without_import(model, statement, alias, entry)
    if entry.new is None or statement is None:
        return None
    bound = alias.asname.name if alias.asname is not None else alias.name
    name = model.tree.text(bound).strip()
    if entry.kind == "module":
        return _module_import_fix(model, statement, alias, dotted, entry)
    if not isinstance(statement, cst.ImportFrom):
        return None
    calls = _calls_of(model, name, entry)
    if calls is None:
        return None
    module, _, new = entry.new.rpartition(".")
    written = f"from {module} import {new}" + (f" as {name}" if new != name else "")
    return model.fix(
        f"Import {entry.new}", _written_import(model, statement, alias, written), calls, safe=True
    )


def _without_import(
    model: FileModel, statement: cst.ImportFrom, alias: cst.ImportAlias, entry: Entry
) -> Fix | None:
    """What the function always gave in place of its calls, and no import."""
    calls: list[Edit | None] = []
    for node, dotted, found in uses(model):
        call = model.parent(node)
        if found is not entry or dotted != entry.old or not isinstance(node, cst.Name):
            continue
        if not isinstance(call, cst.Call) or call.func is not node or call.args:
            return None
        calls.append(model.replace(call, entry.always or ""))
    assert not isinstance(statement.names, cst.ImportStar)
    alone = len(statement.names) == 1
    removed = model.remove_statement(statement) if alone else _without_name(model, statement, alias)
    return model.fix(f"Write {entry.always}", removed, *calls, safe=True)


def _written_import(
    model: FileModel, statement: cst.ImportFrom, alias: cst.ImportAlias, written: str
) -> list[Edit] | None:
    """An import in place of one name of another: the whole statement, or a line behind it."""
    assert not isinstance(statement.names, cst.ImportStar)
    line = model.parent(statement)
    if len(statement.names) == 1:
        edit = model.replace(statement, written)
        return [edit] if edit is not None else None
    removed = _without_name(model, statement, alias)
    behind = insert_behind(model, line, written) if line is not None else None
    return [removed, behind] if removed is not None and behind is not None else None


def _without_name(
    model: FileModel, statement: cst.ImportFrom, alias: cst.ImportAlias
) -> Edit | None:
    """One of several names of an import left out; None if a comment would go with it."""
    names = statement.names
    assert not isinstance(names, cst.ImportStar)
    at = names.index(alias)
    own, ranges = model.tree.range(alias), model.tree.range
    start, end = (
        (own.start, ranges(names[at + 1]).start)
        if at + 1 < len(names)
        else (ranges(names[at - 1]).end, own.end)
    )
    rows = model.lines[start.line - 1 : end.line]
    between = rows[0][start.column : end.column if len(rows) == 1 else None]
    if any("#" in text for text in (between, *rows[1:-1])):
        return None
    return Edit("", Position(start.line, start.column + 1), Position(end.line, end.column + 1))


def _module_import_fix(
    model: FileModel, statement: cst.CSTNode, alias: cst.ImportAlias, dotted: str, entry: Entry
) -> Fix | None:
    assert entry.new is not None
    if isinstance(statement, cst.Import):
        if len(statement.names) != 1 or alias.asname is None or dotted != entry.old:
            return None
        bound = model.tree.text(alias.asname.name).strip()
        used = {
            name.removeprefix(entry.old + ".").partition(".")[0]
            for _, name, found in uses(model)
            if found is entry and name != entry.old
        }
        if not used or not used <= set(entry.names):
            return None
        written = f"import {entry.new} as {bound}"
        return model.fix(f"Import {entry.new}", model.replace(statement, written), safe=True)
    assert isinstance(statement, cst.ImportFrom)
    assert not isinstance(statement.names, cst.ImportStar)
    if dotted == entry.old:  # from torch_xla.experimental import xla_sharding as xs
        return None
    taken = {_alias_name(item) for item in statement.names}
    if not taken <= set(entry.names) or statement.names[0] is not alias or statement.module is None:
        return None
    return model.fix(
        f"Import from {entry.new}", model.replace(statement.module, entry.new), safe=True
    )


def _calls_of(model: FileModel, name: str, entry: Entry) -> list[Edit] | None:
    """What has to change where an imported function is called, so that the new one understands.

    None if it is used in any other way.
    """
    edits: list[Edit] = []
    for node, dotted, found in uses(model):
        if found is not entry or dotted != entry.old or not isinstance(node, cst.Name):
            continue
        call = model.parent(node)
        if node.value != name or not isinstance(call, cst.Call) or call.func is not node:
            return None
        if entry.arguments == "same" or not call.args:
            continue
        arguments = _arguments(model, call, entry.arguments)
        edit = model.replace(call, f"{name}({arguments})") if arguments is not None else None
        if edit is None:
            return None
        edits.append(edit)
    return edits if entry.arguments != "none" else None


def _arguments(model: FileModel, call: cst.Call, how: str) -> str | None:
    """The arguments for the new call as text; None if they do not carry over."""
    if how == "same":
        return ""
    if any(argument.star for argument in call.args):
        return None
    if how == "drop":
        plain = all(model.literal(argument.value) is not NotImplemented for argument in call.args)
        return "" if plain else None
    if how == "first" and not call.args:
        return ""
    if how == "first" and len(call.args) == 1:
        argument = call.args[0]
        if argument.keyword is None or argument.keyword.value == "n":
            return model.tree.text(argument.value).strip()
    return None


def _alias_name(alias: cst.ImportAlias) -> str:
    node: cst.BaseExpression = alias.name
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    assert isinstance(node, cst.Name)
    return ".".join(reversed([*parts, node.value]))


def _names(model: FileModel, node: cst.Attribute) -> bool:
    dotted = model.name(node)
    return dotted is not None and entry_for(dotted) is not None


def _in_import(model: FileModel, node: cst.CSTNode) -> bool:
    parent: cst.CSTNode | None = node
    while isinstance(parent, cst.Attribute | cst.Name | cst.AsName | cst.ImportAlias):
        parent = model.parent(parent)
    return isinstance(parent, cst.Import | cst.ImportFrom)


def _is_told_above(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a name is bound to one function on each device: the one is told of where it is."""
    bound = model.bindings(node.value, node) if isinstance(node, cst.Name) else ()
    return len(bound) > 1 and all(item.kind in {"assign", "function"} for item in bound)


def _is_bound_here(parent: cst.CSTNode | None, node: cst.CSTNode) -> bool:
    """A name that is written, a keyword's or a parameter's, names nothing."""
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    return (
        isinstance(parent, cst.AssignTarget | cst.Param | cst.FunctionDef | cst.ClassDef)
        and getattr(parent, "default", None) is not node
    )
