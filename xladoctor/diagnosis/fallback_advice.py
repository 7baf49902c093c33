"""What to do about an operation that runs on the CPU: what replaces it, and who lowers it.

All facts are in the tables ``lowerings.toml`` (the lists of lowered operations by release) and
``ops.toml`` (calls that were measured to fall back, and what to write instead).
"""

from __future__ import annotations

import functools
import re
from typing import Any

from xladoctor import catalogue
from xladoctor.errors import XladoctorError

_LAST_RESORT = "replace it by operations that run on the device, or move it out of the step"
#: The oldest list that was looked at: an operation in it may have been lowered before.
_OLDEST = "1.5"
_OLD_NAME = re.compile(r"^(?:s__th_|_th_|thnn_)|(?:_out)$")


def advice(operation: str) -> str:
    """One clause on an operation such as ``aten::silu``, or ``aten::norm.ScalarOpt_dim``.

    Args:
        operation: The name of its counter.
    """
    table = _lowerings()
    space, _, name = operation.rpartition("::")
    printed = name.partition(".")[0]
    name = _today(printed)
    since = lowered_since(name) if space in {"aten", ""} else None
    version = table["torch_xla"].removesuffix(".0")
    condition: str | None = table["conditional"].get(name)
    if condition is not None:
        if printed == f"{name}_out":
            since = f"{version} at the latest"  # the list of old names is not of this kernel
        newer = f" (torch_xla lowers the rest of it since {since})" if since != _OLDEST else ""
        return condition + newer
    instead = _instead(name)
    if since is not None:
        upgrade = f"torch_xla {version} lowers it{'' if since == _OLDEST else f' (since {since})'}"
        return f"{upgrade}: upgrade if yours is older" + (f", else {instead}" if instead else "")
    if space not in {"aten", ""}:
        return instead or _LAST_RESORT
    if name in table["decomposed"]:
        return f"torch_xla {version} no longer runs it on the CPU: upgrade if yours is older"
    if not instead:
        return f"torch_xla {version} lists no lowering for it: {_LAST_RESORT}"
    return f"torch_xla {version} lists no lowering for it; instead: {instead}"


def _today(name: str) -> str:
    """What torch calls an operation now that a report names as it was then.

    Until 1.10 a kernel that writes to a given tensor had a name of its own (``silu_out``), as had
    TH's kernels until 2020 (``_th_ge``, ``s__th_and``, ``thnn_conv2d_forward``).
    """
    table = _lowerings()
    shorter = _OLD_NAME.sub("", name)
    for each in (name, name.removesuffix("_out"), shorter, shorter.removesuffix("_")):
        now = table["renamed"].get(each, each)
        if lowered_since(now) or now in table["decomposed"] or _instead(now):
            return str(now)
    return name


def lowered_since(name: str) -> str | None:
    """The first release that names an operation among those it lowers; None if 2.9 does not.

    Args:
        name: Without namespace and overload.
    """
    return _releases().get(name)


@functools.cache
def _lowerings() -> dict[str, Any]:
    try:
        table = catalogue.table("lowerings")
    except XladoctorError:  # the tables are missing: advice is poorer, the diagnosis stands
        table = {"torch_xla": "2.9.0"}
    empty: dict[str, Any] = {
        "renamed": {},
        "conditional": {},
        "instead": {},
        "since": {},
        "decomposed": [],
    }
    return {**empty, **table}


@functools.cache
def _releases() -> dict[str, str]:
    return {name: release for release, names in _lowerings()["since"].items() for name in names}


@functools.cache
def _replacements() -> dict[str, list[tuple[frozenset[str], str]]]:
    """By operation: the calls that were measured to run it on the CPU, and what replaces them."""
    try:
        table = catalogue.table("ops")
    except XladoctorError:
        return {}
    operations = {
        row["name"]: [o.rpartition("::")[2].partition(".")[0] for o in row.get("fallback", ())]
        for row in table["measured"]
    }
    found: dict[str, list[tuple[frozenset[str], str]]] = {}
    for call in table["call"]:
        spelled = frozenset(
            name.rpartition(".")[2].lower().strip("_")
            for key in ("functions", "methods", "modules")
            for name in call.get(key, ())
        )
        for row in call["measured"]:
            for operation in operations.get(row, ()):
                found.setdefault(operation, []).append((spelled, call["instead"]))
    return found


def _instead(name: str) -> str:
    """What to write instead; an empty text if nothing is known."""
    forward = name.removesuffix("_backward").removesuffix("_forward")
    for each in (name, forward):
        if each in _lowerings()["instead"]:
            return str(_lowerings()["instead"][each])
    for each in (name, forward):
        calls = _replacements().get(each, [])
        named = [text for spelled, text in calls if any(word in each for word in spelled)]
        texts = set(named or (text for _, text in calls))
        if len(texts) == 1:  # several calls share the operation: which one it was is not known
            return texts.pop()
    return ""
