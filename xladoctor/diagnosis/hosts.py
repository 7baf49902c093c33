"""Which host the cores of a finding share: the machine to look at."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.diagnosis.case import RunFacts
    from xladoctor.findings import Finding

#: Hosts of a finding that are named; what is on more of them is no matter of a host.
_MOST = 3


def on_hosts(findings: Iterable[Finding], run: RunFacts | None) -> list[Finding]:
    """The findings, those of some hosts only with the hosts' names."""
    every = frozenset(run.hosts.values()) if run is not None else frozenset()
    if run is None or len(every) < 2:
        return list(findings)
    return [_named(one, run, len(every)) for one in findings]


def _named(one: Finding, run: RunFacts, count: int) -> Finding:
    found = {run.hosts[core]: None for core in sorted(one.cores) if core in run.hosts}
    if not found or len(found) > _MOST or len(found) == count:
        return one
    word = "host" if len(found) == 1 else "hosts"
    return dataclasses.replace(one, message=f"{one.message} ({word} {', '.join(found)})")
