"""The names of torch_xla's modules, as ``tables/names.toml`` has them."""

from __future__ import annotations

import functools

from xladoctor import catalogue


@functools.cache
def module_names() -> dict[str, frozenset[str]]:
    """The modules of ``tables/names.toml``, and every public name that they have had."""
    rows = catalogue.table("names")["module"]
    return {row["name"]: frozenset(row["names"]) for row in rows}


@functools.cache
def private_names() -> dict[str, frozenset[str]]:
    """The modules of ``tables/names.toml``, and their names that begin with an underscore."""
    rows = catalogue.table("names")["module"]
    return {row["name"]: frozenset(row.get("private", ())) for row in rows}


def had_never(dotted: str) -> bool:
    """Whether no release of a module that is known by heart has had a name.

    Private names of earlier releases than 2.9 count as such.
    """
    module, _, name = dotted.rpartition(".")
    names = module_names().get(module)
    return not (
        names is None or name in names or name.startswith("__") or name in private_names()[module]
    )


@functools.cache
def lost_names() -> dict[str, str]:
    """Private names that torch_xla 2.9 no longer has, and the release without them."""
    return {row["name"]: row["removed_in"] for row in catalogue.table("names")["lost"]}
