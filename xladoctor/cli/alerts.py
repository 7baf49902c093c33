"""What of a run that is still going on is worth an alert: judged from one look to the next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor.amounts import percent
from xladoctor.report import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.results import Report
    from xladoctor.store.parts import Found

#: Names of alerts, as the option takes them.
KINDS = ("recompilation", "lag", "stopped")


@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody wants to know now.

    Attributes:
        kind: One of :data:`KINDS`.
        message: One sentence.
        cores: Which cores it is about; empty for all or none.
        hosts: Which hosts.
    """

    kind: str
    message: str
    cores: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True)
class Watcher:
    """Remembers what it has seen, so that an alert is given once.

    Attributes:
        patience: Seconds without a sign after which a core or host has stopped.
        kinds: Which alerts are wanted.
    """

    patience: float
    kinds: frozenset[str]
    _steps: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)
    _signs: dict[str, tuple[float | None, float]] = dataclasses.field(default_factory=dict)
    _told: set[object] = dataclasses.field(default_factory=set)
    _late: int = 0

    def look(self, report: Report, found: Found, now: float) -> list[Alert]:
        """The alerts that are new.

        Args:
            report: The run as it is now.
            found: Its parts.
            now: Seconds of this machine's own clock: the hosts' clocks are not to be trusted.
        """
        alerts = [
            *self._recompiled(report),
            *self._lagging(report),
            *self._stopped(report, found, now),
        ]
        return [alert for alert in alerts if alert.kind in self.kinds]

    def _recompiled(self, report: Report) -> Iterator[Alert]:
        count = report.summary.compilations_after_warmup or 0
        if count <= self._late:
            return
        late = [item for item in report.compilations if item.after_warmup]
        where = f", the last at {words.place(late[-1].location)}" if late else ""
        new = count - self._late
        self._late = count
        graphs = "1 graph" if new == 1 else f"{new:,} graphs"
        cores = late[-1].cores if late else ()
        yield Alert("recompilation", f"{graphs} compiled after warm-up{where}", cores)

    def _lagging(self, report: Report) -> Iterator[Alert]:
        for finding in report.findings:
            key = ("lag", finding.cores)
            if finding.code == "XLA414" and key not in self._told:
                self._told.add(key)
                hosts = {core.host for core in report.cores if core.core in finding.cores}
                named = tuple(sorted(host for host in hosts if host is not None))
                yield Alert("lag", finding.message, finding.cores, named)

    def _stopped(self, report: Report, found: Found, now: float) -> Iterator[Alert]:
        over = {label for label, line in found.hosts.items() if line[-1].ended}
        silent = self._silent(found, over, now)
        for label, seconds in silent.items():
            if self._once("silent", label):
                last = f"for {words.seconds(seconds)}"
                yield Alert("stopped", f"host {label} has written nothing {last}", (), (label,))
        standing = {
            core: seconds
            for core, seconds in self._standing(report, now).items()
            if (host := report_host(report, core)) not in over and host not in silent
        }
        cores = tuple(core for core in standing if self._once("stands", core))
        if cores:
            names = words.cores(cores, report.summary.cores)
            hosts = tuple(dict.fromkeys(filter(None, (report_host(report, c) for c in cores))))
            which = "cores" if len(cores) > 1 else "core"
            last = words.seconds(max(standing.values()))
            yield Alert(
                "stopped",
                f"{which} {names}: no step for {last}{_share(cores, report)}",
                cores,
                hosts,
            )

    def _silent(self, found: Found, over: set[str], now: float) -> dict[str, float]:
        """Hosts that are not over and have given no sign, with the seconds."""
        silent = {}
        for label, line in found.hosts.items():
            sign, since = self._signs.get(label, (None, now))
            if line[-1].flushed != sign or label not in self._signs:
                self._signs[label] = (line[-1].flushed, now)
                self._told.discard(("silent", label))
            elif label not in over and now - since >= self.patience:
                silent[label] = now - since
        return silent

    def _standing(self, report: Report, now: float) -> dict[int, float]:
        """Cores that have taken no step, with the seconds."""
        standing = {}
        for core in report.cores:
            steps, since = self._steps.get(core.core, (-1, now))
            if (core.steps or 0) != steps:
                self._steps[core.core] = (core.steps or 0, now)
                self._told.discard(("stands", core.core))
            elif now - since >= self.patience:
                standing[core.core] = now - since
        return standing

    def _once(self, what: str, name: object) -> bool:
        known = (what, name) in self._told
        self._told.add((what, name))
        return not known


def report_host(report: Report, core: int) -> str | None:
    """The host of a core; None if the run is of one."""
    return next((one.host for one in report.cores if one.core == core), None)


def _share(cores: Sequence[int], report: Report) -> str:
    return f" ({percent(len(cores) / len(report.cores))} of them)" if len(cores) > 1 else ""


def is_over(found: Found) -> bool:
    """Whether every host has said that nothing more will come."""
    lines: Mapping[str, object] = found.hosts
    return bool(lines) and all(line[-1].ended for line in found.hosts.values())
