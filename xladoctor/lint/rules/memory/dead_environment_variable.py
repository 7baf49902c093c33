"""XLA701: an environment variable that no longer does anything, or not for long."""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text, string, takes_torch_xla
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.purpose import ELSEWHERE, TRAIN_TORCH
from xladoctor.lint.rewrites.shell import comment_out
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._api import version
from xladoctor.lint.rules._environment import (
    SHELL,
    exported_alone,
    is_environ,
    is_of_ipython,
    is_off,
    key_of,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem
    from xladoctor.lint.model.problems import Place


#: A line of a notebook that sets one variable and does nothing else.
_SETS_ONE = re.compile(r"^(?:%(?:set_)?env\s+\w+(?:=|\s+).*|!?\s*export\s+\w+=[^;&|`$]*)$")

#: What asks for a variable, with what else it gives where that is not set.
_GETS = ("os.environ.get", "os.getenv")
_OF_IPYTHON = ("system", "getoutput", "run_cell_magic")
#: Packages that train with torch.
_OURS = TRAIN_TORCH | {"fastai"}
_NOTHING = (None, "", False, 0)
#: By it programs of XRT saw that they had a TPU.
_XRT = "XRT_TPU_CONFIG"
_SHELLS = tuple(f"subprocess.{name}" for name in ("run", "call", "check_call", "Popen"))
#: Variables that nobody but torch_xla and libtpu reads, as far as they are near one that they do,
#: and how near: XLA_USE_F16 is XLA_USE_BF16, XLA_PYTHON_CLIENT_PREALLOCATE (JAX's) is none of
#: these, and TPU_PROCESS_COUNT is a program's own.
_FAMILIES = {"XLA_": 0.85, "PJRT_": 0.85, "PT_XLA_": 0.85, "TPU_": 0.87, "LIBTPU_": 0.87}
#: Of these all are torch_xla's: a name of theirs that it does not read was made up.
_OWN_FAMILIES = ("XLA_USE_", "PT_XLA_")
#: What a shell may export for torch_xla, of any release, beside what is read today.
_EXPORTED = ("XLA_", "XRT_", "PJRT_", "PT_XLA_")


@functools.cache
def _read() -> tuple[str, ...]:
    return tuple(catalogue.table("environment")["read"]["names"])


@functools.cache
def _variables() -> tuple[dict[str, Any], ...]:
    return tuple(catalogue.table("environment")["variable"])


def _known(name: str, target: tuple[int, ...]) -> dict[str, Any] | None:
    """What the table says of a variable, None if it is alive in the target version."""
    for row in _variables():
        pattern: str = row["name"]
        if name != pattern and not (pattern.endswith("*") and name.startswith(pattern[:-1])):
            continue
        if "dead_in" in row and target < version(row["dead_in"]):
            return None
        return row
    return None


@rule("XLA701")
def dead_environment_variable(model: FileModel) -> Iterator[Problem]:
    """Find settings of environment variables that torch_xla does not read, or will not for long."""
    if _is_of_others(model):
        return
    for name, spot, node in settings(model):
        row = _known(name, model.target)
        if row is not None and row["status"] != "gone":
            if row["status"] == "dead" or not is_off(model, node):
                yield _problem(model, spot, name, row, _fix(model, node, row))
        elif row is None:
            yield from _misspelt(model, spot, name)
    yield from _taken(model)
    yield from _asked(model)
    yield from _exported(model)
    for number, line in model.shell:
        alone = _exported_name(line[1:]) if line.startswith("!") else None
        if alone is not None:
            fix = model.fix("Comment the line out", comment_out(model, number, line), safe=True)
            yield _lost_export(model, model.place_of_row(number), alone, fix)
            continue
        for match in SHELL.finditer(line):
            row = _known(match["name"], model.target)
            if row is not None and row["status"] != "gone":
                fix = _line_fix(model, number, line, row)
                yield _problem(model, model.place_of_row(number), match["name"], row, fix)
            elif row is None:
                yield from _misspelt(model, model.place_of_row(number), match["name"])


def _taken(model: FileModel) -> Iterator[Problem]:
    """``os.environ["COLAB_TPU_ADDR"]``."""
    own = {name for part in (model, *model.linked) for name, _, _ in settings(part)}
    for node in model.nodes(cst.Subscript):
        if _reads(model, node):
            name = key_of(model, node) or ""
            row = _known(name, model.target)
            xrt = name == _XRT and name not in own
            if row is not None and (row["status"] == "gone" or "then" in row or xrt):
                told = row["effect"] if row["status"] == "gone" else _told(row)
                yield model.problem(
                    node,
                    f"{name} is not set any more ({told}): this raises KeyError",
                    suggestion=row["instead"],
                    fix=_assert_fix(model, node),
                )


def _asked(model: FileModel) -> Iterator[Problem]:
    """``if "COLAB_TPU_ADDR" in os.environ:``, of what old runtimes set where they had a TPU."""
    if not model.is_xla:
        return  # TensorFlow's notebooks asked, too
    own = {name for name, _, _ in settings(model)}
    for node, key, default in _questions(model):
        name = model.literal(key)
        row = _known(name, model.target) if isinstance(name, str) and name not in own else None
        if row is None:
            continue
        if "then" in row:
            yield model.problem(
                node,
                f"{name} is not set any more ({_told(row)}): {row['then']}",
                suggestion=row["instead"],
            )
            continue
        gone = row["status"] == "gone" or name == _XRT
        open_question = default is None or model.literal(default) in _NOTHING
        if gone and open_question and _decides(model, node):
            yield model.problem(
                node,
                f"{name} is not set any more ({row['effect']}): what asks for it never finds a TPU",
                suggestion='ask torch_xla: xr.device_type() == "TPU"',
            )


def _told(row: dict[str, Any]) -> str:
    return f"until {row['dead_in']} it {row['effect']}"


def _decides(model: FileModel, node: cst.CSTNode) -> bool:
    """Whether the use of torch_xla hangs on an answer: also by a name that holds it."""
    holder: cst.CSTNode | None = node
    while isinstance(holder, cst.BaseExpression | cst.Arg | cst.ComparisonTarget):
        holder = model.parent(holder)
    if isinstance(holder, cst.If):
        return _uses_xla(model, holder)
    if not isinstance(holder, cst.Assign):
        return isinstance(holder, cst.Assert)
    name = dotted_text(holder.targets[0].target)
    if name is None:
        return False
    # A file of settings may be asked by others: ``from config import *``, ``if USE_TPU:``.
    asking = (model, *(model.linked if model.function_of(holder) is None else ()))
    return any(
        any(_is_called(part, name) for part in walk(other.test)) and _uses_xla(asked, other)
        for asked in asking
        for other in asked.nodes(cst.If)
        if isinstance(other, cst.If)
    )


def _is_called(node: cst.CSTNode, text: str) -> bool:
    return isinstance(node, cst.Name | cst.Attribute) and dotted_text(node) == text


def _uses_xla(model: FileModel, node: cst.If) -> bool:
    """Whether a branch takes torch_xla, asks for a device, or gives up without."""
    return any(
        isinstance(part, cst.Raise)
        or (isinstance(part, cst.Import | cst.ImportFrom) and takes_torch_xla(part))
        or (isinstance(part, cst.Call) and (model.name(part.func) or "").startswith("torch_xla."))
        for part in walk(node)
    )


def _questions(
    model: FileModel,
) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, cst.BaseExpression | None]]:
    """Where a file asks whether a variable is set, for which, and what it takes where it is not."""
    for call in model.calls(*_GETS):
        key = call.argument(0, "key")
        if key is not None:
            yield call.node, key, call.argument(1, "default")
    for node in model.nodes(cst.Comparison):
        for one in node.comparisons:
            asks = isinstance(one.operator, cst.In | cst.NotIn)
            if asks and is_environ(model, one.comparator):
                yield node, node.left, None
    for item in model.nodes(cst.Subscript):
        index = index_of(item)
        if index is None or not _is_tried(model, item) or _is_asked_before(model, item):
            continue
        if _is_looked_up(model, item):
            yield item, index, None


