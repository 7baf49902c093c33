"""The events that one process of a run has written, as rows of the tables.

Rows and keys that are not known are left alone; a line that was cut is left out, with a note.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from xladoctor.errors import SourceError
from xladoctor.readings import fields, tables
from xladoctor.readings.fields import (
    by_name,
    integer,
    integers,
    kinds,
    number,
    ranges,
    required,
    text,
)
from xladoctor.readings.iterations import NO_OPTIMIZER, Iterations
from xladoctor.readings.places import location
from xladoctor.readings.sharding import CallRow, MeshRow, sharding_row
from xladoctor.results import CAUSE_KINDS, Cause

if TYPE_CHECKING:
    from collections.abc import Callable

#: More steps than any row covers: the recorder writes one at least every few seconds.
_STEPS_OF_A_ROW = 1_000_000
#: Cores of one process, and steps of all of them: what a damaged or invented record may ask for.
_MOST_CORES = 1024
_MOST_STEPS = 10_000_000
#: Damaged lines that are told one by one.
_TOLD = 3
#: More new graphs than any row stands for.
_GRAPHS_OF_A_ROW = 100_000


#: The version of the run directory that this reader knows.
VERSION = 1


class EventReader:
    """Turns the events of one process into rows."""

    def __init__(
        self, process: str, cwd: str | None, rows: dict[str, list[Any]], notes: list[str]
    ) -> None:
        self._process = process
        self._cwd = cwd
        self._rows = rows
        self._notes = notes
        self._sites: dict[Any, tuple[tables.Frame, ...]] = {}
        self._facts: dict[str, Any] = {}
        self._cores: dict[int, dict[str, Any]] = {}
        self._iterations = Iterations()
        self._compiled_in_iteration: dict[int, int] = {}
        self._new_graphs: dict[int, list[int]] = {}  # core -> compilations since its last stretch
        self._ended = False
        self._until: float | None = None
        self._covered = 0  # steps of all cores
        self._damaged = 0  # lines that could not be read

    @property
    def core_numbers(self) -> list[int]:
        """The cores that this process ran."""
        return sorted(self._cores)

    def feed(self, line: str, where: str) -> None:
        """Take one line; a line that is no row (cut by a kill) becomes a note."""
        try:
            event = json.loads(line)
            handler = getattr(self, f"_on_{str(event['e']).replace('-', '_')}", None)
        except (ValueError, KeyError, TypeError, RecursionError):
            if line.endswith("\n"):
                self._leave_out(where)
            return
        if handler is not None:
            self._feed(handler, event, where)

    def _feed(self, handler: Callable[[Any], None], event: dict[str, Any], where: str) -> None:
        try:
            handler(event)
        except SourceError as error:
            raise SourceError(f"{where}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            self._leave_out(where)

    def _leave_out(self, where: str) -> None:
        self._damaged += 1
        if self._damaged <= _TOLD:
            self._notes.append(f"{where}: this line could not be read and was left out")

    def finish(self) -> None:
        """Write the rows that are gathered from several events."""
        if self._damaged > _TOLD:
            self._notes.append(
                f"{self._process}: {self._damaged - _TOLD:,} more lines could not be read and were "
                "left out"
            )
        if self._facts:
            self._rows["process"].append(
                tables.ProcessRow(
                    process=self._process,
                    pid=integer(self._facts.get("pid")),
                    argv=tuple(str(word) for word in self._facts.get("argv") or ()),
                    python=text(self._facts.get("python")),
                    torch=text(self._facts.get("torch")),
                    torch_xla=text(self._facts.get("torch_xla")),
                    torch_tpu=text(self._facts.get("torch_tpu")),
                    device=text(self._facts.get("device")),
                    simulated_cores=integer(self._facts.get("simulated_cores")),
                    ended=self._ended,
                    since=number(self._facts.get("since")),
                    until=self._until,
                    parent=integer(self._facts.get("ppid")),
                    t=number(self._facts.get("t")),
                    time=fields.moment(self._facts.get("time")),
                )
            )
            if not self._ended:
                self._notes.append(
                    f"process {self._facts.get('pid')} ended without its last record: it was killed"
                    " or left by os._exit"
                )
        for core, iterations, events in self._iterations.at_end():
            if iterations:
                self._cores[core].update(steps=iterations, iterations=True)
                self._notes.append(NO_OPTIMIZER)
                self._number_compilations(core)
            for event in events:
                self._feed(self._add_step, event, self._process)
        for core, facts in sorted(self._cores.items()):
            self._rows["core"].append(tables.CoreRow(self._process, core, **facts))

    def _number_compilations(self, core: int) -> None:
        """Give the compilations of a core whose steps are iterations the numbers of these."""
        rows = self._rows["compilation"]
        for at, iteration in self._compiled_in_iteration.items():
            if rows[at].core == core:
                rows[at] = dataclasses.replace(rows[at], step=iteration)

    def _core(self, event: dict[str, Any]) -> int:
        """The row's core; a process that says none is the one core of itself."""
        core = fields.core(event.get("core"))
        if core not in self._cores and len(self._cores) >= _MOST_CORES:
            raise ValueError(f"a process has no more than {_MOST_CORES} cores")
        self._cores.setdefault(core, {})
        return core

    def _site(self, identity: Any) -> tuple[tables.Frame, ...]:
        return self._sites.get(identity, ())

    def _on_process(self, event: dict[str, Any]) -> None:
        if event.get("version") != VERSION:
            raise SourceError(
                f"this record has form {event.get('version')!r} and this version of xladoctor "
                f"reads form {VERSION}: read it with the version that wrote it"
            )
        self._facts = event

    def _on_site(self, event: dict[str, Any]) -> None:
        self._sites[event["id"]] = tuple(
            (str(file), int(row), str(function)) for file, row, function in event["frames"]
        )

    def _on_core_start(self, event: dict[str, Any]) -> None:
        self._cores.setdefault(self._core(event), {})["started"] = number(event.get("t"))

    def _on_core_end(self, event: dict[str, Any]) -> None:
        self._cores[self._core(event)].update(
            ended=number(event.get("t")),
            steps=integer(event.get("steps")),
            failed=event.get("failed") is True,
        )

    def _on_step(self, event: dict[str, Any]) -> None:
        core = self._core(event)
        rows, began = self._rows["compilation"], number(event.get("t0"))
        for at in self._new_graphs.pop(core, ()):
            rows[at] = dataclasses.replace(rows[at], at=began)
        for settled in self._iterations.settled(core, event):
            self._add_step(settled)

    def _on_typical(self, event: dict[str, Any]) -> None:
        """What a digest says of a core's steps, whose rows it has added up."""
        self._cores[self._core(event)]["typical"] = tables.Typical(
            required(event["seconds"]),
            required(event["own"]),
            round(required(event["steps"])),
            required(event["low"]),
            required(event["high"]),
        )

    def _on_marked(self, event: dict[str, Any]) -> None:
        """The program says itself when a step is over: what came before are no steps."""
        core = self._core(event)
        for kind in ("step", "sync", "fallback", "launch"):
            rows = self._rows[kind]
            for at, row in enumerate(rows):
                if row.core == core and row.process == self._process:
                    rows[at] = dataclasses.replace(row, first=None, last=None)

    def _add_step(self, event: dict[str, Any]) -> None:
        core = self._core(event)
        first, last = integer(event.get("first")), integer(event.get("last"))
        if first is not None and last is not None and not 0 <= last - first < _STEPS_OF_A_ROW:
            raise ValueError(f"steps {first} to {last} are no stretch of steps")
        if first is not None and last is not None:
            self._covered += last - first + 1
            if self._covered > _MOST_STEPS:
                raise ValueError(f"a process takes no more than {_MOST_STEPS} steps")
        place = (self._process, core, first, last)
        transfers = event.get("transfers") or {}
        t0, t1 = required(event["t0"]), required(event["t1"])
        step = tables.StepRow(
            *place,
            t0=t0,
            t1=t1,
            parts=fields.parts(event.get("parts"), t1 - t0),
            to_device=integer(transfers.get("to_device")),
            from_device=integer(transfers.get("from_device")),
            held=self._held(event.get("held")),
            fastest=number(event.get("fastest")),
            slowest=number(event.get("slowest")),
        )
        syncs = [
            tables.SyncRow(
                *place, self._site(site), str(what), round(required(count)), number(seconds),
                integer(compiled), kinds(more), t0,
            )
            for site, what, count, seconds, compiled, *more in event.get("syncs") or ()
        ]  # fmt: skip
        fallbacks = [
            tables.FallbackRow(
                *place, self._site(site), str(what), round(required(count)), number(seconds),
                number(more[0]) if more else None, t0,
            )
            for site, what, count, seconds, *more in event.get("fallbacks") or ()
        ]  # fmt: skip
        launches = [
            tables.LaunchRow(
                *place, self._site(site), str(what), round(required(count)), number(seconds)
            )
            for site, what, count, seconds in event.get("launches") or ()
        ]
        # Only now: a damaged row is left out as a whole.
        self._rows["step"].append(step)
        self._rows["sync"] += syncs
        self._rows["fallback"] += fallbacks
        self._rows["launch"] += launches

    def _on_compilation(self, event: dict[str, Any]) -> None:
        iteration = integer(event.get("iteration"))
        self._rows["compilation"].append(
            tables.CompilationRow(
                process=self._process,
                core=self._core(event),
                step=integer(event.get("step")),
                frames=self._site(event.get("site")),
                trigger=text(event.get("trigger")),
                seconds=number(event.get("seconds")),
                graph=text(event.get("graph")),
                reused=event.get("reused") is True,
                modelled=event.get("modelled") is True,
                executions=integer(event.get("executions")),
                inputs=integer(event.get("inputs")),
                outputs=integer(event.get("outputs")),
                cause=self._cause(event.get("cause")),
                hlo=fields.graph_name(event.get("hlo")),
                named=event["named"] if isinstance(event.get("named"), dict) else None,
                numbers=by_name(event.get("numbers")),
                histories=ranges(event.get("histories")),
                cuts=tuple(self._site(site) for site in event.get("cuts") or ()),
                piece=integer(event.get("piece")),
                fed=self._fed(event.get("fed")),
                feeds_recorded="fed" in event,
            )
        )
        # Only now: a damaged row is left out as a whole.
        at = len(self._rows["compilation"]) - 1
        self._new_graphs.setdefault(self._rows["compilation"][at].core, []).append(at)
        if iteration is not None:
            self._compiled_in_iteration[at] = iteration

    def _on_compilations(self, event: dict[str, Any]) -> None:
        """New graphs beyond those that have a row each: as many rows, all alike."""
        count = round(required(event["count"]))
        if not 0 < count <= _GRAPHS_OF_A_ROW:
            raise ValueError(f"{count} is no number of graphs")
        seconds = number(event.get("seconds"))
        row = tables.CompilationRow(
            process=self._process,
            core=self._core(event),
            step=integer(event.get("step")),
            frames=self._site(event.get("site")),
            trigger=text(event.get("trigger")),
            seconds=None if seconds is None else seconds / count,
            graph=None,
            executions=integer(event.get("executions")),
            cause=Cause("unknown", "after so many new graphs this one was only counted"),
        )
        self._rows["compilation"] += [row] * count

    def _held(self, data: Any) -> tables.Held | None:
        if not isinstance(data, list):
            return None
        steps, site, trigger = data
        return tables.Held(round(required(steps)), self._site(site), str(trigger))

    def _fed(self, data: Any) -> tables.Feed | None:
        if not isinstance(data, dict):
            return None
        return tables.Feed(
            self._site(data.get("made")),
            self._site(data.get("loop")),
            round(required(data.get("batch"))),
            integer(data.get("batches")),
            data.get("over") is True,
        )

    def _cause(self, data: Any) -> Cause | None:
        if not isinstance(data, dict):
            return None
        kind = data.get("kind")
        return Cause(
            kind if kind in CAUSE_KINDS else "unknown",
            text(data.get("detail")) or "",
            location(self._site(data.get("site")), self._cwd),
        )

    def _on_error(self, event: dict[str, Any]) -> None:
        fault = event.get("fault")
        whose, verdict = fault if isinstance(fault, list) and len(fault) == 2 else (None, None)
        self._rows["error"].append(
            tables.ErrorRow(
                self._process, integer(event.get("core")), integer(event.get("step")),
                text(event.get("type")) or "exception", text(event.get("message")) or "",
                text(event.get("traceback")) or "", self._site(event.get("site")),
                event.get("feeding") is True, text(whose), text(verdict),
            )
        )  # fmt: skip

    def _on_hang(self, event: dict[str, Any]) -> None:
        self._rows["hang"].append(
            tables.HangRow(
                self._process, integer(event.get("core")), number(event.get("t")),
                self._site(event.get("site")), text(event.get("state")),
                text(event.get("waits_for")), integers(event.get("for_cores")),
                integer(event.get("steps")), self._fed(event.get("fed")),
                event.get("again") is True,
            )
        )  # fmt: skip

    def _on_divergence(self, event: dict[str, Any]) -> None:
        self._rows["divergence"].append(
            tables.DivergenceRow(
                self._process,
                integer(event.get("core")),
                text(event.get("message")) or "",
                integers(event.get("cores")),
                integer(event.get("step")),
                self._site(event.get("site")),
                self._site(event.get("cause_site")),
                text(event.get("kind")) or "graphs",
                text(event.get("what")),
                tuple(integers(group) for group in _list(event.get("groups"))),
                tuple(
                    tuple(_extra(one) for one in _list(extras) if isinstance(one, dict))
                    for extras in _list(event.get("differs"))
                ),
                text(event.get("difference")) or "",
            )
        )

    def _on_weights_diverge(self, event: dict[str, Any]) -> None:
        self._rows["weights-diverge"].append(
            tables.WeightDivergenceRow(
                self._process,
                text(event.get("message")) or "",
                text(event.get("suggestion")) or "",
                integers(event.get("cores")),
                integer(event.get("step")),
                self._site(event.get("site")),
                self._site(event.get("cause_site")),
            )
        )

    def _on_silent(self, event: dict[str, Any]) -> None:
        known = {"e", "t", "check", "core", "step", "site", "cause_site"}
        self._rows["silent"].append(
            tables.SilentRow(
                self._process,
                integer(event.get("core")),
                integer(event.get("step")),
                text(event.get("check")) or "",
                self._site(event.get("site")),
                {key: value for key, value in event.items() if key not in known},
            )
        )

    def _on_sharding(self, event: dict[str, Any]) -> None:
        self._rows["sharding"].append(sharding_row(self._process, event, self._site))

    def _on_spmd_call(self, event: dict[str, Any]) -> None:
        what, frames = text(event.get("what")) or "", self._site(event.get("site"))
        self._rows["spmd-call"].append(CallRow(self._process, 0, what, frames))

    def _on_mesh_refused(self, event: dict[str, Any]) -> None:
        self._rows["mesh-refused"].append(
            MeshRow(
                self._process,
                integer(event.get("devices")) or 0,
                integer(event.get("ids")),
                integer(event.get("places")),
                text(event.get("error")) or "",
                self._site(event.get("site")),
            )
        )

    def _on_device_cache(self, event: dict[str, Any]) -> None:
        counts = (integer(event.get(name)) for name in ("requests", "hits", "compilations"))
        self._rows["device-cache"].append(tables.DeviceCacheRow(self._process, *counts))

    def _on_hook_off(self, event: dict[str, Any]) -> None:
        self._notes.append(
            f"not measured from there on: {event.get('hook')} ({event.get('error')})"
        )

    def _on_note(self, event: dict[str, Any]) -> None:
        self._notes.append(str(event["text"]))

    def _on_exit(self, event: dict[str, Any]) -> None:
        self._rows["exit"].append(
            tables.ExitRow(
                self._process, integer(event.get("core")), integer(event.get("code")),
                self._site(event.get("site")),
            )
        )  # fmt: skip

    def _on_end(self, event: dict[str, Any]) -> None:
        self._ended = True
        self._until = number(event.get("t"))


def _list(value: Any) -> list[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def _extra(one: dict[str, Any]) -> tables.Extra:
    return tables.Extra(
        text(one.get("operation")) or "",
        text(one.get("shape")) or "",
        text(one.get("value")),
        text(one.get("place")),
    )
