"""Training that is wrong without an error, as the checks of a simulated run have seen it.

XLA303 norms that differ from core to core, XLA305 an optimizer of weights that the model no longer
has, XLA316 a parameter without gradient, XLA317 labels or indices out of range, XLA318 writes to
expanded memory, XLA322 results that are not PyTorch's, XLA402 loaders that give every core the same
samples, XLA433 a collective that cuts the gradient off, XLA434 equal random numbers, XLA435
statistics that differ from core to core, XLA436 and XLA437 a sharded model that is clipped or saved
as if each core had all of it, XLA448 samples that are shared out wrongly, XLA732 weights that
updates are too small to move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor import catalogue
from xladoctor.diagnosis.words import cores_text, finding, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xladoctor.diagnosis.case import Case, RunFacts
    from xladoctor.findings import Finding, Location
    from xladoctor.readings.tables import SilentRow

_DIFFERENTIABLE = (
    "use the function of the same name in torch_xla.core.functions, which has a gradient "
    "(if the loss is the same on all cores, multiply it by xr.world_size())"
)
_INPUT_REQUIRES_GRAD = (
    "let the block's input require grad: h.requires_grad_() before the call "
    "(transformers: model.enable_input_require_grads())"
)
_WHY_NO_GRADIENT = (
    "look for a detach(), .data, torch.no_grad() or an integer between this layer and the loss; "
    "set requires_grad to False if it is not to be trained"
)
_IN_RANGE = (
    "XLA clamps or drops what is out of range and raises nothing: check it on the host, "
    "before the batch is sent to the device"
)
_OWN_SEED = (
    "seed the device of each core differently once the weights are equal: "
    "torch_xla.manual_seed(seed + xr.global_ordinal())"
)
_OWN_SEED_ON_HOST = (
    "once the weights are made, seed what the samples are drawn with by the core's number: "
    "{seed}(seed + xr.global_ordinal())"
)
_REDUCE_BUFFERS = (
    "use torch_xla.core.functions.SyncBatchNorm, or average the buffers over the cores before "
    "evaluating and saving"
)
_OWN_CLIP = "call the wrapper's own method, which reduces the norm: model.clip_grad_norm_(max_norm)"
_MOVE_FIRST = (
    "move the model to the device (and wrap it) first, then make the optimizer of its parameters"
)
_FLOAT32_WEIGHTS = (
    'keep the weights in float32 and compute in bfloat16: torch.autocast("xla", '
    "dtype=torch.bfloat16), without model.to(torch.bfloat16)"
)
_SHARE_OUT = (
    "give it sampler=DistributedSampler(dataset, num_replicas=xr.world_size(), "
    "rank=xr.global_ordinal())"
)
_REDUCE_FIRST = "xm.reduce_gradients(optimizer), then clip, then the plain optimizer.step()"
_OF_THE_CORES = "num_replicas=xr.world_size(), rank=xr.global_ordinal()"
_WEIGHT_OUT = (
    "leave the last samples of the last cores out of the sums (Accelerate's gather_for_metrics "
    "does), or take a number of samples that the cores divide"
)
_EVERY_SHARD = (
    "save on every core, with master_only=False, the core's number in the path and "
    "model.get_shard_metadata() beside the state dict"
)


#: What seeds a generator of the host.
_SEEDS = {"numpy.random": "numpy.random.seed", "random": "random.seed"}


def find(case: Case) -> Iterator[Finding]:
    """One finding for each check and line, with the cores that saw it."""
    if case.run is None or not case.run.silent:
        return
    run = case.run
    groups: dict[tuple[str, Location | None], list[SilentRow]] = {}
    for row in run.silent:
        groups.setdefault((row.check, run.place(row.frames)), []).append(row)
    cut = [rows for (check, _), rows in groups.items() if check == "gradient-cut"]
    without = [rows for (check, _), rows in groups.items() if check == "no-gradient"]
    for (check, place), rows in groups.items():
        if check == "gradient-cut":
            yield _cut(run, place, rows, without)
        elif check == "no-gradient" and not cut:
            yield _without(place, rows)
        elif check == "draws":
            yield from _equal_draws(run, place, rows)
        elif check == "sample-draws":
            yield from _equal_augmentation(run, place, rows)
        elif check == "buffers" and not run.weight_divergences:
            yield _statistics(rows)
        elif check in _PLAIN:
            yield _PLAIN[check](run, place, rows)


def _cores(rows: list[SilentRow]) -> list[int]:
    return [row.core for row in rows if row.core is not None]


def _first_step(rows: list[SilentRow]) -> int:
    return min((row.step for row in rows if row.step is not None), default=1)


def _number(row: SilentRow, name: str) -> int:
    value = row.facts.get(name)
    return value if isinstance(value, int) else 0


def _names(rows: list[SilentRow]) -> tuple[str, int]:
    """The parameters as words, and how many there are."""
    count = max(_number(row, "count") for row in rows)
    named = next((row.facts["parameters"] for row in rows if row.facts.get("parameters")), [])
    shown = [str(name) for name in named] if isinstance(named, list) else []
    words = ", ".join([*shown[:1], *(one.removeprefix("parameter ") for one in shown[1:])])
    more = count - len(shown)
    return words + (f" and {more} more" if more > 0 else ""), count


def _cut(
    run: RunFacts, place: Location | None, rows: list[SilentRow], without: list[list[SilentRow]]
) -> Finding:
    name = rows[0].facts.get("operation")
    told = [row for one in without for row in one]
    left_out = f": no gradient reaches {_names(told)[0]}" if told else ""
    return finding(
        "XLA433",
        f"xm.{name} has no gradient on several cores, so backward() stops here{left_out} "
        f"(first in step {_first_step(rows)}); on one core it is right",
        _DIFFERENTIABLE,
        at=place,
        cores=_cores(rows),
        related=[at for at in (run.place(row.frames) for row in told[:1]) if at is not None],
    )


def _without(place: Location | None, rows: list[SilentRow]) -> Finding:
    names, count = _names(rows)
    verb = "gets" if count == 1 else "get"
    if any(row.facts.get("checkpoint") for row in rows):
        return finding(
            "XLA316",
            "none of the inputs of this checkpointed block requires grad, so nothing in it is "
            f"trained ({names} {verb} no gradient)",
            _INPUT_REQUIRES_GRAD,
            at=place,
            cores=_cores(rows),
        )
    return finding(
        "XLA316",
        f"{names} {verb} no gradient in the first {plural(_first_step(rows), 'step')}, "
        "although the layer runs",
        _WHY_NO_GRADIENT,
        at=place,
        cores=_cores(rows),
        certain=False,
    )


def _stale(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    names, count = _names(rows)
    return finding(
        "XLA305",
        f"this optimizer holds weights that get no gradient, and {names} "
        f"{'gets one' if count == 1 else 'get one'} and {'is' if count == 1 else 'are'} in no "
        "optimizer: nothing is trained",
        _MOVE_FIRST,
        at=place,
        cores=_cores(rows),
    )


def _lost_updates(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    names, _ = _names(rows)
    share = max(float(str(row.facts.get("share", 0.0))) for row in rows)
    return finding(
        "XLA732",
        f"{share:.0%} of the {rows[0].facts.get('dtype')} weights did not move in "
        f"{plural(_number(rows[0], 'over'), 'step')} ({names}): the updates are smaller than half "
        "the distance to the next number",
        _FLOAT32_WEIGHTS,
        at=place,
        cores=_cores(rows),
    )


def _out_of_range(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    least = min(_number(row, "least") for row in rows)
    most = max(_number(row, "most") for row in rows)
    size = _number(rows[0], "size")
    what, of = ("labels", "classes") if rows[0].check == "labels" else ("indices", "rows")
    return finding(
        "XLA317",
        f"{what} from {least} to {most} for {size} {of}: what is outside 0 to {size - 1} is "
        f"accepted on XLA and gives another result (first in step {_first_step(rows)}, on "
        f"{cores_text(_cores(rows), run.cores)})",
        _IN_RANGE,
        at=place,
        cores=_cores(rows),
    )


def _equal_draws(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Iterator[Finding]:
    """Only if every core of the run drew at this line, with the same seeds in the same steps."""
    seeds = [row.facts.get("seeds") for row in rows]
    if len(set(_cores(rows))) < max(2, len(run.cores)) or any(one != seeds[0] for one in seeds):
        return
    name = str(rows[0].facts.get("operation"))
    masks = "dropout" in name or "attention" in name
    yield finding(
        "XLA434",
        f"{name} draws the same random numbers on {cores_text(_cores(rows), run.cores)}: "
        + ("every core drops the same places" if masks else "every core gets the same values"),
        _OWN_SEED,
        at=place,
        cores=_cores(rows),
        certain=not masks,
    )


def _equal_augmentation(
    run: RunFacts, place: Location | None, rows: list[SilentRow]
) -> Iterator[Finding]:
    """Only if the generator stood alike on every core before its first batches that drew."""
    by_name: dict[tuple[str, str], list[SilentRow]] = {}
    for row in rows:
        key = str(row.facts.get("operation")), str(row.facts.get("dataset"))
        by_name.setdefault(key, []).append(row)
    for (name, dataset), alike in by_name.items():
        seeds = [row.facts.get("seeds") for row in alike]
        if len(set(_cores(alike))) < max(2, len(run.cores)) or any(x != seeds[0] for x in seeds):
            continue
        yield finding(
            "XLA434",
            f"{cores_text(_cores(alike), run.cores)} draw the same random numbers ({name}) for the "
            f"samples of {dataset}: each does the same to its own",
            _OWN_SEED_ON_HOST.format(seed=_SEEDS.get(name, "torch.manual_seed")),
            at=place,
            cores=_cores(alike),
            certain=False,
        )


def _same_samples(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    """Work that all cores do alike: an error where they train, information where they evaluate."""
    row = rows[0]
    trains = bool(row.facts.get("stepped"))
    cores = cores_text(run.cores, run.cores)
    how = (
        f"its first {_number(row, 'batches')} batches are equal"
        if row.facts.get("order")
        else "each in its own order"
    )
    what = (
        "so they train on it alike, and an epoch takes as many times longer as there are cores"
        if trains
        else "and no optimizer steps on it: an evaluation that each of them makes as a whole"
    )
    return finding(
        "XLA402",
        f"{cores} get the same samples from this loader ({how}), {what}",
        _SHARE_OUT,
        at=place,
        cores=run.cores,
        certain=trains and not row.facts.get("streams"),
    )


def _statistics(rows: list[SilentRow]) -> Finding:
    facts = rows[0].facts
    difference = facts.get("difference")
    amount = f" by up to {difference:.2g}" if isinstance(difference, float) else ""
    return finding(
        "XLA435",
        f"{plural(_number(rows[0], 'count'), 'buffer')} of BatchNorm "
        f"{'differs' if _number(rows[0], 'count') == 1 else 'differ'} between the cores although "
        f"the weights agree ({facts.get('buffer')}{amount} after step {_first_step(rows) - 1}): "
        "an evaluation gives each core another result, and a checkpoint holds those of one",
        _REDUCE_BUFFERS,
    )


def _other_norms(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    facts = rows[0].facts
    least, most = (float(str(facts.get(name, 0.0))) for name in ("least", "most"))
    return finding(
        "XLA303",
        f"clip_grad_norm_ returned {least:.4g} on one core and {most:.4g} on another (step "
        f"{_number(rows[0], 'at')}): each core clips its own gradients, before they are reduced",
        _REDUCE_FIRST,
        at=place,
    )


def _shared_out_wrongly(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    row = rows[0]
    twice, never, length = (_number(row, name) for name in ("twice", "never", "length"))
    said = [f"{plural(never, 'sample')} of {length} to nobody"] if never else []
    said += [f"{plural(twice, 'sample')} more than once"] if twice else []
    return finding(
        "XLA448",
        f"the samplers of {cores_text(run.cores, run.cores)} give {' and '.join(said)} in an epoch",
        _OF_THE_CORES,
        at=place,
        cores=run.cores,
    )


def _counted_twice(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    twice, length = (_number(rows[0], name) for name in ("twice", "length"))
    return finding(
        "XLA448",
        f"to give {cores_text(run.cores, run.cores)} as many samples each, the sampler repeats "
        f"{twice} of {length} in an evaluation: a metric over the cores counts "
        f"{'it' if twice == 1 else 'them'} twice",
        _WEIGHT_OUT,
        at=place,
        cores=run.cores,
        certain=False,
    )


def _different(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    """The words are those of the table of differences, as the linter's."""
    table = catalogue.table("differences")
    name = rows[0].facts.get("operation")
    known = next(row for row in table["difference"] if name in row.get("calls", ()))
    version = str(table["torch_xla"]).rpartition(".")[0]
    return finding(
        "XLA322",
        f"{known['why']} (measured on torch_xla {version})",
        str(known["write"]),
        at=place,
        cores=_cores(rows),
    )


