"""What the seed of a program is where the command line does not say it: none, or a drawn one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.library import Equal
from xladoctor.lint.model import walk
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.rules._constants import default_of
from xladoctor.lint.rules._cores import is_unique
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from xladoctor.lint.model import CallSite, FileModel


def drawn_by_default(model: FileModel, node: cst.BaseExpression) -> bool:
    """``args.seed`` of ``add_argument("--seed", default=random.randint(1, 1000))`` on each core.

    Each process draws another number then, unless one of them reads the command line for all, or
    something else seeds before.
    """
    default = default_of(model, node)
    made = sources(model, default) if default is not None else None
    if not made or not isinstance(node, cst.Attribute):
        return False
    drawn = all(
        isinstance(one, cst.Call) and is_unique(model, one) and model.on_every_core(one) is not None
        for one in made
    )
    return drawn and not any(
        _seeds_otherwise(model, call, node.attr.value) for call in model.calls()
    )


def _seeds_otherwise(model: FileModel, call: CallSite, option: str) -> bool:
    """``random.seed(3)``, and not ``random.seed(args.seed)`` of the option itself."""
    if call.name != "random.seed" and not model.effects.equals(call, Equal.NUMBERS):
        return False
    given = [argument.value for argument in call.node.args]
    return not any(isinstance(one, cst.Attribute) and one.attr.value == option for one in given)


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
