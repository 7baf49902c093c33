"""Whether the cores still train one model: their optimizers' parameters are compared.

After a step has been launched every core hands in its parameters; the first to come is what the
others are compared with, bit by bit, in memory that torch and the runtime share (nothing is
transferred, so no counter of the program moves). Cores of a healthy program run the same update on
the same numbers and stay equal to the last bit. Differences below 1e-6 of the largest value are
left alone. Every step is looked at while that costs less than 2 % of the time, the first ones
always.

Programs may differ on purpose: see :func:`xladoctor.cores_differ_on_purpose`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ..agent import optimizers, xla
from ..agent.points import COLLECTIVE, LAUNCH, STEP, Call
from . import reductions
from .divergence import odd_ones
from .owners import differs_on_purpose, name_of
from .places import Place, user_frame
from .sketches import Sketches
from .wording import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cores import Core, CoreGroup
    from .pod import Pod
    from .running import Running

#: Set (to anything but "0") by programs whose cores differ on purpose.
SILENT = "XLADOCTOR_CORES_DIFFER"
#: The first steps are always compared, later ones while it costs less than this share of the time.
ALWAYS, SHARE = 4, 0.02
#: Steps before which the gradients' reduction is looked at.
LOOKED_AT = 3
#: Comparisons that may be open at once; more only arise when the cores never wait for each other.
OPEN = 8
#: Share of a parameter's largest value that is no difference.
TOLERANCE = 1e-6


@dataclasses.dataclass(slots=True)
class Stepped:
    """What one core knows of one of its optimizers.

    Attributes:
        optimizer: A weak reference.
        index: The same on all cores: its number in the order of their first steps.
        steps: How often it has stepped.
        fresh: Whether it has stepped since the last comparison.
        seen: What became of the gradients' reduction before its first steps, by their number.
        place: Where the program stepped it.
    """

    optimizer: Any
    index: int
    steps: int = 0
    fresh: bool = False
    seen: dict[int, reductions.Reduction] = dataclasses.field(default_factory=dict)
    place: Place | None = None

    def reduction(self, step: int) -> reductions.Reduction:
        """What became of the reduction before a step, as far as it was looked at."""
        return self.seen.get(step, reductions.Reduction())


@dataclasses.dataclass(slots=True)
class Comparison:
    """One optimizer after one step: what each core has brought.

    Attributes:
        reference: The parameters of the core that came first.
        first: That core.
        others: Core to its parameters if they differ, else to None.
    """

    reference: list[Any]
    first: int
    others: dict[int, list[Any] | None] = dataclasses.field(default_factory=dict)

    def values(self) -> dict[int, list[Any]]:
        """Core to its parameters."""
        found = {core: theirs or self.reference for core, theirs in self.others.items()}
        return found | {self.first: self.reference}


class Ledger:
    """The comparisons of one group."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.seconds = 0.0
        self.by_core: dict[int, list[Stepped]] = {}
        self.wanted: set[tuple[int, int]] = set()  # comparisons that not every core has made
        self.open: dict[tuple[int, int], Comparison] = {}
        self.decided: dict[int, int] = {}  # optimizer to the last step that was decided on
        self.equal: dict[int, int] = {}  # optimizer to the last step after which all were equal
        self.closed: set[int] = set()  # optimizers that need no more looking at
        self.sketches: Sketches | None = None  # where there are cores in other processes

    def due(self, index: int, step: int, *, spread: bool = False) -> bool:
        """Whether to compare; the first core that asks decides for all. Holds the lock.

        Between processes (``spread``) the clock cannot decide, which is another in each: step 8,
        16, 32 and so on are looked at.
        """
        if index in self.closed:
            return False
        if (index, step) in self.wanted:
            return True
        if step <= self.decided.get(index, -1):
            return False
        self.decided[index] = step
        cheap = self.seconds < SHARE * (time.monotonic() - self.began)
        if spread:
            cheap = step & (step - 1) == 0
        if (step > ALWAYS and not cheap) or len(self.wanted) >= OPEN:
            return False
        self.wanted.add((index, step))
        return True

    def drop(self, key: tuple[int, int]) -> Comparison | None:
        """End a comparison. Holds the lock."""
        self.wanted.discard(key)
        return self.open.pop(key, None)


