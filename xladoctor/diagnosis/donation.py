"""XLA711 graph-needs-memory, from metrics: parameters are not given back to the graph.

A report does not print the number of parameters. But optimizers of Adam's kind (Adam, AdamW,
Adamax, Adagrad, RMSprop) run one ``addcdiv`` for each parameter and step, whose result must leave
the graph as the new parameter. If as many tensors do leave it and next to none takes the memory of
an input, old and new parameters are held at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.diagnosis.pasted import State
    from xladoctor.findings import Finding


def find(case: Case) -> Iterator[Finding]:
    """At most one. The simulation of cores turns donation off, so it is not judged."""
    simulated = case.run is not None and any(run.manifest.simulated_cores for run in case.run.runs)
    for state in case.states:
        if state.live and simulated:
            continue
        updated, donated = updated_parameters(state), donated_inputs(state)
        if updated is None or donated is None or donated >= limits.DONATED_SHARE * updated:
            continue
        yield finding(
            "XLA711",
            f"each step updates about {updated:,.0f} parameters, but no graph gives the memory of "
            f"more than {donated:,.0f} inputs to its outputs (InputOutputAliasCount): old and new "
            "parameters are held at once",
            "update parameters in place, as torch's optimizers do (no param.data = new tensor), "
            "end the step after optimizer.step(), and leave XLA_ENABLE_PARAM_ALIASING alone",
            by=state.by,
        )
        return


def updated_parameters(state: State) -> float | None:
    """Parameters that a step updates; None unless two numbers of the report agree on it."""
    updates = state.counter("xla::addcdiv", "xla::addcdiv_")
    created = state.counter("CreateDataHandles")
    steps, executions = state.steps, state.executions
    if updates is None or created is None or not steps or not executions:
        return None
    if steps < limits.FEWEST_SAMPLES or state.too_early:
        return None
    updated = updates / steps
    if updated < limits.MANY_PARAMETERS or created / executions < updated:
        return None
    return updated


def donated_inputs(state: State) -> float | None:
    """The most inputs that a compiled graph gives to its outputs (at most, for many graphs)."""
    metric = state.metric("InputOutputAliasCount")
    if metric is None or metric.total_samples is None:
        return None
    if metric.total_samples > limits.PERCENTILE_IS_LARGEST or "99" not in metric.percentiles:
        return metric.accumulator
    return metric.percentiles["99"]
