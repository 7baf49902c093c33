"""A program's files as one thing to be fixed: the script and what it imports of its project."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from xladoctor.errors import UsageError
from xladoctor.lint import discovery, engine, fixes, linking, looked, sources
from xladoctor.lint.asked import Member

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from xladoctor.findings import Finding
    from xladoctor.lint.asked import Result
    from xladoctor.lint.run import Plan
    from xladoctor.lint.sources import Source

#: A folder with more Python files is not searched for what belongs to the script.
_MOST_NEIGHBOURS = 400

#: File name to the bytes of the file.
Version = dict[str, bytes]
#: A fix by file, code and the text of its line, which other fixes do not move.
Place = tuple[str, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A script and the files of its project that it imports, directly or not.

    Attributes:
        names: File names as they are shown; the script first.
        imports: File name to {module as its imports spell it: file name}.
        plan: Which rules are asked, and what is ignored where.
    """

    names: tuple[str, ...]
    imports: Mapping[str, Mapping[str, str]]
    plan: Plan

    @property
    def script(self) -> str:
        """The file that is run."""
        return self.names[0]

    def read(self) -> Version:
        """The files as they are on the disk.

        Raises:
            UsageError: One of them cannot be read.
        """
        try:
            return {name: looked.load(name) for name in self.names}
        except OSError as error:
            raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error

    def findings(self, version: Version) -> list[Finding]:
        """What is found in all files of a version, file by file."""
        results = engine.lint_together(self._members(version))
        return [finding for result in results for finding in result.findings]

    def places(self, version: Version, codes: frozenset[str], *, unsafe: bool) -> list[Place]:
        """Where a version has fixes of some codes; places on equal lines of a file are one."""
        lines = _Lines(version)
        found = [
            lines.place(item)
            for item in self.findings(version)
            if item.code in codes and fixes.is_applicable(item, unsafe=unsafe)
        ]
        return list(dict.fromkeys(found))

    def fixed(
        self,
        version: Version,
        codes: frozenset[str],
        *,
        unsafe: bool,
        places: Collection[Place] | None = None,
    ) -> tuple[Version, list[Finding]]:
        """A version with the fixes of some codes, and the findings whose fixes were made.

        Args:
            version: The files without them.
            codes: Whose fixes.
            unsafe: Also those that may change the meaning.
            places: Only the fixes there; None for all.
        """
        version = dict(version)
        made: list[Finding] = []
        for name in self.names:
            lines = _Lines(version)

            def lint(source: Source, name: str = name, lines: _Lines = lines) -> Result:
                lines.see(source)
                place = self.names.index(name)
                members = [
                    dataclasses.replace(member, source=source)
                    if index == place
                    else dataclasses.replace(member, wanted=False)
                    for index, member in enumerate(self._members(version))
                ]
                return engine.lint_together(members)[place]

            def fixable(item: Finding, lines: _Lines = lines) -> bool:
                wanted = places is None or lines.place(item) in places
                return item.code in codes and wanted

            done = fixes.fix(version[name], name, lint, unsafe=unsafe, fixable=fixable)
            version[name] = done.data
            made.extend(done.made)
        return version, made

    def _members(self, version: Version) -> list[Member]:
        return [
            Member(
                sources.from_bytes(version[name], name),
                self.plan.options_for(name),
                self.imports.get(name, {}),
            )
            for name in self.names
        ]


class _Lines:
    """The lines of files that are fixed, to know places again when lines have moved."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._sources: dict[str, Source] = {}

    def see(self, source: Source) -> None:
        """Take a source that is newer than the version."""
        self._sources[source.filename] = source

    def place(self, item: Finding) -> Place:
        """The place of a finding."""
        where = item.locations[0]
        name = where.filename
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = sources.from_bytes(self._version[name], name)
        cell = next((one for one in source.cells or () if one.index == where.cell), None)
        lines = sources.rows(source.text)
        row = where.row + (cell.first - 1 if cell is not None else 0)
        return name, item.code, lines[row - 1].strip() if row <= len(lines) else ""


def program_of(script: str, plan: Plan) -> Program:
    """The program that begins with a script."""
    neighbours = _neighbours(script)
    on_tpus = neighbours if plan.options.started.on_tpus else ()
    found = linking.groups(neighbours, on_tpus=on_tpus)
    [group] = [item for item in found if script in item.names]
    names = [script]
    for name in names:  # grows while it is walked
        names += [other for other in group.imports.get(name, {}).values() if other not in names]
    inside = set(names)
    imports = {
        name: {module: other for module, other in found.items() if other in inside}
        for name, found in group.imports.items()
        if name in inside
    }
    return Program(tuple(names), imports if len(names) > 1 else {}, plan)


def _neighbours(script: str) -> Sequence[str]:
    """The script first, then the Python files below its folder: what it may import."""
    folder = str(Path(script).parent)
    found = discovery.discover([folder], discovery.Search())
    names = [str(path) for path in found if path.suffix == ".py"]
    same = {sources.absolute(name) for name in (script,)}
    others = [name for name in names if sources.absolute(name) not in same]
    return [script, *others] if len(others) <= _MOST_NEIGHBOURS else [script]
