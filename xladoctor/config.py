"""Settings: ``[tool.xladoctor]`` in ``pyproject.toml``, or ``xladoctor.toml``.

The file closest to what is linted wins, nothing is merged; a ``pyproject.toml`` without the table
is passed over. Paths and patterns are relative to the file's folder. Flags beat the file.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue, files
from xladoctor.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILENAMES = (".xladoctor.toml", "xladoctor.toml", "pyproject.toml")
#: The members of the family of devices, as ``rules/tables/devices.toml`` names them.
TARGETS = ("torch_xla", "torch_tpu", "torch_neuron", "torchax")
OUTPUT_FORMATS = ("full", "concise", "json", "github", "gitlab", "junit", "sarif")

_TABLES = ("lint", "profile", "report")
_LISTS = (
    "select", "ignore", "extend-select", "extend-ignore", "exclude", "extend-exclude", "plugins",
)  # fmt: skip
_WORDS = ("exclude", "extend-exclude", "plugins")  # lists of something else than codes
_FLAGS = ("force-exclude", "respect-gitignore")
_TEXTS = ("output-format", "target", "target-torch-xla", "baseline", "cache-dir", "library")
_KEYS = (*_LISTS, *_FLAGS, *_TEXTS, "per-file-ignores")
_SELECTOR = re.compile(r"^(ALL|XLA\d{0,3}|(?!XLA|ALL)[A-Z]{2,12}\d{0,4})$")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What the user wants, before the flags of a command.

    Attributes:
        select: Beginnings of codes to report; None for those that are on by default.
        ignore: Beginnings of codes not to report; the longer beginning wins over ``select``.
        extend_select: Beginnings of codes to report beside ``select``.
        per_file_ignores: Pattern to beginnings of codes that are not reported in such files.
        exclude: Patterns of files to leave out, instead of the usual ones; None for those.
        extend_exclude: Patterns of files to leave out beside them.
        force_exclude: Leave them out even if they are given by name.
        respect_gitignore: Leave out what ``.gitignore`` leaves out.
        output_format: One of ``OUTPUT_FORMATS``.
        target: Member of the family of devices that the code is for, such as "torch_tpu"; None to
            tell it by imports and devices.
        target_torch_xla: Version to lint for, such as "2.9"; None for the newest known.
        baseline: File with the findings that are known already.
        cache_dir: Folder for what was found before, relative to the file's.
        library: File with what names of libraries do, relative to the file's (``lint.library``).
        plugins: Modules (or files) with rules of the project.
        profile, report: The tables of the other commands as they stand.
        file: The file they come from, if any.
        withheld: Plugins that the file names and that may not run, as nobody trusts it.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    output_format: str = "full"
    target: str | None = None
    target_torch_xla: str | None = None
    baseline: str | None = None
    cache_dir: str | None = None
    library: str | None = None
    plugins: tuple[str, ...] = ()
    profile: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    report: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    file: Path | None = None
    withheld: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The folder that paths and patterns are relative to."""
        return self.file.parent if self.file is not None else Path()

    def path(self, key: str, value: str) -> Path:
        """A path that the file names: it may not leave the file's folder, not by a link either.

        Args:
            key: What it is for, as the file calls it.
            value: As it stands there.

        Raises:
            UsageError: It leads out of the folder.
        """
        found = self.root / value
        try:
            fine = files.is_inside(found, self.root)
        except ValueError:  # a null byte
            fine = False
        if not fine:
            raise UsageError(
                f"{self.file}: {key} = {value!r} leads out of the folder of this file: name a path "
                f"inside it, or give the path on the command line"
            )
        return found


def find(start: Path) -> Path | None:
    """The closest file with settings, from a folder upwards."""
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in FILENAMES:
            path = folder / name
            if os.path.isfile(path) and (name != "pyproject.toml" or _has_table(path)):  # noqa: PTH113  (says no where Path raises)
                return path
    return None


