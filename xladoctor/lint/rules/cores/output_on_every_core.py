"""XLA401: output that every core writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.rewrites.imports import spell
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._cores import differs, entry_places, every_core, says_core, tells_core
from xladoctor.lint.rules._exact import around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Fix
    from xladoctor.lint.model import CallSite, FileModel, Problem

_BARS = ("tqdm.tqdm", "tqdm.trange")
_QUIETENS = frozenset({"init_distributed_mode", "setup_for_distributed", "suppress_output"})
_PRINTS = ("builtins.print", "rich.print")
_OUTPUTS = frozenset({"builtins.print", "sys.stdout"})
_MASTER_PRINT = "torch_xla.core.xla_model.master_print"


@rule("XLA401")
def output_on_every_core(model: FileModel) -> Iterator[Problem]:
    """Find prints and progress bars that run on every core and do not say which core it is."""
    yield from _runs_of_each(model)
    quiet = _print_is_replaced(model)
    for call in model.calls(*_PRINTS, *_BARS):
        if quiet and call.name == "builtins.print":
            continue
        entry = every_core(model, call.node)
        if entry is None or _in_handler(model, call.node):
            continue
        if call.name in _PRINTS:
            shown = [argument.value for argument in call.node.args]
            if "file" in call.keywords or not shown or says_core(model, shown):
                continue
            what = "every core prints this line"
            advice = "use xm.master_print, which prints on one core"
        else:
            if "disable" in call.keywords or _bar_says_core(model, call):
                continue
            what = "every core draws this progress bar over the others"
            advice = "give disable=not xm.is_master_ordinal()"
        yield model.problem(
            call.node,
            what,
            suggestion=advice,
            related=entry_places(model, entry),
            fix=_fix(model, call),
        )


def _runs_of_each(model: FileModel) -> Iterator[Problem]:
    """``wandb.init(project="x")`` on every core: as many runs as there are cores."""
    for call in model.calls("wandb.init"):
        entry = every_core(model, call.node)
        if entry is None or call.has_star or {"group", "mode"} & call.keywords.keys():
            continue
        if any(differs(model, argument.value) for argument in call.node.args):
            continue
        yield model.problem(
            call.node,
            "every core starts a run of its own, and each logs one core's numbers",
            suggestion="start it, and log, on one core: if xm.is_master_ordinal(): wandb.init(...)",
            related=entry_places(model, entry),
        )


def _print_is_replaced(model: FileModel) -> bool:
    """Whether the program puts a ``print`` of its own into ``builtins``, as a rule a quiet one.

    Or gives ``sys.stdout`` another file.

    The function that does it goes by one name from DETR to MAE, by another in fairseq, and stands
    in another file.
    """
    # also what another module calls that imports both: ``builtins`` is that of all files
    parts = dict.fromkeys(two for one in (model, *model.linked) for two in (one, *one.linked))
    return any(part.once(_sets_output) for part in parts)


def _sets_output(model: FileModel) -> bool:
    replaced = any(
        isinstance(item.target, cst.Attribute) and model.name(item.target) in _OUTPUTS
        for node in model.nodes(cst.Assign)
        for item in node.targets
    )
    return replaced or any(
        call.target is None and ((call.name or "").rpartition(".")[2] or call.method) in _QUIETENS
        for call in model.calls()
    )


def _in_handler(model: FileModel, node: cst.CSTNode) -> bool:
    """What goes wrong on one core must be said by that core."""
    ends = (cst.FunctionDef, cst.ExceptHandler)
    first = next((parent for parent in around(model, node) if isinstance(parent, ends)), None)
    return isinstance(first, cst.ExceptHandler)


def _bar_says_core(model: FileModel, call: CallSite) -> bool:
    """Whether the bar's label or place is the core's: then each core's own bar was meant."""
    given = [call.keywords[name] for name in ("desc", "position") if name in call.keywords]
    return any(tells_core(model, part) for value in given for part in walk(value))


def _fix(model: FileModel, call: CallSite) -> Fix | None:
    if call.has_star:
        return None
    if call.name in _BARS:
        return _bar_fix(model, call)
    parts = [part for argument in call.node.args for part in walk(argument)]
    if set(call.keywords) - {"flush"} or any(
        isinstance(p, cst.BaseExpression) and model.value(p).is_device_tensor for p in parts
    ):
        return None
    written = spell(model, call.node, _MASTER_PRINT)
    if written is None:
        return None
    spelled, added = written
    return model.fix("Print on one core", model.replace(call.node.func, spelled), added, safe=True)


def _bar_fix(model: FileModel, call: CallSite) -> Fix | None:
    """``tqdm(loader, disable=...)``: the loop goes on as before, one core draws."""
    written = spell(model, call.node, "torch_xla.core.xla_model.is_master_ordinal")
    if written is None:
        return None
    spelled, added = written
    change = model.add_argument(call.node, f"disable=not {spelled}()")
    return model.fix("Draw it on one core", change, added, safe=True)
