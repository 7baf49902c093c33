"""Models of transformers whose cache slices off what is beyond their window (``windows.toml``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue, patterns
from xladoctor.lint.model import Kind
from xladoctor.lint.rules._masked_models import makers
from xladoctor.lint.rules._pretrained import checkpoints, library_class, takes_from
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
    if not takes_from(model, _LIBRARY):
        return
    if any(_SAYS.search(part.text) for part in (model, *model.linked)):
        return
    for call in model.calls():
        held = model.value(call.node.func)
        if call.target is not None or held.kind is not Kind.MODEL or not held.on_device:
            continue
        found = [(maker, _row(model, maker)) for maker in makers(model, call.node.func)]
        known = [(maker, row) for maker, row in found if row is not None]
        if known and known == found and costly_loop(model, call.node) is not None:
            yield call, *known[0]


def _row(model: FileModel, maker: cst.Call) -> dict[str, Any] | None:
    name = library_class(model, maker, _LIBRARY)
    if name is None:
        return None
    home = model.file_with(maker)
    call = home.call(maker)
    names = checkpoints(home, call)
    for row in catalogue.rows("windows", "family"):
        own = name.startswith((f"{row['classes']}For", f"{row['classes']}Model"))
        if not own and not name.startswith("AutoModel"):
            continue
        if names and all(_is_one(row, one) for one in names):
            return row
        if own and not names and _is_new(home, call, row):
            return row
    return None


def _is_one(row: dict[str, Any], name: str) -> bool:
    pattern = row.get("checkpoints")
    last = name.rpartition("/")[2].lower()
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