def read(path: Path) -> Settings:
    """Read the settings of a file.

    Raises:
        UsageError: It does not exist, is not TOML, or has a key or value that means nothing.
    """
    document = load(path)
    table = document
    if _is_pyproject(path):
        tool = document.get("tool", {})
        table = tool.get("xladoctor", {}) if isinstance(tool, dict) else {}
    prefix = "tool.xladoctor." if _is_pyproject(path) else ""
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.xladoctor must be a table")
    for key in _TABLES:
        if not isinstance(table.get(key, {}), dict):
            raise UsageError(f"{path}: {prefix}{key} must be a table")
    values = {key: value for key, value in table.items() if key not in _TABLES}
    known = (*_KEYS, *_TABLES)
    _check_keys(path, prefix, values, known)
    _check_keys(path, f"{prefix}lint.", table.get("lint", {}), _KEYS)
    values.update(table.get("lint", {}))
    checked = {key: _checked(path, key, value) for key, value in values.items()}
    ignore = (*checked.pop("ignore", ()), *checked.pop("extend-ignore", ()))
    fields = {key.replace("-", "_"): value for key, value in checked.items()}
    return Settings(
        **fields,
        ignore=ignore,
        profile=table.get("profile", {}),
        report=table.get("report", {}),
        file=path.resolve(),
    )


def selectors(text: str | Sequence[str], origin: str) -> tuple[str, ...]:
    """Codes or beginnings of codes ("XLA1"), from a list or separated by commas.

    Raises:
        UsageError: One of them is neither; ``origin`` says where it was written.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    found = tuple(part.strip().upper() for part in parts if part.strip())
    for item in found:
        if not _SELECTOR.match(item):
            raise UsageError(f"{origin}: {item!r} is {_advice(item)}")
    return tuple("XLA" if item == "ALL" else item for item in found)


def _advice(item: str) -> str:
    for page in catalogue.pages().values():
        if page.name == item.lower():
            return f"a rule's name: write its code, {page.code}"
    wanted = catalogue.suggestion(item)
    wanted = wanted or "write ALL, a family such as XLA1 or a code such as XLA101"
    return f"an unknown code: {wanted}"


def version(text: str, origin: str) -> tuple[int, ...]:
    """A torch_xla version such as "2.9" as numbers.

    Raises:
        UsageError: It is none.
    """
    match = re.match(r"^v?(\d+)\.(\d+)(?:\.\d+)?$", text.strip())
    if match is None:
        raise UsageError(f"{origin}: {text!r} is no torch_xla version: write it like 2.9")
    return (int(match[1]), int(match[2]))


def load(path: Path) -> dict[str, Any]:
    """A TOML file as it stands.

    Raises:
        UsageError: It does not exist, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(files.read_text(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such configuration file") from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path}: the configuration cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the configuration cannot be read ({error})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: the configuration is not TOML: {error}") from error


def _is_pyproject(path: Path) -> bool:
    return path.name == "pyproject.toml"


def _has_table(path: Path) -> bool:
    try:
        document = tomllib.loads(files.read_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return False  # somebody else's file: whoever owns it will say what is wrong with it
    tool = document.get("tool", {})
    return isinstance(tool, dict) and "xladoctor" in tool


def _check_keys(path: Path, prefix: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in values:
        if key in known:
            continue
        import difflib

        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise UsageError(f"{path}: unknown key {prefix}{key}: {hint}")


def _checked(path: Path, key: str, value: object) -> Any:
    origin = f"{path}: {key}"
    if key == "per-file-ignores":
        if not isinstance(value, dict):
            raise UsageError(f"{origin} must be a table of pattern = [codes]")
        return tuple(
            (pattern, selectors(_strings(origin, codes), origin))
            for pattern, codes in value.items()
        )
    if key in _LISTS:
        items = _strings(origin, value)
        return items if key in _WORDS else selectors(items, origin)
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise UsageError(f"{origin} must be true or false")
        return value
    if not isinstance(value, str):
        raise UsageError(f"{origin} must be a string")
    if key == "output-format" and value not in OUTPUT_FORMATS:
        raise UsageError(f"{origin} is {value!r}: choose from {', '.join(OUTPUT_FORMATS)}")
    if key == "target" and value not in TARGETS:
        raise UsageError(f"{origin} is {value!r}: choose from {', '.join(TARGETS)}")
    if key == "target-torch-xla":
        version(value, origin)
    return value


def _strings(origin: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{origin} must be a list of strings")
    return tuple(value)