class Agreement:
    """Compares the cores' parameters while several cores run.

    Args:
        running: The cores that run.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._ledgers: weakref.WeakKeyDictionary[CoreGroup, Ledger] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._wait_device = xla.binding("_xla_wait_device_ops")

    def install(self) -> None:
        """Put it around its points, outside the scheduler: nothing may hold the launch lock."""
        if xla.binding("_to_dlpack") is None:
            return
        self._running.around(STEP, self.step, "agreement")
        self._running.around(LAUNCH, self.launch, "agreement")
        self._running.around(COLLECTIVE, self.collective, "agreement")
        reductions.watch_clipping(lambda: self._running.here)
        try:
            optimizers.before_step(self.before_step)
        except Exception:
            return  # an older torch: only the cause is not known then

    # -- points -------------------------------------------------------------------------------
    def collective(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around COLLECTIVE: gradients may have been reduced."""
        reductions.seen(core, call.what)
        return proceed()

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        """Before the first step of an optimizer: are the weights equal, were gradients reduced."""
        core = self._running.here
        if core is None:
            return
        try:
            stepped = self._stepped(core, optimizer)
            if stepped.steps < LOOKED_AT:
                stepped.seen[stepped.steps + 1] = reductions.before(
                    core, _parameters(optimizer, with_gradient=True)
                )
            if stepped.steps == 0:
                self._compare(core, stepped)
            reductions.forget(core)
        except Exception as error:
            self._give_up(core.group, stepped, error)

    def step(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around STEP: this optimizer's parameters have to be compared after the next launch."""
        stepped = self._stepped(core, call.args[0])
        stepped.steps += 1
        stepped.fresh = True
        stepped.place = user_frame(core.thread)
        return proceed()

    def launch(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH: all that was pending on the device has been launched now."""
        result = proceed()
        if call.what != "_xla_step_marker":
            return result
        ledger = self._ledger(core.group)
        for stepped in ledger.by_core.get(core.number, ()):
            if stepped.fresh and core.group.failure is None:
                stepped.fresh = False
                began = time.perf_counter()
                try:
                    self._compare(core, stepped)
                except Exception as error:
                    self._give_up(core.group, stepped, error)
                spent = time.perf_counter() - began
                call.facts["waited"] = call.facts.get("waited", 0.0) + spent
        return result

    def _give_up(self, group: CoreGroup, stepped: Stepped, error: Exception) -> None:
        self._ledger(group).closed.add(stepped.index)
        group.tell("not-compared", error=error)

    # -- comparing ----------------------------------------------------------------------------
    def _ledger(self, group: CoreGroup) -> Ledger:
        with self._lock:
            return self._ledgers.setdefault(group, Ledger())

    def _stepped(self, core: Core, optimizer: Any) -> Stepped:
        mine = self._ledger(core.group).by_core.setdefault(core.number, [])
        for stepped in mine:
            if stepped.optimizer() is optimizer:
                return stepped
        mine.append(Stepped(weakref.ref(optimizer), len(mine)))
        return mine[-1]

    def _compare(self, core: Core, stepped: Stepped) -> None:
        group = core.group
        ledger = self._ledger(group)
        with ledger.lock:
            spread = self._running.pod is not None
            if not ledger.due(stepped.index, stepped.steps, spread=spread):
                return
        if not group.all_have_launched(core):
            return
        self._wait_device([core.device])
        began = time.perf_counter()
        optimizer = stepped.optimizer()
        values = _values(_parameters(optimizer)) if optimizer is not None else None
        key = (stepped.index, stepped.steps)
        with ledger.lock:
            if values is None or key not in ledger.wanted:
                ledger.drop(key)
                return
            comparison = ledger.open.setdefault(key, Comparison(values, core.number))
        if comparison.first != core.number:
            same = len(values) == len(comparison.reference) and all(
                map(_equal, values, comparison.reference)
            )
            with ledger.lock:
                comparison.others[core.number] = None if same else values
        with ledger.lock:
            ledger.seconds += time.perf_counter() - began
            if len(comparison.others) < len(group.numbers) - 1 or ledger.drop(key) is None:
                return
        if self._running.pod is not None:
            self._ask_others(self._running.pod, ledger, key, comparison)
        elif any(comparison.others.values()):
            self._tell(group, ledger, stepped, comparison)
        else:
            ledger.equal[stepped.index] = stepped.steps

    def _ask_others(
        self, pod: Pod, ledger: Ledger, key: tuple[int, int], comparison: Comparison
    ) -> None:
        """Compare with the cores of other processes, at the next meeting."""
        with ledger.lock:
            if ledger.sketches is None:
                ledger.sketches = Sketches(pod, TOLERANCE, functools.partial(self._decide, pod))
        ledger.sketches.offer(key, comparison.values())

    def _decide(
        self,
        pod: Pod,
        index: int,
        step: int,
        at: int | None,
        odd: list[int],
        others: list[int],
        distance: float,
    ) -> bool:
        """What the processes have found together; see :class:`Sketches`."""
        ledger = self._ledger(pod)
        if index in ledger.closed:
            return True
        mine = odd if odd and odd[0] in pod.numbers else [pod.numbers.start]
        stepped = ledger.by_core[mine[0]][index]
        optimizer = stepped.optimizer()
        if at is None or optimizer is None:
            ledger.equal[index] = step
            return True
        parameter = _parameters(optimizer)[at]
        if differs_on_purpose(optimizer, parameter):
            return False
        ledger.closed.add(index)
        if mine == odd and os.environ.get(SILENT, "0") in ("", "0"):
            self._say(pod, ledger, stepped, parameter, (odd, others, distance), step)
        return True

    def _tell(
        self, group: CoreGroup, ledger: Ledger, stepped: Stepped, comparison: Comparison
    ) -> None:
        """Report the first parameter that differs; what differs by rounding only is equal."""
        optimizer = stepped.optimizer()
        if os.environ.get(SILENT, "0") not in ("", "0"):
            ledger.closed.add(stepped.index)
            return
        values = comparison.values()
        if optimizer is None or len({len(theirs) for theirs in values.values()}) > 1:
            return  # different models by design
        for at, parameter in enumerate(_parameters(optimizer)):
            groups = _groups({core: theirs[at] for core, theirs in values.items()})
            if groups is None or differs_on_purpose(optimizer, parameter):
                continue
            ledger.closed.add(stepped.index)
            self._say(group, ledger, stepped, parameter, groups, stepped.steps)
            return
        ledger.equal[stepped.index] = stepped.steps

    def _say(
        self,
        group: CoreGroup,
        ledger: Ledger,
        stepped: Stepped,
        parameter: Any,
        groups: tuple[list[int], list[int], float],
        step: int,
    ) -> None:
        """Report a parameter that differs after an optimizer's step."""
        odd, others, distance = groups
        equal_at = ledger.equal.get(stepped.index)
        reason = reductions.Reduction("start", reductions.START)
        if step:
            # Weights that were equal later part by what came later: DistributedDataParallel
            # makes its buckets anew at its second forward pass.
            reason = stepped.reduction(step if equal_at else 1)
        where = name_of(parameter)
        place = stepped.place if step else user_frame(threading.get_ident())
        group.tell(
            "cores-part",
            message=_sentence(step, equal_at, where, odd, others, distance),
            suggestion=reason.words,
            cores=odd if len(others) > 1 else sorted(odd + others),
            step=step,
            equal_at=equal_at,
            parameter=where,
            difference=distance,
            cause=reason.kind,
            place=place,
            cause_place=reason.place,
        )


def _parameters(optimizer: Any, *, with_gradient: bool = False) -> list[Any]:
    return [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.is_xla
        and not getattr(parameter, "_is_sharded", False)  # FSDP: a share of the weights each
        and (not with_gradient or parameter.grad is not None)
    ]


def _values(parameters: Sequence[Any]) -> list[Any] | None:
    """The parameters as tensors on the host that share the device's memory.

    Returns:
        None if one of them has still to be computed: to read it would compile a graph.
    """
    import torch

    if not parameters or not reductions.computed(parameters):
        return None
    share = xla.binding("_to_dlpack")
    return [torch.from_dlpack(share(parameter.detach())).reshape(-1) for parameter in parameters]


def _equal(one: Any, other: Any) -> bool:
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))


