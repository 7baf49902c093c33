"""Which module of the program a parameter belongs to; slow, for messages only."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Names of a parameter that are looked for, at most.
_MOST = 50

#: Attribute of modules, parameters and optimizers that are marked as different on purpose, see
#: ``xladoctor.cores_differ_on_purpose``.
MARK = "_xladoctor_differs_on_purpose"


def names_of(parameters: Sequence[Any]) -> list[str]:
    """The parameters' names in their outermost modules, for people.

    Returns:
        "parameter 'fc.weight'", or "a parameter of shape [3, 4]", one for each.
    """
    found: dict[int, str] = {}
    for _, name, parameter in _owners(parameters):
        found[id(parameter)] = max(found.get(id(parameter), ""), name, key=len)
    return [
        f"parameter '{found[id(one)]}'"
        if id(one) in found
        else f"parameter of shape {list(one.shape)}"
        for one in parameters
    ]


def name_of(parameter: Any) -> str:
    """The name of one parameter; see :func:`names_of`."""
    return names_of([parameter])[0]


def differs_on_purpose(optimizer: Any, parameter: Any) -> bool:
    """Whether the program has said so, or a library is known to give each core another share."""
    import torch

    if getattr(parameter, MARK, False) or getattr(optimizer, MARK, False):
        return True
    # Only who imports xladoctor can mark a module.
    for module, name, _ in _owners([parameter]) if "xladoctor" in sys.modules else ():
        if getattr(module, MARK, False):
            return True
        for part in name.split(".")[:-1]:
            module = getattr(module, part, None)
            if getattr(module, MARK, False):
                return True
    # ZeRO: the inner optimizer holds a share of each parameter.
    return any(
        isinstance(one, torch.optim.Optimizer) and getattr(one, "base_optimizer", None) is optimizer
        for one in gc.get_referrers(optimizer.param_groups) + _holders(optimizer)
    )


def _holders(optimizer: Any) -> list[Any]:
    """Objects whose attribute the optimizer is."""
    found = []
    for referrer in gc.get_referrers(optimizer):
        found.append(referrer)
        if isinstance(referrer, dict):
            found += [one for one in gc.get_referrers(referrer) if not isinstance(one, dict)]
    return found


def _owners(parameters: Sequence[Any]) -> list[tuple[Any, str, Any]]:
    """All modules that have one of the parameters, its name in them, and which it is.

    Found from the parameters upwards, by who refers to them: a list of all objects would hold the
    tensors that other cores let go of meanwhile, and torch warns of those.
    """
    found: list[tuple[Any, str, Any]] = []
    level, table = [(one, "", one) for one in parameters], "_parameters"
    while level and len(found) < _MOST * len(parameters):  # modules may hold each other
        level = [
            (module, f"{key}.{name}".rstrip("."), parameter)
            for module, key, held in _keepers([thing for thing, _, _ in level], table)
            for thing, name, parameter in level
            if thing is held
        ]
        found += level
        table = "_modules"
    return found


def _keepers(things: list[Any], table: str) -> list[tuple[Any, str, Any]]:
    """The modules in one of whose tables things are, each with the key and the thing."""
    import torch

    tables = [one for one in gc.get_referrers(*things) if issubclass(type(one), dict)]
    holders = gc.get_referrers(*tables)
    # A module's attributes are a dictionary of its own, or part of the module.
    holders += gc.get_referrers(*[one for one in holders if type(one) is dict])
    modules = {id(one): one for one in holders if issubclass(type(one), torch.nn.Module)}
    wanted = {id(thing) for thing in things}
    return [
        (module, key, value)
        for module in modules.values()
        for key, value in list(module.__dict__.get(table, {}).items())
        if id(value) in wanted
    ]