def _misspelt(model: FileModel, place: cst.CSTNode | Place, name: str) -> Iterator[Problem]:
    """A name that neither reads: beside one that they do, or of a family of torch_xla's own."""
    known = _read()
    cutoff = next((near for family, near in _FAMILIES.items() if name.startswith(family)), None)
    if cutoff is None or name in known or _is_own(model, name):
        return
    near = difflib.get_close_matches(name, known, 1, cutoff)
    if (near or name.startswith(_OWN_FAMILIES)) and _known(name, model.target) is None:
        yield model.problem(
            place,
            f"neither torch_xla nor libtpu reads {name}: it has no effect",
            suggestion=f"{near[0]}, if that was meant; else delete it" if near else "delete it",
        )


def _is_own(model: FileModel, name: str) -> bool:
    """Whether the program itself looks at the variable: more than one place names it."""
    texts = [text for other in (model, *model.linked) for text in other.tree.strings]
    return sum(string(text) == name for text in texts) > 1


def _exported(model: FileModel) -> Iterator[Problem]:
    """``os.system("export PJRT_DEVICE=TPU")``: that shell ends, and the variable with it."""
    for call in (*model.calls("os.system", *_SHELLS), *model.methods(*_OF_IPYTHON)):
        names = filter(None, map(_exported_name, _commands(model, call)))
        name = next(names, None)
        if name is not None:
            yield _lost_export(model, call.node, name, None)


