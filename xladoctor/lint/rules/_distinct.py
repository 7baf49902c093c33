"""Names that nothing but one class has: asked of what nobody has read, they say what that is."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import catalogue
from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.rules._itself import whose
from xladoctor.lint.rules._tolerated import tolerated
from xladoctor.lint.words import SETTINGS_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xladoctor.lint.model import Class, FileModel

#: Bases that everybody has read: what a class has of them is known.
_READ = sys.stdlib_module_names | {"builtins", "torch", "torch_xla", "transformers", "lightning"}
#: What programs call their settings.
_SETTINGS = (SETTINGS_WORDS - {"arg"}) | {
    *("configs", "configuration", "arguments", "hparam", "setting", "options"),
}


def is_distinct(model: FileModel, of: str, name: str, holder: cst.BaseExpression) -> bool:
    """Whether what is asked of an object that nobody has read says that it is of a class.

    ``trainer.is_world_master()``, ``kwargs["args"].tpu_num_cores``: by the name alone, or by what
    the program calls the object too. Nothing where the program has such a name itself.

    Args:
        model: The file.
        of: The class, or the method that is given something.
        name: What is asked: an attribute, a method, or an argument.
        holder: The object.
    """
    if not model.is_xla or not _fits(model, of, name, holder):
        return False
    if not _is_unread(model, holder, of, name):
        return False
    node = model.parent(holder)
    if node is None or tolerated(model, node) or model.on_xla(node) is OnXla.NO:
        return False
    last = of.rpartition(".")[2]
    return not has_it(model, name if last[0].isupper() else last)


def extends_unread(model: FileModel, owner: Class) -> bool:
    """``class QATrainer(BaseTrainer)`` of a file that nobody has read."""
    around = [owner, *model.parents(owner)]
    bases = [base for one in around for base in one.bases]
    dotted = [model.name(base) or "" for base in bases if not model.value(base).makes]
    return any(name.partition(".")[0] not in _READ for name in dotted)


def has_it(model: FileModel, name: str) -> bool:
    """Whether the program has such a setting or method itself, in a file beside this one too."""
    near = (one for part in (model, *model.linked) for one in (part, *part.linked))
    files = {id(one.tree): one for one in near}
    return any(
        defines(one, name) or any(name in cls.methods for cls in one.classes)
        for one in files.values()
    )


def defines(model: FileModel, name: str) -> bool:
    """Whether a file has such a setting itself: an option, a field, something it assigns."""
    options = (call.positional for call in model.methods("add_argument"))
    if any(model.literal(flag) == f"--{name}" for flags in options for flag in flags):
        return True
    given = [*model.nodes(cst.AssignTarget), *model.nodes(cst.AnnAssign)]
    targets = (node.target for node in given if isinstance(node, cst.AssignTarget | cst.AnnAssign))
    return any(
        is_name(one.attr, name)
        if isinstance(one, cst.Attribute)
        else is_name(one, name) and model.function_of(one) is None  # no local name
        for one in targets
    )


def _fits(model: FileModel, of: str, name: str, holder: cst.BaseExpression) -> bool:
    """Whether a name is that of a class, asked of something that programs call so.

    ``trainer``, ``self._trainer``, ``parts["trainer"]``; not ``config.trainer``, its settings.
    """
    held = _rows().get(of, {}).get(name)
    if not held:
        return held is not None
    within = holder.value if isinstance(holder, cst.Attribute | cst.Subscript) else None
    if within is not None and not _SETTINGS.isdisjoint(words(model.tree.text(within))):
        return False
    key = key_of(model, holder) if isinstance(holder, cst.Subscript) else last_name(holder)
    said = (key or "").strip("_").lower()
    return any(said == word or said.endswith(f"_{word}") for word in held)


def _is_unread(model: FileModel, holder: cst.BaseExpression, of: str, name: str) -> bool:
    """Whether nobody knows what an object is; of ``self``, the class that it is of."""
    owner = whose(model, holder)
    if owner is not None:
        return not _rows()[of][name] and extends_unread(model, owner)
    if model.name(holder) is not None:
        return False  # a module, or a class of a library
    value = model.value(holder)
    classes = [value.instance.cls] if value.instance is not None else value.classes
    if any(not extends_unread(model, one) for one in classes or ()):
        return False
    package = (value.type_name or "").partition(".")[0]
    return package not in _READ or package == of.partition(".")[0]


@functools.cache
def _rows() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Class or method to its names that nothing else has, to what programs call the object.

    Nothing where that does not matter.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in catalogue.table("frameworks")["distinct"]:
        held = tuple(row.get("held", ()))
        found.setdefault(row["of"], {}).update(dict.fromkeys(row["names"], held))
    return found
