"""What files say that a project requires: pip's, those of packages, Poetry's, conda's, nbdev's."""

from __future__ import annotations

import ast
import codecs
import configparser
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from xladoctor import files
from xladoctor.lint import sources

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from xladoctor.lint.looked import Looked

_PIP = re.compile(r"^[\w.-]*requirements[\w.-]*\.txt$|^constraints[\w.-]*\.txt$", re.IGNORECASE)
_CONDA = re.compile(r"^environment[\w.-]*\.ya?ml$", re.IGNORECASE)
_PACKAGE = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "settings.ini"})
#: ``-r other.txt``, ``--constraint=limits.txt``.
_FOLLOWED = re.compile(
    r"^(?P<how>-r|-c|--requirement|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(?P<path>\S.*)$"
)
#: ``conda-forge::transformers``: where it is from.
_CHANNEL = re.compile(r"^[\w./-]+::")
#: ``transformers=4.37.2=py39_0``, ``transformers 4.37.*``: a release and all below it.
_OF_CONDA = re.compile(
    r"^(?P<name>[\w.-]+)(?:\s*=\s*|\s+)(?P<release>\d+(?:\.\w+)*)(?:\.?\*)?(?:[=\s]\S*)?$"
)
#: What names in ``setup.py`` hold requirements: ``install_requires``, ``_deps``, ``extras``.
_HOLDS = re.compile(r"requir|deps|dependenc|extras", re.IGNORECASE)
#: A release as Poetry writes it: ``^4.37``, ``~4.37.2``, ``4.37.2``, ``4.37.*``.
_OF_POETRY = re.compile(r"^(?P<sign>[\^~]?)v?(?P<release>\d+(?:\.\d+)*)(?P<rest>\.\*)?$")
#: Files of one folder with those that they name, and releases that they ask for of a package.
_MOST = 64
#: Characters of a line that people write.
_LONGEST = 1000


def is_requirements(name: str) -> bool:
    """Whether a file of this name says what a project requires."""
    return name in _PACKAGE or bool(_PIP.match(name) or _CONDA.match(name))


class Read:
    """What is required in files, of some packages.

    Attributes:
        required: What was asked for to the specifiers that stand beside it, "" for any release.
        limits: The same of constraints, which install nothing themselves.

    Args:
        looked: Looks at the disk.
        wanted: The packages to what they are called in the answer.
    """

    def __init__(self, looked: Looked, wanted: Mapping[str, str]) -> None:
        self._looked = looked
        self._wanted = wanted
        names = "|".join(re.escape(name).replace(r"\-", "[-_.]+") for name in wanted)
        self._named = re.compile(rf"(?<![\w.-])({names})(?![\w-])", re.IGNORECASE)
        self._done: set[tuple[str, bool]] = set()
        self.required: dict[str, list[str]] = {}
        self.limits: dict[str, list[str]] = {}

    def file(self, path: str, *, limit: bool | None = None) -> None:
        """Read a file, and those that it names.

        Args:
            path: The file.
            limit: Whether it is one of constraints; None to tell by its name.
        """
        name = os.path.basename(path)  # noqa: PTH119
        limit = name.lower().startswith("constraints") if limit is None else limit
        path = os.path.normpath(path)
        if (path, limit) in self._done or len(self._done) >= _MOST:
            return
        self._done.add((path, limit))
        try:
            lines = [*_lines(name, _text(self._looked.read(path, files.read_settings)))]
        except (OSError, RecursionError):
            return
        for line in lines:
            followed = _FOLLOWED.match(line)
            if followed is not None:
                other = _beside(path, followed["path"].strip("\"'"))
                self.file(other, limit=limit or followed["how"] in {"-c", "--constraint"})
            elif len(line) < _LONGEST and self._named.search(line):
                self._take(line, limit=limit)

    def _take(self, line: str, *, limit: bool) -> None:
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name

        try:
            said = Requirement(line)
        except InvalidRequirement:
            return
        name = self._wanted.get(canonicalize_name(said.name))
        if name is not None:
            found = (self.limits if limit else self.required).setdefault(name, [])
            if str(said.specifier) not in found and len(found) < _MOST:
                found.append(str(said.specifier))


def _beside(path: str, other: str) -> str:
    """A path as a file names it."""
    return os.path.join(os.path.dirname(path), other)  # noqa: PTH118, PTH120