def _exported_name(line: str) -> str | None:
    """The variable of torch_xla that a shell line exports, and nothing else."""
    name = exported_alone(line) or ""
    return name if name in _read() or name.startswith(_EXPORTED) else None


def _lost_export(
    model: FileModel, place: cst.CSTNode | Place, name: str, fix: Fix | None
) -> Problem:
    return model.problem(
        place,
        f"{name} is exported in a shell that ends with this line: the program does not see it",
        suggestion=f'os.environ["{name}"] = ... before torch_xla is imported, if it is needed',
        fix=fix,
    )


def _commands(model: FileModel, call: CallSite) -> Iterator[str]:
    """What a call gives to a shell of its own, line by line.

    Of a notebook that was converted too: ``get_ipython().run_cell_magic("bash", "", text)``.
    """
    place = 0
    if call.name is None:
        if not is_of_ipython(call):
            return
        if call.method == "run_cell_magic":
            kind = model.literal(call.positional[0]) if call.positional else None
            place = 2 if kind in {"bash", "sh"} else len(call.positional)
    text = model.literal(call.positional[place]) if len(call.positional) > place else None
    yield from text.splitlines() if isinstance(text, str) else ()


def _reads(model: FileModel, node: cst.Subscript) -> bool:
    """Whether a variable is looked up, and nothing says what to do if it is not set."""
    if not _is_looked_up(model, node) or _is_tried(model, node):
        return False
    return not _is_asked_before(model, node)


def _is_asked_before(model: FileModel, node: cst.Subscript) -> bool:
    return any("environ" in model.tree.text(guard.test) for guard in model.guards(node))


def _is_looked_up(model: FileModel, node: cst.Subscript) -> bool:
    parent = model.parent(node)
    return is_environ(model, node.value) and not isinstance(parent, cst.AssignTarget | cst.Del)


def _is_tried(model: FileModel, node: cst.CSTNode) -> bool:
    return any(isinstance(one, cst.Try) for one in model.tree.ancestors(node))


def _is_of_others(model: FileModel) -> bool:
    """Whether a file is for the TPUs of TensorFlow or JAX, which read such variables themselves."""
    roots = {name.partition(".")[0] for name in model.names.imported()}
    return not roots.isdisjoint(ELSEWHERE) and roots.isdisjoint(_OURS)


def _problem(
    model: FileModel, place: cst.CSTNode | Place, name: str, row: dict[str, Any], fix: Fix | None
) -> Problem:
    if row["status"] == "dead":
        message = (
            f"torch_xla has not read {name} since {row['dead_in']} (it {row['effect']}): "
            "it does nothing"
        )
        advice = f"delete it; use {row['instead']}" if row["instead"] else "delete it"
    else:
        message = f"{name} is deprecated and hides what it does: {row['effect']}"
        advice = f"use {row['instead']}"
    return model.problem(place, message, suggestion=advice, fix=fix)


def _fix(model: FileModel, node: cst.CSTNode, row: dict[str, Any]) -> Fix | None:
    """Delete an assignment if its value is a literal: safe where it does nothing.

    Where it still does something (bfloat16 behind the program's back) the program without it
    trains in float32.
    """
    if isinstance(node, cst.Call):
        call = model.call(node)
        whole = call.name in {"os.environ.setdefault", "os.putenv"} and len(node.args) == 2
        if not whole or any(model.literal(a.value) is NotImplemented for a in node.args):
            return None
        if not isinstance(model.parent(node), cst.Expr):
            return None
    elif (
        not isinstance(node, cst.Assign)
        or len(node.targets) != 1
        or model.literal(node.value) is NotImplemented
    ):
        return None
    dead = row["status"] == "dead"
    message = "Delete the setting" if dead else "Delete the setting, train in float32"
    return model.fix(message, model.remove_statement(node), safe=dead)


def _line_fix(model: FileModel, number: int, line: str, row: dict[str, Any]) -> Fix | None:
    """Comment ``%env NAME=value`` out, if the line does nothing else."""
    if not _SETS_ONE.match(line.strip()):
        return None
    dead = row["status"] == "dead"
    message = "Comment the setting out" if dead else "Comment the setting out, train in float32"
    return model.fix(message, comment_out(model, number, line), safe=dead)


def _assert_fix(model: FileModel, node: cst.CSTNode) -> Fix | None:
    """Delete ``assert os.environ["COLAB_TPU_ADDR"]``, which can only fail."""
    parent = model.parent(node)
    if not isinstance(parent, cst.Assert) or parent.test is not node:
        return None
    return model.fix("Delete the check", model.remove_statement(parent), safe=True)
