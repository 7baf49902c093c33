"""What the launch scheduler reads from the arguments of a call, and changes in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..agent.points import Call
    from .divergence import Collective

#: Position of the argument ``wait`` in the bindings that have it.
_WAIT_POSITION = 2

#: Collectives to which each core may give other numbers: how it splits its tensor.
_OWN_SPLITS = {"functional.all_to_all_single", "functional.all_to_all_single_autograd"}


def padded(given: Mapping[str, Any]) -> bool:
    """Whether torch_xla makes this ``xm.all_gather`` a reduction of what each core pads.

    Args:
        given: The arguments, by torch_xla's names. Without a pinned layout, with an output or for
            a list it is an all-gather of XLA, equal on all cores.
    """
    single = getattr(given["value"], "is_xla", False)
    return bool(given["pin_layout"] and given["output"] is None and single)


def take_wait(call: Call) -> bool:
    """Make the launch return at once; says whether it was to wait for the execution."""
    args = list(call.args)
    if len(args) > _WAIT_POSITION:
        wait, args[_WAIT_POSITION] = bool(args[_WAIT_POSITION]), False
        call.args = tuple(args)
        return wait
    wait = bool(call.kwargs.get("wait", True))  # the default of both bindings
    call.kwargs = {**call.kwargs, "wait": False}
    return wait


def xla_tensors(values: Any) -> list[Any]:
    """The XLA tensors among the arguments of a read, also inside a list."""
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += xla_tensors(value)
        elif getattr(value, "is_xla", False) and not hasattr(value, "__tensor_flatten__"):
            found.append(value)  # not what only wraps one, of which torch_xla knows nothing
    return found


def waited(values: Any) -> list[Any]:
    """The arguments of a read with what functional collectives have given, without its wrapper."""
    return [
        waited(value)
        if isinstance(value, (list, tuple))
        else value.trigger_wait()
        if type(value).__name__ == "AsyncCollectiveTensor"
        else value
        for value in values
    ]


def exchanged(values: Any, copies: dict[int, Any]) -> list[Any]:
    """The arguments of a read with copies in the place of their tensors, also inside a list."""
    return [
        exchanged(value, copies)
        if isinstance(value, (list, tuple))
        else copies.get(id(value), value)
        for value in values
    ]


def detail(call: Call) -> str:
    """What must be equal on all cores for a collective: shapes, kind of reduction, groups."""
    parts = []
    for value in (*call.args, *call.kwargs.values()):
        tensors = xla_tensors(value if isinstance(value, (list, tuple)) else (value,))
        if tensors:
            parts += [f"{one.dtype}{tuple(one.shape)}" for one in tensors]
        elif call.what in _OWN_SPLITS:
            continue
        elif isinstance(value, (str, int, float, list, tuple)):
            parts.append(repr(value))
        elif value is not None:
            parts.append(type(value).__name__)  # a process group, of which each core has its own
    return " ".join(parts)


def summary(collectives: Sequence[Collective]) -> str:
    """Collectives in words: "all_reduce" or "all_reduce, all_gather and 3 more"."""
    shown = [one.name for one in collectives[:2]]
    more = len(collectives) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
