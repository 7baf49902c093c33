"""XLA411: processes that were killed, crashed, or left by ``os._exit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis.words import cores_text, finding, plural
from xladoctor.readings.deaths import BROKEN_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.diagnosis.text_answers import Answer
    from xladoctor.findings import Finding
    from xladoctor.readings.tables import DeathRow

#: How a process ends that nobody in the program has ended, and what that mostly means.
_DEATHS = {
    "SIGKILL": ("was killed", " (out of memory?)"),
    "SIGABRT": ("was aborted", ", mostly by the XLA runtime"),
    "SIGSEGV": ("crashed", " (SIGSEGV)"),
    "SIGBUS": ("crashed", " (SIGBUS: is /dev/shm full?)"),
    "SIGFPE": ("crashed", " (SIGFPE)"),
    "SIGILL": ("crashed", " (SIGILL: code for another processor?)"),
}
_UNKNOWN = ("ended without a word", " (killed, by SIGKILL or SIGTERM? out of memory?)")
_BY_CODE = {134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV"}

_MEMORY = "look at the system's log for the out-of-memory killer; a smaller batch needs less memory"
_FEWER_CORES = ", and so do fewer simulated cores"
_CRASH = (
    "read its last words on stderr, and stacks.txt in the run directory: it has the stacks of all "
    "threads"
)
_ABORT = (
    "let all cores reach the same collectives: XLA aborts when some wait for the others for 10 "
    'seconds ("Termination timeout" on stderr); if it says another thing there, see stacks.txt in '
    "the run directory"
)
_LEFT = (
    "let the cores return, or raise; os._exit ends all of them at once, and what is done at the "
    "end of a program is not done"
)


def find(case: Case) -> Iterator[Finding]:
    """One finding for each process that died."""
    run = case.run
    for row in run.deaths if run is not None else ():
        assert run is not None
        how, guess = _words(row)
        when = f" after step {row.step}" if row.step else " before its first step ended"
        signal = f" by {row.reason}" if how == "was killed" else ""
        if row.reason == "SIGABRT":
            signal = " (SIGABRT)"
        yield finding(
            "XLA411",
            f"{_who(row, run)} {how}{signal}{when}{guess}",
            _advice(row, run),
            at=run.place(row.frames),
            cores=row.cores,
        )


def answer(run: RunFacts, findings: Sequence[Finding]) -> Answer | None:
    """Verdict, why and next for a run of which a process died; None if none did."""
    if any(row.type not in BROKEN_POOL for row in run.errors):
        return None
    others = [item for item in findings if item.code != "XLA411"]
    more = f" {plural(len(others), 'finding')} below." if others else ""
    fewest = min(run.steps_by_core.values(), default=0)
    many = "" if fewest == run.step_count else f"{fewest} to "
    recorded = f"{many}{plural(run.step_count, run.step_word)} per core had been recorded by then."
    if run.deaths:
        row = run.deaths[-1]
        how, guess = _words(row)
        who, advice = _who(row, run), _advice(row, run)
        place = run.place(row.frames)
        where = f"It was at {place.filename}:{place.row}. " if place is not None else ""
    else:
        manifest = run.runs[0].manifest
        signal = manifest.signal or _BY_CODE.get(manifest.exit_code or 0)
        if signal not in _DEATHS:
            return None
        how, guess = _DEATHS[signal]
        who, where = "the command", ""
        advice = _memory(run) if signal == "SIGKILL" else _CRASH
    return (
        f"The run ended early: {who} {how}{guess}.{more}",
        where + recorded,
        f"{advice[:1].upper()}{advice[1:]}.",
    )


def _words(row: DeathRow) -> tuple[str, str]:
    if row.reason == "os._exit":
        return f"left by os._exit({row.code})", ""
    return _DEATHS.get(row.reason or "", _UNKNOWN)


def _memory(run: RunFacts) -> str:
    simulated = any(one.manifest.simulated_cores for one in run.runs)
    return _MEMORY + (_FEWER_CORES if simulated else "")


def _advice(row: DeathRow, run: RunFacts) -> str:
    if row.reason == "os._exit":
        return _LEFT
    if row.standing:
        return _ABORT
    return _memory(run) if row.reason in (None, "SIGKILL") else _CRASH


def _who(row: DeathRow, run: RunFacts) -> str:
    if row.core is not None and len(row.cores) > 1:
        return f"core {row.core} of process {row.pid}"
    if len(run.cores) > 1 and row.cores:
        return f"process {row.pid} ({cores_text(row.cores, run.cores)})"
    return f"process {row.pid}"
