"""``ops.toml``: writing what was measured, and comparing two measurements."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from xladoctor.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_KEYS = ("sync", "cut", "reads", "fallback", "constant", "varying", "error")
_MEASURED = re.compile(r"^torch = .*?^\]\n", re.MULTILINE | re.DOTALL)


def read(path: Path) -> dict[str, Any]:
    """A table that was written before.

    Raises:
        UsageError: It is not there, or is no such table.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a table of measured operations: {error}") from error
    if not isinstance(table.get("measured"), list):
        raise UsageError(f"{path} is not a table of measured operations: it has no 'measured'")
    rows = table["measured"]
    if not all(isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows):
        raise UsageError(f"{path} is not a table of measured operations: a row has no 'name'")
    for key in ("torch_xla", "device"):
        if not isinstance(table.get(key), str):
            raise UsageError(f"{path} does not say on which {key} it was measured: add {key} = ...")
    return table


def render(versions: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Versions and rows as TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in versions.items()]
    lines += ["", "measured = ["]
    for row in rows:
        parts = [f"{key} = {_value(row[key])}" for key in ("name", "group", *_KEYS) if key in row]
        lines.append(f"  {{ {', '.join(parts)} }},")
    return "\n".join([*lines, "]", ""])


def update(text: str, versions: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """A table's text with what was measured anew; what was written by hand stays.

    Raises:
        UsageError: The text has no place for it.
    """
    made = render(versions, rows)
    changed, count = _MEASURED.subn(lambda _: made, text, count=1)
    if count != 1:
        raise UsageError("the table to write has no 'torch = ...' to 'measured = [...]' part")
    return changed


def differences(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> list[tuple[str, list[tuple[str, Any, Any]]]]:
    """Idioms that do something else than before: name, and (key, before, after) of each change.

    Only idioms of both tables count: a new one did not change.
    """
    known = {row["name"]: row for row in before}
    found = []
    for row in after:
        old = known.get(row["name"])
        if old is None:
            continue
        changes = [
            (key, old.get(key), row.get(key)) for key in _KEYS if old.get(key) != row.get(key)
        ]
        if changes:
            found.append((str(row["name"]), changes))
    return found


def _value(value: object) -> str:
    # JSON's strings, numbers, booleans and lists are TOML's too.
    return json.dumps(value, ensure_ascii=True)
