"""Which host of which run a process is, from what its launcher has put into the environment.

The variables are rows of ``rules/tables/launchers.toml``, each with its source. No host asks
another: what all of them are given alike is the run's name.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from xladoctor import catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a name may hold: it becomes a folder, or part of an object's key.
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 80


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who writes a part of a run.

    Attributes:
        run: The run's name, the same on all hosts; None if no launcher says one.
        host: The host's number ("3", of several slices "1-3"), or its name if nothing numbers it.
        hosts: How many hosts there are; None if not known.
        local: The number of this process among those of the host that write parts; None for one.
        restart: How often the launcher had started it before; None if not known.
        launcher: Who says so; None for nobody.
        hostname: The machine's own name.
    """

    run: str | None
    host: str
    hosts: int | None
    local: str | None
    restart: int | None
    launcher: str | None
    hostname: str

    @property
    def label(self) -> str:
        """The host, and which of its processes it is: the name of its folder."""
        return self.host if self.local is None else f"{self.host}.{self.local}"


def identity(environ: Mapping[str, str], hostname: str) -> Identity:
    """Which host this is.

    Args:
        environ: The environment that the launcher has made.
        hostname: The machine's name, for where nothing numbers the host.
    """
    rows = [row for row in catalogue.table("launchers")["launcher"] if _applies(row, environ)]
    named = next((found for row in rows if (found := _run(row, environ))), None)
    numbering: Mapping[str, Any] = next(
        (row for row in rows if _host(row, environ) is not None), {}
    )
    restarts = (_number(environ.get(row.get("restart", ""))) for row in rows)
    naming: Mapping[str, Any] = next((row for row in rows if _run(row, environ) is not None), {})
    return Identity(
        run=named,
        host=_host(numbering, environ) or _numbered(hostname),
        hosts=_hosts(environ.get(numbering.get("hosts", ""))),
        local=_local(numbering, environ),
        restart=next((count for count in restarts if count is not None), None),
        launcher=(numbering or naming).get("name"),
        hostname=hostname,
    )


def _applies(row: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    return not row.get("only_if") or any(environ.get(name) for name in row["only_if"])


def _run(row: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    for name in row.get("run", ()):
        value = environ.get(name, "")
        if value and value not in row.get("none", ()):
            return _fit(value)
    return None


def _host(row: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    names = row.get("host", ())
    if not names or not environ.get(names[-1]):
        return None
    return _fit("-".join(environ[name] for name in names if environ.get(name)))


def _local(row: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Which process of the host it is; None where each host has one."""
    size = environ.get(row.get("local_size", ""), "")
    alone = all(count.partition("(")[0] == "1" for count in size.split(","))
    return None if alone else _fit(environ.get(row.get("local", "")))


def _hosts(value: str | None) -> int | None:
    """A number of hosts, or the number of their names."""
    if not value:
        return None
    return _number(value) if value.isdecimal() else len(value.split(","))


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) < 9 else None


def _fit(value: str | None) -> str | None:
    """A value as a name of a folder; None for none."""
    if not value:
        return None
    return _UNFIT.sub("-", value).strip("-.")[:_LONGEST] or None


def _numbered(hostname: str) -> str:
    """The number in a host's name, where the names of its kind have one; else the name."""
    for row in catalogue.table("launchers")["hostname"]:
        match = re.match(row["pattern"], hostname.partition(".")[0])
        if match:
            return match[1]
    return _fit(hostname) or "host"
