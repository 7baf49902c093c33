"""Which graphs ended, which of them were new for their core, and why."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from .causes import Causes, Seen, look
from .sites import is_users_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from .account import Account
    from .points import Call
    from .sites import Sites

#: The user's frames whose tensors may explain a new graph.
EXPLAINING_FRAMES = 3

#: New graphs of one process that get a row each; those beyond share rows of this many, so that a
#: program that compiles in every step fills no disk.
SINGLE_GRAPHS, SHARED_GRAPHS = 5000, 500


def _of_several(step: int, since: int, site: int, *, first: bool) -> dict[str, Any]:
    """Why something was compiled in one of several steps: what they held is gone."""
    if first:
        return {"kind": "first-graph", "detail": "", "site": site}
    steps = f"of one of the steps {step - since + 1} to {step}, between which the host did not wait"
    return {"kind": "unknown", "detail": steps, "site": None}


class Graphs:
    """The graphs of one process.

    Args:
        write: Takes one row for the run directory.
        sites: The process's program points.
        simulated: Whether several cores share this process, and so its compiled graphs.
        device: The type of the devices' tensors.
    """

    def __init__(
        self,
        write: Callable[[dict[str, Any]], None],
        sites: Sites,
        simulated: bool,
        device: str = "xla",
    ) -> None:
        self._write = write
        self._device = device
        self._sites = sites
        self._simulated = simulated
        self._causes: dict[int, Causes] = {}
        self._took: dict[str, float | None] = {}  # of graphs that were named here
        self._names: dict[int, dict[int, str]] = {}
        self._runs: dict[int, dict[int, tuple[int, Account, str, dict[str, Any]]]] = {}
        self._naming = threading.Lock()
        self._device_cause: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self._rows = 0
        self._shared: dict[int, list[dict[str, Any]]] = {}

    def ended(
        self, account: Account, call: Call, trigger: str, site: int, seconds: float
    ) -> tuple[int, float]:
        """Count the graphs that a call has ended; write a row for each that was new.

        Args:
            account: The core's books.
            call: With the meter's facts.
            trigger: What ended them.
            site: The program point.
            seconds: How long the call took.

        Returns:
            How many were new for this core, and how long (seconds) other cores had taken to
            compile those that this core found compiled.
        """
        new = 0
        by_others = 0.0
        for graph in call.facts.get("graphs", ()):
            before = account.add_launch(site, trigger, seconds)
            seconds = 0.0
            if graph["graph"] is None and self._simulated:
                self._name(account, graph, trigger, site, before)
            if self._new_for(account, graph):
                new += 1
                if not graph["compiled"]:
                    by_others += graph["took"] or 0.0
                self._compilation(account, graph, trigger, site, before)
            account.add_cut(site, trigger)
        if call.what == "_run_cached_graph" and not call.facts.get("graphs"):
            account.add_launch(site, trigger, seconds)  # no counter of torch_xla shows these
        return new, by_others

    def unfinished(self, account: Account, hlo: str, trigger: str, site: int) -> None:
        """Write a graph that a core has compiled and whose launch does not come back."""
        graph = {
            "graph": None, "compiled": True, "seconds": None, "inputs": None, "outputs": None,
            "hlo": hlo,
        }  # fmt: skip
        self._compilation(account, graph, trigger, site, account.runs.get(site, 0))

    def eager(self, account: Account, call: Call, site: int) -> None:
        """Write what eager mode has compiled for a step; all of it has one cause."""
        before = account.add_launch(site, "eager", 0.0)
        cause = None
        for graph in call.facts["graphs"]:
            cause = self._compilation(account, graph, "eager", site, before, cause)

    def compiled(
        self,
        account: Account,
        count: int,
        seconds: float | None,
        site: int,
        step: int | None,
        ran: tuple[int, int],
    ) -> None:
        """Write what a device has compiled that runs operations by themselves.

        Args:
            account: The core's books.
            count: Of compiled operations.
            seconds: That each took; None if that is not known.
            site: Where steps end.
            step: Of the optimizer; None for the one that runs.
            ran: How often the same had run before, and how many steps have ended since the device
                was waited for: it is of one of them.
        """
        before, since = ran
        of_step = step or account.current_step
        told, cause = self._device_cause.get(account.core, (None, None))
        if told != of_step:
            # Else what is compiled at several reads of a step is new for one reason.
            cause = _of_several(of_step, since, site, first=not before) if since > 1 else None
        graph = {
            "graph": None, "compiled": True, "seconds": seconds, "inputs": None, "outputs": None,
            "hlo": None,
        }  # fmt: skip
        for _ in range(count):
            cause = self._compilation(account, graph, "eager", site, before, cause, step)
        self._device_cause[account.core] = of_step, cause

    def _name(
        self, account: Account, graph: dict[str, Any], trigger: str, site: int, before: int
    ) -> None:
        """Name a graph whose hash is not known by its place among those of its point.

        Cores that run the same program compile at the same run of a program point; so a core that
        finds a graph compiled there ran the one that the compiling core has named. That core may
        come here after those that found it.
        """
        with self._naming:
            names = self._names.setdefault(site, {})
            runs = self._runs.setdefault(site, {})
            if graph["compiled"]:
                name = graph["graph"] = names.setdefault(before, f"{site}.{before}")
                self._took[name] = graph["seconds"]
                early = [run for run in runs.values() if run[0] == before]
            else:
                found_name = graph["graph"] = names.get(before)
                if found_name is not None:
                    graph["took"] = self._took.get(found_name)
                runs[account.core] = (before, account, trigger, graph)
                early = []
        for _, other, cut, found in early:
            if name not in other.seen:
                other.seen.add(name)
                found["graph"] = name
                self._compilation(other, found, cut, site, before)

    def _new_for(self, account: Account, graph: dict[str, Any]) -> bool:
        """Whether this core's own process would have compiled the graph."""
        name = graph["graph"]
        new = bool(graph["compiled"])
        if name is not None:
            if self._simulated and name not in account.seen:
                new = True
            account.seen.add(name)
        return new

    def _compilation(
        self,
        account: Account,
        graph: dict[str, Any],
        trigger: str,
        site: int,
        before: int,
        cause: dict[str, Any] | None = None,
        step: int | None = None,
    ) -> dict[str, Any]:
        """Write the row of a new graph; returns its cause, which may be known already."""
        self._rows += 1
        if self._rows > SINGLE_GRAPHS:
            self._share(account, graph, trigger, site, before)
            return {"kind": "unknown", "detail": "", "site": None}
        frame = sys._getframe(1)
        if threading.get_ident() != account.owner:
            frame = sys._current_frames().get(account.owner, frame)
        modelled = graph.get("modelled")
        users = [one for one in self._sites.users(frame) if is_users_own(one)]
        users = users[:EXPLAINING_FRAMES]
        looks = modelled is None and (cause is None or graph["hlo"] is not None)
        seen = look(users, self._device) if looks else Seen()
        if modelled is not None:
            cause = {**modelled, "site": site}
        elif cause is None:
            causes = self._causes.setdefault(account.core, Causes())
            cause = causes.of(site, trigger, graph, seen.shapes)
        self._write(
            {
                "e": "compilation",
                "core": account.core,
                "step": account.current_step if step is None else step,
                "iteration": account.current_iteration,
                "site": site,
                "trigger": trigger,
                "seconds": graph["seconds"],
                "graph": graph["graph"],
                "reused": not graph["compiled"],
                "executions": before,
                "inputs": graph["inputs"],
                "outputs": graph["outputs"],
                "cause": cause,
                "hlo": graph["hlo"],
                "named": seen.shapes if graph["hlo"] is not None else None,
                "numbers": seen.numbers if graph["hlo"] is not None else None,
                "histories": seen.histories if graph["hlo"] is not None else None,
                "cuts": list(account.cuts),
                "modelled": modelled is not None,
                "piece": account.pieces.get(site, 1),
                "fed": None
                if account.feed is None or account.feed.over
                else account.feed.row(self._sites),
            }
        )
        return cause

    def _share(
        self, account: Account, graph: dict[str, Any], trigger: str, site: int, before: int
    ) -> None:
        shared = self._shared.setdefault(account.core, [])
        if shared and (shared[-1]["site"], shared[-1]["trigger"]) == (site, trigger):
            row = shared[-1]
        else:
            row = {
                "e": "compilations",
                "core": account.core,
                "step": account.current_step,
                "site": site,
                "trigger": trigger,
                "count": 0,
                "seconds": 0.0,
                "executions": before,
            }
            shared.append(row)
        row["count"] += 1
        row["seconds"] += graph["seconds"] or 0.0
        if row["count"] >= SHARED_GRAPHS or len(shared) >= SHARED_GRAPHS:
            self.write_shared(account.core)

    def write_shared(self, core: int) -> None:
        """Write what is known of a core's graphs that have no row of their own."""
        for row in self._shared.pop(core, ()):
            self._write(row)
