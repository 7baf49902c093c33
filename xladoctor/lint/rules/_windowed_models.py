"""Models of transformers whose cache slices off what is beyond their window (``windows.toml``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue, patterns
from xladoctor.lint.model import Kind
from xladoctor.lint.rules._masked_models import MAKES, checkpoints, makers
from xladoctor.lint.rules._reads import costly_loop
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    import libcst as cst

    from xladoctor.lint.model import CallSite, FileModel

_LIBRARY = "transformers."
#: What turns the cache off, or says that somebody has thought of it.
_SAYS = patterns.lazy(r"\buse_cache\b|gradient_checkpointing")


def windowed(model: FileModel) -> Iterator[tuple[CallSite, cst.Call, dict[str, Any]]]:
    """The forward passes in loops that fill such a cache, what makes the model, and its row."""
    if not any(name.startswith(_LIBRARY) for name in model.names.imported()):
        return
    if any(_SAYS.search(part.text) for part in (model, *model.linked)):
        return
    for call in model.calls():
        held = model.value(call.node.func)
        if call.target is not None or held.kind is not Kind.MODEL or not held.on_device:
            continue
        found = [(maker, _row(model, maker)) for maker in makers(model, call.node.func)]
        first = found[0] if found else None
        if first is None or any(row is None for _, row in found):
            continue
        maker, row = first
        if row is not None and costly_loop(model, call.node) is not None:
            yield call, maker, row


def _row(model: FileModel, maker: cst.Call) -> dict[str, Any] | None:
    home = model.file_with(maker)
    call = home.call(maker)
    makes = call.receiver if call.method in MAKES else maker.func
    dotted = (home.name(makes) or "") if makes is not None else ""
    name = dotted.rpartition(".")[2]
    if not dotted.startswith(_LIBRARY):
        return None
    for row in catalogue.rows("windows", "family"):
        own = name.startswith((f"{row['classes']}For", f"{row['classes']}Model"))
        if not own and not name.startswith("AutoModel"):
            continue
        names = checkpoints(home, call)
        if names and all(_is_one(row, one) for one in names):
            return row
        if own and not names and _is_new(home, call, row):
            return row
    return None


def _is_one(row: dict[str, Any], name: object) -> bool:
    pattern = row.get("checkpoints")
    last = str(name).rpartition("/")[2].lower()
    return pattern is not None and re.fullmatch(pattern, last) is not None


def _is_new(model: FileModel, call: CallSite, row: dict[str, Any]) -> bool:
    """``MistralForCausalLM(MistralConfig(hidden_size=512))``: with the window that it has."""
    given = call.argument(0, "config")
    config = the_call(model, given) if given is not None else None
    return (
        config is not None
        and config.last.startswith(row["classes"])
        and config.last.endswith("Config")
        and not config.has_star
        and "sliding_window" not in config.keywords
    )