def _text(data: bytes) -> str:
    """As pip reads it: PowerShell writes UTF-16."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


def _lines(name: str, text: str) -> Iterator[str]:
    """What a file requires, each as pip would write it, or the file that it names."""
    if name == "pyproject.toml":
        return _of_pyproject(text)
    if name == "setup.cfg":
        return _of_configuration(text)
    if name == "settings.ini":
        return _of_nbdev(text)
    if name == "setup.py":
        return _of_setup(text)
    return _of_conda(text) if _CONDA.match(name) else _of_pip(text)


def _of_pip(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        said = re.sub(r"(^|\s)#.*", "", line).strip()
        said = said if said.startswith("-") else re.split(r"\s--?\w", said)[0].strip()
        if said:
            yield said


def _of_conda(text: str) -> Iterator[str]:
    """The entries of all lists, pip's among them."""
    for line in text.splitlines():
        entry = re.sub(r"\s#.*", "", line).strip()
        if not entry.startswith("- "):
            continue
        said = _CHANNEL.sub("", entry.removeprefix("- ").strip().strip("\"'"))
        of_conda = _OF_CONDA.match(said)
        yield f"{of_conda['name']}=={of_conda['release']}.*" if of_conda else said


def _of_pyproject(text: str) -> Iterator[str]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    project, poetry = _table(document, "project"), _table(document, "tool", "poetry")
    yield from _texts(project.get("dependencies"))
    yield from _texts(project.get("optional-dependencies"))
    yield from _texts(document.get("dependency-groups"))
    groups = [_table(group) for group in _table(poetry, "group").values()]
    for table in (poetry, *groups):
        for key in ("dependencies", "dev-dependencies"):
            for name, said in _table(table, key).items():
                yield from _of_poetry(name, said)


def _table(value: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> Iterator[str]:
    """The texts of a list, or of the lists of a table."""
    for several in value.values() if isinstance(value, dict) else [value]:
        yield from (x for x in several if isinstance(x, str)) if isinstance(several, list) else ()


def _of_poetry(name: str, said: object) -> Iterator[str]:
    for one in said if isinstance(said, list) else [said]:
        release = one.get("version", "*") if isinstance(one, dict) else one
        if not isinstance(release, str):
            continue
        for choice in re.split(r"\s*\|\|?\s*", release):
            parts = re.split(r"[,\s]+", re.sub(r"(?<=[\^~<>=])\s+", "", choice.strip()))
            yield f"{name} {','.join(filter(None, map(_as_pip, parts)))}".strip()


def _as_pip(part: str) -> str:
    """A part of what Poetry takes as pip writes it; "" for any release."""
    found = _OF_POETRY.match(part)
    if found is None:
        return "" if part == "*" else part
    release, numbers = found["release"], [int(number) for number in found["release"].split(".")]
    if not found["sign"]:
        return f"=={release}{found['rest'] or ''}"
    place = min(1, len(numbers) - 1)
    if found["sign"] == "^":
        place = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    end = [*numbers[:place], numbers[place] + 1]
    return f">={release},<{'.'.join(map(str, end))}"


def _of_configuration(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    several = [parser.get("options", "install_requires", fallback="")]
    if parser.has_section("options.extras_require"):
        several += [said for _, said in parser.items("options.extras_require")]
    for said in several:
        yield from _of_pip(said)


def _of_nbdev(text: str) -> Iterator[str]:
    """``requirements = torch>=1.7 transformers==4.37.2`` of projects that nbdev makes."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    for key in ("requirements", "pip_requirements", "dev_requirements"):
        yield from parser.get("DEFAULT", key, fallback="").split()


def _of_setup(text: str) -> Iterator[str]:
    """The lists that are written out, under names for requirements."""
    tree = sources.parse(text)
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.keyword) and _HOLDS.search(node.arg or ""):
            yield from _written(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_HOLDS.search(name) for name in _names(targets)):
                yield from _written(node.value)


def _names(targets: Iterable[ast.expr]) -> Iterator[str]:
    """``extras["tpu"]``, ``self.requires``."""
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name | ast.Attribute):
                yield part.id if isinstance(part, ast.Name) else part.attr


def _written(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _of_pip(node.value)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        for element in node.elts:
            yield from _written(element)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _written(value)
    elif isinstance(node, ast.BinOp):
        yield from (*_written(node.left), *_written(node.right))