def _expanded_write(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    times = _number(rows[0], "times")
    return finding(
        "XLA318",
        f"{rows[0].facts.get('operation')} writes to one piece of memory seen {times} times: torch "
        "refuses this write, XLA applies it once for each repetition",
        ".clone() behind expand, before writing",
        at=place,
        cores=_cores(rows),
    )


def _sharded_clip(_run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    return finding(
        "XLA436",
        "clip_grad_norm_ sees one core's shard of the gradients, so every core clips by another "
        "norm",
        _OWN_CLIP,
        at=place,
        cores=_cores(rows),
    )


def _sharded_save(run: RunFacts, place: Location | None, rows: list[SilentRow]) -> Finding:
    return finding(
        "XLA437",
        "xm.save writes the shard of the master core alone: "
        f"{cores_text(run.cores, run.cores)} hold the model",
        _EVERY_SHARD,
        at=place,
        cores=_cores(rows),
    )


#: The checks whose rows are one finding, whatever the others have seen.
_PLAIN: dict[str, Callable[[RunFacts, Location | None, list[SilentRow]], Finding]] = {
    "embedding": _out_of_range,
    "labels": _out_of_range,
    "batches": _same_samples,
    "stale-optimizer": _stale,
    "updates": _lost_updates,
    "difference": _different,
    "expanded-write": _expanded_write,
    "samples": _shared_out_wrongly,
    "padded": _counted_twice,
    "norms": _other_norms,
    "sharded-clip": _sharded_clip,
    "sharded-save": _sharded_save,
}
