"""What goes wrong in a run, as rows: exceptions, cores that part, cores that stand still."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import faults

if TYPE_CHECKING:
    from .account import Account, Accounts
    from .process import Process
    from .sites import Sites


class Failures:
    """Writes a row for each failure of one process, and only one for each.

    Args:
        process: Where the rows go.
        accounts: The cores' books, for the step in which it happens.
        sites: The process's program points.
    """

    def __init__(self, process: Process, accounts: Accounts, sites: Sites) -> None:
        self._process = process
        self._accounts = accounts
        self._sites = sites
        self._told: list[BaseException] = []
        self._divergences = 0
        self._stopped: list[str] = []  # what the simulation said when it stopped the cores

    def told(self, kind: str, facts: dict[str, Any]) -> None:
        """What the simulation tells of cores that fail, part, differ or wait for ever.

        Args:
            kind: "core-failed", "cores-part", "tags-differ", "graphs-differ",
                "graphs-vary", "collectives-differ" or why no core can go on.
            facts: See ``simulate.install``.
        """
        if kind == "core-failed":
            account = self._accounts.by_core.get(facts["core"])
            if account is not None and isinstance(facts["error"], Exception):
                self.error(account, facts["error"])
        elif kind == "cores-part":
            self._with_places("weights-diverge", facts)
        elif kind == "stopped":  # by another process, which tells why
            self._stopped.append(str(facts["message"]))
            self._process.note(self._stopped[-1])
        elif kind == "silent":
            self._with_places("silent", facts)
        elif kind == "check-off":
            self._process.hook_off(f"check {facts['check']}", facts["error"])
        elif kind == "tags-differ":
            self._with_places("divergence", {"kind": "tags", **facts})
        elif kind == "graphs-vary":
            self._with_places("divergence", self._with_graphs({"kind": "graphs", **facts}))
        else:
            self._stopped.append(str(facts.get("message", kind)))
            if kind in _DIVERGENCES:
                row = self._with_graphs({"kind": _DIVERGENCES[kind], **facts})
                self._with_places("divergence", row)
                self._process.note(self._stopped[-1])
            else:
                self._all_stand_still(kind, facts)

    def error(self, account: Account, error: BaseException, *, feeding: bool = False) -> None:
        """One row for one exception, however many cores it ends; never raises.

        Args:
            account: The core's.
            error: What was raised.
            feeding: Not in the core itself, but in the thread that loads its batches.
        """
        try:
            if any(error is other for other in self._told) or str(error) in self._stopped:
                return
            self._told.append(error)
            reason = faults.began(error)
            self._process.write(
                {
                    "e": "error",
                    "core": account.core,
                    "step": account.current_iteration or account.current_step,
                    "type": type(reason).__name__,
                    "message": str(reason),
                    "traceback": self._sites.traceback_of(error),
                    "site": self._sites.at_error(reason),
                    "feeding": feeding,
                    "fault": faults.told(error),
                }
            )
        except Exception:
            pass

    def left(self, code: int) -> None:
        """One row for a call of ``os._exit``: by which core, and where."""
        thread = threading.get_ident()
        cores = [core for core, one in self._accounts.by_core.items() if one.owner == thread]
        self._process.write(
            {
                "e": "exit",
                "t": time.monotonic(),
                "code": code if isinstance(code, int) else None,
                "core": cores[0] if cores else None,
                "site": self._sites.here(sys._getframe(1)),
            }
        )

    def _with_places(self, event: str, facts: dict[str, Any]) -> None:
        """A row with two places: where it was seen, and the line that is to blame."""
        row = {"e": event, "t": time.monotonic(), **facts}
        for key, place in (("site", "place"), ("cause_site", "cause_place")):
            known = row.pop(place, None)
            row[key] = self._sites.named(known) if known is not None else None
        account = next(iter(self._accounts.by_core.values()), None)
        if event == "divergence" and account is not None:
            row["step"] = account.current_step
        self._process.say(_plain(row))

    def _with_graphs(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Keep the graphs themselves: one for each group of cores that have the same."""
        texts = facts.pop("texts", ())
        self._divergences += 1
        names = [f"graphs/divergence-{self._divergences:02}-{at}" for at in range(len(texts))]
        kept = [
            name
            for name, text in zip(names, texts, strict=True)
            if self._process.keep(f"{name}.txt.z", text)
        ]
        return {**facts, "graphs": kept}

    def _all_stand_still(self, kind: str, facts: dict[str, Any]) -> None:
        """One row for each core: where it stands while no core can go on."""
        waits, whom, steps = (facts.get(key) or {} for key in ("waits", "for_cores", "steps"))
        ended = facts.get("ended") or ()  # such a core may still be on its way out of our own code
        frames = sys._current_frames()
        for core, account in sorted(self._accounts.by_core.items()):
            row: dict[str, Any] = {"e": "hang", "core": core, "t": time.monotonic()}
            frame = frames.get(account.owner)
            if account.ended or core in ended or frame is None:
                row |= {"site": None, "state": "has ended", "waits_for": None}
            else:
                row |= {"site": self._sites.here(frame), "state": kind}
                row["waits_for"] = waits.get(core)
            row |= {"for_cores": whom.get(core), "steps": steps.get(core)}
            row["again"] = core in (facts.get("again") or ())
            row["fed"] = None if account.feed is None else account.feed.row(self._sites)
            self._process.say(row)


#: Divergences that end the run, and how their rows name them.
_DIVERGENCES = {"graphs-differ": "graphs", "collectives-differ": "collectives"}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Whatever JSON cannot take, as text."""
    plain = (str, int, float, bool, type(None), list, dict)
    return {key: value if isinstance(value, plain) else str(value) for key, value in row.items()}
