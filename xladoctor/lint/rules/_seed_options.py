"""What the seed of a program is where the command line does not say it: none, or a drawn one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._constants import default_of
from xladoctor.lint.rules._cores import is_unique
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel


def drawn_by_default(model: FileModel, node: cst.BaseExpression) -> bool:
    """``args.seed`` of ``add_argument("--seed", default=random.randint(1, 1000))`` on each core.

    Each process draws another number then, unless one of them reads the command line for all.
    """
    default = default_of(model, node)
    made = sources(model, default) if default is not None else None
    return bool(made) and all(_is_drawn(model, one) for one in made or ())


def _is_drawn(model: FileModel, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call) or not is_unique(model, node):
        return False
    if model.on_every_core(node) is None:
        return False
    return not any(
        call.name == "random.seed" and call.function is model.function_of(node)
        for call in model.calls("random.seed")
    )


def if_asked(model: FileModel, call: CallSite) -> bool:
    """``if args.seed is not None: set_seed(args.seed)``, where the option is None unless given."""
    given = [argument.value for argument in call.node.args]
    options = [one for one in given if isinstance(one, cst.Attribute)]
    asked = {dotted_text(one) for one in options if _is_none(model, one)}
    return bool(asked) and any(
        dotted_text(part) in asked
        for guard in model.guards(call.node)
        for part in walk(guard.test)
        if isinstance(part, cst.Attribute)
    )


def _is_none(model: FileModel, option: cst.Attribute) -> bool:
    """Whether an option of the command line is None where nobody gives it."""
    default = default_of(model, option)
    return default is not None and model.literal(default) is None
