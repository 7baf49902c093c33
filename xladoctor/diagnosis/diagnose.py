"""From readings to a report: count, ask every diagnosis, sort by cost, give the verdict."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shlex
from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.diagnosis import (
    compile_cache,
    compile_time,
    constants,
    core_reports,
    cores,
    deaths,
    debug_lines,
    device_idle,
    device_logs,
    device_words,
    donation,
    dynamic_shapes,
    dynamo,
    eager,
    empty_steps,
    fallbacks,
    graph_memory,
    host_sync,
    input_pipeline,
    kept_tensors,
    lagging,
    memory,
    on_tpu,
    recompilation,
    sharding,
    silent,
    site_counts,
    split_step,
    step_boundary,
    tracing,
)
from xladoctor.diagnosis.alike import alike
from xladoctor.diagnosis.along import timeline
from xladoctor.diagnosis.case import PARTS, Case, RunFacts
from xladoctor.diagnosis.executed import marked
from xladoctor.diagnosis.hosts import on_hosts
from xladoctor.diagnosis.pasted import pasted
from xladoctor.diagnosis.process_chain import without_earlier_iterations
from xladoctor.diagnosis.ranking import ranked
from xladoctor.diagnosis.verdict import conclusive, verdict
from xladoctor.findings import merge
from xladoctor.results import Report, Summary, TimeParts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.costs import TargetCost
    from xladoctor.diagnosis.pasted import Pasted
    from xladoctor.diagnosis.text_answers import Answer
    from xladoctor.findings import Finding
    from xladoctor.readings.tables import Manifest, Readings

_DIAGNOSES = (
    cores.find,
    deaths.find,
    core_reports.find,
    lagging.find,
    silent.find,
    sharding.find,
    step_boundary.find,
    empty_steps.find,
    eager.find,
    recompilation.find,
    dynamic_shapes.find,
    dynamo.find,
    compile_time.find,
    compile_cache.find,
    host_sync.find,
    split_step.find,
    fallbacks.find,
    debug_lines.find,
    device_logs.find,
    constants.find,
    input_pipeline.find,
    device_idle.find,
    tracing.find,
    memory.find,
    kept_tensors.find,
    graph_memory.find,
    donation.find,
)


def diagnose(
    readings: Readings,
    *,
    static_findings: Iterable[Finding] = (),
    tpu: tuple[TargetCost, ...] | None = None,
    notes: Iterable[str] = (),
) -> Report:
    """Say what is wrong with a run, where, why and what it costs.

    Args:
        readings: What :func:`xladoctor.readings.load` gave.
        static_findings: Findings of the linter on the run's sources, besides those that the run
            directory has kept, with file names relative to where the command ran; all of them are
            joined with what was measured.
        tpu: What the run would cost on TPU targets; findings of the first are among the others.
        notes: Sentences for the report, besides its own.
    """
    readings = without_earlier_iterations(readings)
    case = Case(
        run=RunFacts(readings.runs) if readings.runs else None,
        pasted=pasted(readings),
    )
    measured = [found for find in _DIAGNOSES for found in find(case)]
    if tpu:
        fed = input_pipeline.loader(case.run) if case.run is not None else []
        measured = on_tpu.joined(measured, tpu, fed)
    static = dict.fromkeys(found for run in readings.runs for found in run.linted or ())
    joined = merge([*static_findings, *static], measured, catalogue.same_problems())
    steps = case.run.step_count if case.run else 0
    joined = on_hosts(joined, case.run)
    joined = eager.settled(joined, case)
    findings = ranked(marked(joined, case.run), on_tpu.tpu_cost(steps), checked=_simulated(case))
    if case.run is not None:
        findings = [device_words.of_member(one, case.run.member) for one in findings]
    metrics = [report for run in readings.runs for report in run.metrics]
    report = Report(
        summary=_summary(case, findings),
        cores=case.run.core_summaries if case.run else (),
        compilations=case.run.compilations if case.run else (),
        metrics=(*metrics, *readings.reports),
        findings=tuple(findings),
        about=_about(case, readings),
        notes=(*_notes(case, readings), *notes, *on_tpu.order(tpu or (), steps)),
        reads=site_counts.reads(case.run) if case.run else (),
        fallbacks=site_counts.fallbacks(case.run) if case.run else (),
        simulated=_simulated(case),
        tpu=tpu,
        sharding=case.run.sharding if case.run else None,
        timeline=timeline(case.run) if case.run else None,
        alike=alike(case.run) if case.run else (),
    )
    shown = case.run.steps_to_show(frozenset(report.drawn)) if case.run else {}
    return dataclasses.replace(report, steps=shown)


def _summary(case: Case, findings: list[Finding]) -> Summary:
    answer = verdict(case, findings)
    sure = conclusive(case, findings, answer)
    if case.run is not None:
        run = case.run
        return Summary(
            *_told(answer, run.member),
            cores=len(run.cores),
            steps=run.step_count,
            compilations=run.compilation_count,
            compilations_after_warmup=run.after_warmup_count,
            fallbacks=run.fallback_counts,
            host_syncs=run.sync_count,
            seconds=run.time,
            within_other=run.within_other,
            conclusive=sure,
        )
    assert case.pasted is not None
    return dataclasses.replace(_summary_of_text(answer, case.pasted), conclusive=sure)


def _told(answer: Answer, member: str) -> Answer:
    found, why, following = (device_words.said(text, member) for text in answer)
    return found, why, following


def _summary_of_text(answer: tuple[str, str, str], text: Pasted) -> Summary:
    state = text.main
    if state is None:
        return _summary_of_logs(answer, text)
    fallbacks: dict[str, int] = {}
    for each in text.states:
        for operation, count in each.fallbacks.items():
            fallbacks[operation] = fallbacks.get(operation, 0) + count
    # Counters are sorted: with some before and some after "aten::" the report was not cut there.
    whole = any(n < "aten" for n in state.counters) and any(n > "aten:;" for n in state.counters)
    reads = [each.reads for each in text.states if each.reads is not None]
    reads = reads or [each.scalar_reads for each in text.states if each.scalar_reads is not None]
    return Summary(
        *answer,
        cores=len(text.states) if len(text.states) > 1 else None,
        steps=max((s.steps for s in text.states if s.steps is not None), default=None),
        compilations=max(
            (s.new_graphs for s in text.states if s.new_graphs is not None), default=None
        ),
        fallbacks=fallbacks if fallbacks or whole else None,
        host_syncs=sum(reads) if reads else None,
        seconds=TimeParts(compile=state.seconds("CompileTime"), execute=state.execute_seconds),
    )


def _summary_of_logs(answer: tuple[str, str, str], text: Pasted) -> Summary:
    """Of what TorchTPU logs: each process tells its compilations when it ends."""
    fallbacks: dict[str, int] = {}
    for log in text.devices:
        for operation, count in log.fallbacks.items():
            fallbacks[operation] = fallbacks.get(operation, 0) + count
    compilations = [count for log in text.devices for count in log.compilations]
    return Summary(
        *answer,
        compilations=max(compilations, default=None),
        fallbacks=fallbacks if any(log.tells_fallbacks for log in text.devices) else None,
    )


def _about(case: Case, readings: Readings) -> dict[str, str]:
    if case.run is None:
        about = {"Sources": ", ".join(readings.sources)}
        if readings.reports:
            about["Metrics reports"] = str(len(readings.reports))
        cached = [text for log in readings.devices if (text := device_logs.cache_text(log))]
        if cached:
            about["Compilation cache"] = "; ".join(cached)
        return about
    manifest = case.run.runs[0].manifest
    about = {}
    if manifest.command:
        about["Command"] = shlex.join(manifest.command)
    about["Run"] = ", ".join(readings.shown or [run.manifest.path for run in case.run.runs])
    if manifest.started is not None:
        started = dt.datetime.fromtimestamp(manifest.started, tz=dt.timezone.utc)
        about["Started"] = f"{started:%Y-%m-%d %H:%M:%S} UTC"
    processes = [row for run in case.run.runs for row in run.processes]
    versions = {"xladoctor": manifest.xladoctor}
    if processes:
        first = processes[0]
        versions |= {"torch": first.torch, "torch_xla": first.torch_xla}
        versions |= {"torch_tpu": first.torch_tpu, "Python": first.python}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    if known:
        about["Versions"] = ", ".join(known)
    devices = sorted({row.device for row in processes if row.device})
    if manifest.simulated_cores:
        about["Device"] = f"{manifest.simulated_cores} simulated cores on the CPU"
    elif devices:
        about["Device"] = ", ".join(devices)
    caches = [row for run in case.run.runs for row in run.device_caches]
    about |= {"Compilation cache": device_logs.counts_text(caches), "Ended": _ended(manifest)}
    return {name: text for name, text in about.items() if text}


def _ended(manifest: Manifest) -> str:
    if manifest.signal:
        return f"by {manifest.signal}"
    return f"with exit code {manifest.exit_code}" if manifest.exit_code else ""


def _simulated(case: Case) -> bool:
    return case.run is not None and any(run.manifest.simulated_cores for run in case.run.runs)


def _shared_cpu(run: RunFacts) -> str:
    if len(run.cores) < 2:
        return ""
    hidden = " (that is in 'other')" if run.within_other is None else ""
    return f" The cores share this CPU, and so wait for one another more than devices do{hidden}."


def _notes(case: Case, readings: Readings) -> list[str]:
    notes = list(readings.notes)
    if case.run is not None:
        if _simulated(case):
            notes.append(
                "These cores are simulated on the CPU: counts are those of a real device, seconds "
                "are not." + _shared_cpu(case.run)
            )
        if case.run.sharding is not None and case.run.sharding.devices == 1:
            notes.append(
                "SPMD is on with one device: it holds and computes everything, so nothing about "
                "shardings can be told here. --simulate-cores 8 runs it on eight."
            )
        elif case.run.sharding is not None and all(
            len(run.processes) == 1 for run in case.run.runs
        ):
            notes.append(
                "One host drove all devices, and what several would do otherwise is not in this "
                "run: a batch that is sharded without minibatch=True is then that of the first "
                "host (XLA447), sharded tensors are read by all hosts or by none (XLA425), and "
                "each is a master (XLA428). 'xladoctor lint' looks for these."
            )
        if any(item.modelled for item in case.run.compilations):
            notes.append(
                "xm.rendezvous and xm.mesh_reduce compile graphs on a real device; simulated cores "
                "exchange in memory, so these compilations are counted and have no duration."
            )
        if all(run.linted is None for run in case.run.runs) and case.run.cores:
            notes.append(
                "This run was recorded without the linter: what reading the code shows is not "
                "among the findings; 'xladoctor lint' says it."
            )
        missing = [part for part in PARTS if getattr(case.run.time, part) is None]
        if not case.run.steps:
            notes.append("No step was completed, so the time is not divided into parts.")
        elif missing:
            names = ", ".join(part.replace("_", " ") for part in missing)
            notes.append(f"Not measured: time spent in {names}.")
    return notes
