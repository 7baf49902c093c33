"""What ``prepare_data`` keeps, which Lightning runs in one process of each host alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.rewrites.lightning import last_parts
from xladoctor.lint.rules._cores import trainer_of_cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import Class, FileModel, Function, Problem

_PREPARES = "prepare_data"
_BASES = frozenset({"LightningModule", "LightningDataModule"})
#: Hooks that all processes run behind it.
_READERS = frozenset(
    {
        "setup", "train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader",
        "configure_optimizers", "forward", "training_step", "validation_step", "test_step",
    }
)  # fmt: skip
#: What a module asks its Trainer that runs on several TPU cores.
_ASKED = frozenset({"tpu_cores", "num_tpu_cores"})


def prepared_by_one(model: FileModel) -> Iterator[Problem]:
    """``self.train = load()`` in ``prepare_data``: the other processes have none.

    Lightning's ``_DataConnector.prepare_data`` asks for the process whose ``local_rank`` is 0, and
    since 1.6 the launcher of TPU cores has started them all before (read, not run).
    """
    owners = [
        owner
        for owner in model.classes
        if _PREPARES in owner.methods and not _BASES.isdisjoint(last_parts(model, owner))
    ]
    if not owners or _called_by_program(model):
        return
    trainer = trainer_of_cores(model)
    if trainer is None and not any(map(_asks_for_cores, model.nodes(cst.Attribute))):
        return
    for owner in owners:
        for name, target in _kept(owner.methods[_PREPARES]).items():
            read = _read(model, owner, name)
            if read is None or _given_elsewhere(model, name):
                continue
            first = owner.methods.get("__init__")
            known = first is not None and name in _kept(first)
            found = f"are left with what __init__ gave self.{name}" if known else f"have no {name}"
            yield model.problem(
                target,
                f"Lightning runs prepare_data in one process of each host: the other cores {found}"
                + ("" if known else ", and raise AttributeError"),
                suggestion="assign it in setup(self, stage), which every process runs; "
                "prepare_data is for downloads",
                related=[
                    model.place(read, "every process reads it here"),
                    *([] if trainer is None else trainer.places(model)),
                ],
            )
            break  # one hook to move


def _asks_for_cores(node: cst.CSTNode) -> bool:
    """``self.trainer.num_tpu_cores``."""
    if not isinstance(node, cst.Attribute) or node.attr.value not in _ASKED:
        return False
    held = node.value.attr if isinstance(node.value, cst.Attribute) else node.value
    return is_name(held, "trainer")


def _called_by_program(model: FileModel) -> bool:
    """Whether the program itself calls the hook, before the cores start or on all of them."""
    return any(
        call.function is None or call.function.name != _PREPARES
        for part in (model, *model.linked)
        for call in part.methods(_PREPARES)
    )


def _kept(function: Function) -> dict[str, cst.Attribute]:
    """The attributes of its object that a method assigns, with the first place of each."""
    own = function.parameters[0] if function.parameters else ""
    found: dict[str, cst.Attribute] = {}
    for part in walk(function.node.body):
        if isinstance(part, cst.AssignTarget | cst.AnnAssign):
            whole = part.target
            each = whole.elements if isinstance(whole, cst.Tuple | cst.List) else ()
            for target in (whole, *(element.value for element in each)):
                if isinstance(target, cst.Attribute) and is_name(target.value, own):
                    found.setdefault(target.attr.value, target)
    return found


def _read(model: FileModel, owner: Class, name: str) -> cst.Attribute | None:
    """Where a hook that every process runs reads an attribute."""
    for method in owner.methods.values():
        own = method.parameters[0] if method.parameters else ""
        for part in walk(method.node.body) if method.name in _READERS else ():
            if (
                isinstance(part, cst.Attribute)
                and part.attr.value == name
                and is_name(part.value, own)
                and not model.guards(part)
            ):
                return part
    return None


def _given_elsewhere(model: FileModel, name: str) -> bool:
    """Whether another method of the program gives an attribute, or asks whether it is there."""
    for part in (model, *model.linked):
        for owner in part.classes:
            for method in owner.methods.values():
                if method.name in {_PREPARES, "__init__"}:
                    continue
                if name == method.name or name in _kept(method):
                    return True
        asked = (call for call in part.calls("builtins.hasattr", "builtins.setattr"))
        if any(len(x.positional) > 1 and part.literal(x.positional[1]) == name for x in asked):
            return True
    return False
