"""torch_xla's metrics of launches, for each core what a process of its own would count.

torch_xla keeps one account for a process. On simulated cores ``metric_data("ExecuteTime")`` would
be of all cores together, and what one core clears would be gone for all, in the middle of a launch
of another one as well. Launches are made one at a time, inside the launch lock: there each core
counts its own, and there the process's account is cleared.

Not kept apart, because torch_xla counts it in C++ on whatever thread, without saying for whom:
counters of operations (``xla::add``, ``aten::nonzero``), all other metrics, and so the texts of
``metrics_report()``, which are of the process since any core has cleared it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any

from ..agent import xla

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cores import Core
    from .running import Running

#: Counters of launches, and the metric that has a sample for each launch or compilation.
_COUNTERS = ("UncachedCompile", "CachedCompile")
_COMPILED, _EXECUTED = "CompileTime", "ExecuteTime"
#: Compiles a graph of ``torch.compile``, or finds it compiled, and does not run it.
_COMPILES = "_xla_warm_up_cache"
#: Runs it, and counts neither as compiled nor as found.
_RUNS = "_run_cached_graph"


@dataclasses.dataclass(slots=True)
class Account:
    """What one core has launched since it has cleared its metrics or counters.

    Attributes:
        counters: Counter to value.
        compilations: When each compilation ended (seconds since 1970) and its nanoseconds.
        executions: How many graphs were run.
    """

    counters: dict[str, int] = dataclasses.field(default_factory=dict)
    compilations: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    executions: int = 0

    def metric(self, name: str) -> Any:
        """As torch_xla gives it: (samples, their sum, samples as (when, value)), None without any.

        Which core's execution took how long torch_xla does not say: the times are those of the
        newest executions of the process, whose mean stands for older ones.
        """
        if name == _COMPILED:
            values = [value for _, value in self.compilations]
            return (len(values), sum(values), tuple(self.compilations)) if values else None
        if not self.executions:
            return None
        _, _, samples = xla.binding("_xla_metric_data")(_EXECUTED) or (0, 0.0, ())
        newest = tuple(samples[-self.executions :])
        mean = sum(value for _, value in newest) / len(newest) if newest else 0.0
        return (self.executions, mean * self.executions, newest)


@contextlib.contextmanager
def counted(core: Core, what: str) -> Iterator[None]:
    """Count what a core launches meanwhile; inside the launch lock.

    Args:
        core: The core.
        what: The binding that is called.
    """
    before = [xla.counter(name) for name in _COUNTERS]
    try:
        yield
    finally:
        account = core.account
        account.executions += what == _RUNS
        for name, value in zip(_COUNTERS, before, strict=True):
            more = xla.counter(name) - value
            if more:
                account.counters[name] = account.counters.get(name, 0) + more
                account.executions += more * (what != _COMPILES)
            if more and name == "UncachedCompile":
                data = xla.binding("_xla_metric_data")(_COMPILED)
                account.compilations += data[2][-more:] if data is not None else ()


def install(running: Running, alone: contextlib.AbstractContextManager[Any]) -> None:
    """Answer each core with its own account; what this torch_xla does not have is left alone.

    Args:
        running: The cores that run.
        alone: Holds off launches while it is entered.
    """
    xlac = importlib.import_module("torch_xla")._XLAC
    answers = {
        "_xla_counter_value": _counter,
        "_xla_metric_data": _metric,
        "_clear_xla_counters": _clearing(alone, lambda account: account.counters.clear()),
        "_clear_xla_metrics": _clearing(alone, _clear_metrics),
    }
    for name, answer in answers.items():
        original = xla.binding(name)
        if original is not None:
            setattr(xlac, name, _answered(running, original, answer))


def _answered(running: Running, original: Any, answer: Any) -> Any:
    @functools.wraps(original)
    def answered(*args: Any) -> Any:
        core = running.here
        return original(*args) if core is None else answer(core.account, original, *args)

    return answered


def _counter(account: Account, original: Any, name: str) -> Any:
    return account.counters.get(name) if name in _COUNTERS else original(name)


def _metric(account: Account, original: Any, name: str) -> Any:
    return account.metric(name) if name in (_COMPILED, _EXECUTED) else original(name)


def _clearing(
    alone: contextlib.AbstractContextManager[Any], clear: Callable[[Account], None]
) -> Callable[[Account, Any], None]:
    def answer(account: Account, original: Any) -> None:
        with alone:
            original()
        clear(account)

    return answer


def _clear_metrics(account: Account) -> None:
    account.compilations.clear()
    account.executions = 0
