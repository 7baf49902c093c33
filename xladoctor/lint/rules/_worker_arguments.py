"""Arguments of loaders that need workers, where there are none: ``DataLoader`` raises for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules._constants import of_options
from xladoctor.lint.rules._loaders import DATA_LOADER
from xladoctor.lint.rules._settled import by_default
from xladoctor.lint.rules._tolerated import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Problem

_WORKERS = "num_workers"
_PLACE = 5
#: Torch before took ``prefetch_factor=2`` without workers, which was its default.
_SINCE = (2, 0)


def without_workers(model: FileModel) -> Iterator[Problem]:
    """``DataLoader(rows, num_workers=0, prefetch_factor=4)``, ``persistent_workers=True``.

    What options and settings say by default counts, in the file that declares them.
    """
    for call in model.calls(DATA_LOADER) if model.target >= _SINCE else ():
        workers = call.argument(_PLACE, _WORKERS)
        if call.has_star or (workers is not None and not _is_zero(model, workers)):
            continue
        told = next(_raising(model, call), None)
        if told is None or _asks_for_workers(model, call) or tolerated(model, call.node):
            continue
        name, value = told
        default = workers is None or model.literal(workers) is NotImplemented
        yield model.problem(
            value,
            f"{name} needs workers, and there are none{' by default' if default else ''}: "
            "DataLoader raises ValueError",
            suggestion=f"give num_workers a number above 0, or leave {name} out where it is 0",
        )


def _raising(model: FileModel, call: CallSite) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The arguments that need workers, with what is given for them."""
    for name in ("prefetch_factor", "persistent_workers"):
        value = call.keywords.get(name)
        said = _values(model, value) if value is not None else ()
        if value is None or not said or NotImplemented in said:
            continue
        if all(one is True or (name == "prefetch_factor" and one is not None) for one in said):
            yield name, value


def _is_zero(model: FileModel, workers: cst.BaseExpression) -> bool:
    return all(one == 0 and one is not NotImplemented for one in _values(model, workers))


def _values(model: FileModel, node: cst.BaseExpression) -> Sequence[object]:
    """What an argument is by default, also by options of the script that this file is used by."""
    values = by_default(model, node)
    if NotImplemented in values and isinstance(node, cst.Attribute):
        return of_options(model, node) or values
    return values


def _asks_for_workers(model: FileModel, call: CallSite) -> bool:
    """``if args.num_workers > 0:`` around the loader, or before it."""
    return any("worker" in model.tree.text(guard.written) for guard in model.guards(call.node))