def _groups(values: dict[int, Any]) -> tuple[list[int], list[int], float] | None:
    """The odd cores, the others and the largest distance; None if all are alike.

    None as well when the shapes differ: such cores differ on purpose.
    """
    import torch

    cores = sorted(values)
    marks: dict[int, int] = {}
    kinds: list[Any] = []
    largest = 0.0
    for core in cores:
        value = values[core]
        if value.shape != values[cores[0]].shape or value.dtype != values[cores[0]].dtype:
            return None
        mark = next((at for at, kind in enumerate(kinds) if _close(value, kind)), None)
        if mark is None:
            mark = len(kinds)
            kinds.append(value)
            distance = (value.to(torch.float64) - kinds[0].to(torch.float64)).abs().max()
            largest = max(largest, float(distance)) if mark else largest
        marks[core] = mark
    found = odd_ones(marks)
    return None if found is None else (*found, largest)


def _close(one: Any, other: Any) -> bool:
    import torch

    if _equal(one, other):
        return True
    first, second = one.to(torch.float64), other.to(torch.float64)
    limit = TOLERANCE * float(first.abs().max())
    return bool(((first - second).abs() <= limit).logical_or(first.isnan() & second.isnan()).all())


def _sentence(
    step: int,
    equal_at: int | None,
    parameter: str,
    odd: list[int],
    others: list[int],
    distance: float,
) -> str:
    """What was found; why is said apart from it."""
    when = f"after optimizer step {step}" if step else "before the first optimizer step"
    if equal_at:
        when += f" (they were equal after step {equal_at})"
    if len(others) == 1:
        who = f"{names(sorted(odd + others))} each train a model of their own"
    else:
        who = f"{names(odd)} {'train' if len(odd) > 1 else 'trains'} another model than the rest"
    return f"{who}: {parameter} differs by up to {distance:.3g} {when}"
