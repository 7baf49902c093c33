"""The launch scheduler: who may launch when, so that N cores in one process never deadlock.

Why each rule (torch_xla 2.9.0, native stacks and logs):

* *One launch at a time.* A collective without channel id is matched by the identity of its
  compiled module. If two cores compiled the same new graph at once they would hold two modules
  that never meet; so one compiles and the others find it in the cache.
* *Wait for this core's device before taking the lock.* A launch waits for the device's previous
  execution; if that holds a collective, it needs cores that wait for the lock.
* *All cores meet before a graph with a collective.* XLA ends the process if the cores arrive at a
  collective more than 10 seconds apart, which a compilation or a slow core easily makes them.
* *A read runs inside the lock*, since it compiles and launches too; unless its graph holds a
  collective: then the graph is launched first and the value fetched outside.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from ..agent import xla
from ..agent.causes import tensors_in
from ..agent.points import COLLECTIVE, FALLBACK, LAUNCH, READ, STEP, WAIT, Call
from . import accounts, compiled, modes
from .calls import detail, exchanged, padded, summary, take_wait, waited, xla_tensors
from .cores import BEFORE
from .divergence import ENDING, Collective, Pending
from .places import user_frame, user_frames
from .reductions import COLLECTIVE_NODE, count_collectives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cores import Core, Meeting
    from .running import Running

#: Bindings that take ``wait``.
_WAITING = {"_xla_step_marker", "_xla_sync_multi"}
#: The user's frames in whose variables a core may keep what no parameter depends on.
FRAMES = 3

#: Collectives that go from thread to thread (see ``exchange``): no part of any graph.
_IN_MEMORY = {"send", "recv"}

#: Names in the text of a graph that are not those of the collective.
_NAMES = {"cross_replica_sum": "all_reduce"}

_EAGER = threading.Lock()


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """In eager mode a reduction is launched where it is called: by one core after the other."""
    if not xla.eager():
        yield
        return
    with _EAGER:
        yield


class LaunchScheduler:
    """Lets the launches, reads and waits of the cores through in an order that cannot deadlock.

    Args:
        running: The cores that run.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._lock = threading.Lock()
        self._wait_device = xla.binding("_xla_wait_device_ops")
        self._graph_text = xla.binding("_get_xla_tensors_text")
        self._graph_hlo = xla.binding("_get_xla_tensors_hlo") or _no_text
        self._graph_hash = xla.binding("_get_graph_hash")
        self._waits = xla.binding("_check_tensor_need_materialization")
        self._sync = xla.binding("_xla_sync_multi")
        #: Graphs of ``torch.compile`` that hold collectives: hash to what a core brings of them.
        self._compiled: dict[bytes, Pending] = {}
        #: Core, meeting and count of compilations at the start of the launch that runs now.
        self.launching: tuple[Core, Meeting, int] | None = None

    def install(self) -> None:
        """Put the launch scheduler around its points."""
        self._running.around(LAUNCH, self.launch, "scheduler")
        self._running.around(READ, self.read, "scheduler")
        self._running.around(FALLBACK, self.read, "scheduler")
        self._running.around(WAIT, self.wait, "scheduler")
        self._running.around(STEP, self.step, "scheduler")
        self._running.around(COLLECTIVE, self.collective, "scheduler")

    @property
    def alone(self) -> contextlib.AbstractContextManager[Any]:
        """Holds off launches while it is entered."""
        return self._lock

    @property
    def busy(self) -> bool:
        """Whether a launch (perhaps a long compilation) is under way."""
        return self._lock.locked()

    def launch(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around LAUNCH."""
        group = core.group
        group.check()
        waits = call.what in _WAITING and take_wait(call)
        began = time.perf_counter()
        self._finish(core)
        if call.what == "_xla_warm_up_cache":
            self._note_compiled(call.args[0])
        started = time.perf_counter()
        # A launch in a process of its own waits for the execution before it as well.
        call.facts["execute_seconds"] = started - began
        if call.what == "_xla_step_marker":
            core.steps += bool(core.roots)
        meeting = self._meet_before(core, call)
        if call.what == "_xla_step_marker":
            core.roots.clear()
            core.reads.clear()
        with self._lock:
            call.facts["waited"] = call.facts.get("waited", 0.0) + time.perf_counter() - started
            if meeting is None:  # else the cores that have launched already need this one
                group.check()
            result = self._launch(core, meeting, call, proceed)
        if waits:
            began = time.perf_counter()
            self._wait_device([core.device])
            call.facts["execute_seconds"] += time.perf_counter() - began
        return result

    def _launch(
        self, core: Core, meeting: Meeting | None, call: Call, proceed: Callable[[], Any]
    ) -> Any:
        group = core.group
        core.launches += 1
        group.progress = time.monotonic()
        with modes.applied(core), accounts.counted(core, call.what):
            return self._launch_as_met(core, meeting, call, proceed)

    def _launch_as_met(
        self, core: Core, meeting: Meeting | None, call: Call, proceed: Callable[[], Any]
    ) -> Any:
        if meeting is None:
            return proceed()
        group = core.group
        before = xla.counter("UncachedCompile")
        self.launching = (core, meeting, before)
        try:
            result = proceed()
        finally:
            self.launching = None
        compiled = xla.counter("UncachedCompile") > before
        graph = _graph_of(call)
        if not meeting.launched:
            meeting.first, meeting.first_graph = core.number, graph
            meeting.first_compiled = compiled
        elif compiled:
            group.differ(core, meeting, core.number)
        elif None not in (graph, meeting.first_graph) and graph != meeting.first_graph:
            # A graph of old: the one that came first has compiled another.
            group.differ(core, meeting, meeting.first if meeting.first_compiled else core.number)
        group.launched(core, meeting)
        return result

    def _meet_before(self, core: Core, call: Call) -> Meeting | None:
        """Meet the other cores if the graph about to be launched holds a collective."""
        if call.what == "_run_cached_graph":
            return self._meet_compiled(core, call)
        left = compiled.left_over()
        if left and call.what == "_xla_step_marker" and self._holds_collective(left):
            brings = self._pending(core, left, Call(LAUNCH, "part of a compiled graph", None))
            return core.group.meet(core, "launch left over", "a part of a compiled graph", brings)
        if not core.collectives:
            return None
        if call.what == "_xla_sync_multi":
            roots = list(call.args[0] if call.args else call.kwargs["tensors"])
            if not self._holds_collective(roots):
                return None
            purpose = "part"
        elif call.what == "_xla_step_marker":
            roots = [one for parameters in core.roots.values() for one in parameters]
            purpose = " ".join(f"{one.name} {one.detail}" for one in core.collectives)
        else:
            return None  # a read without collective, see read()
        words = "a graph with " + summary(core.collectives)
        if call.what == "_xla_step_marker":
            roots += self._kept(core)
        pending = self._pending(core, roots, call)
        meeting = core.group.meet(core, f"launch {purpose}", words, pending)
        if call.what == "_xla_step_marker":
            core.collectives, core.pinned = [], None
            core.crossed.clear()  # else they would be results of the graph
        return meeting

    def _meet_compiled(self, core: Core, call: Call) -> Meeting | None:
        """The same for a graph of ``torch.compile``, whose hash is the first argument."""
        brings = self._compiled.get(bytes(call.args[0]))
        if brings is None:
            return None
        words = "a compiled graph with " + summary(list(brings.collectives))
        purpose = " ".join(one.name for one in brings.collectives)
        return core.group.meet(core, f"launch compiled {purpose}", words, brings)

    def _note_compiled(self, tensors: Any) -> None:
        """A graph of ``torch.compile`` is compiled, to be run later: remember its collectives."""
        text = self._graph_text(list(tensors))
        found = COLLECTIVE_NODE.findall(text)
        if found and self._running.crossing is not None:
            raise RuntimeError(
                "xladoctor: a function of torch.compile that holds a collective cannot run on the "
                "simulated cores of several processes: call the collective outside of it, or "
                "simulate all cores in one process"
            )
        if found and self._graph_hash is not None:
            graph = bytes(self._graph_hash(list(tensors)))
            held = tuple(Collective(_NAMES.get(name, name), "") for name in found)
            self._compiled[graph] = Pending(graph.hex(), lambda: text, collectives=held)

    def _pending(self, core: Core, roots: list[Any], call: Call) -> Pending:
        graph = None
        if roots and self._graph_hash is not None:
            graph = self._graph_hash(roots).hex()
        return Pending(
            graph,
            lambda: self._graph_text(roots),
            hlo=lambda: self._graph_hlo(roots),
            # What a part of the graph holds says nothing of all that waits on the device.
            device=str(call.args[0]) if call.what == "_xla_step_marker" else None,
            reads=tuple(core.reads),
            collectives=tuple(core.collectives),
        )

    def step(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around STEP: the optimizer's parameters are what the pending graph is for."""
        parameters = [
            parameter
            for group in call.args[0].param_groups
            for parameter in group["params"]
            if parameter.grad is not None and parameter.is_xla
        ]
        if parameters:
            # Not by the optimizer: another one may get its place in memory before the launch.
            core.roots[id(parameters[0])] = parameters
        return proceed()

    def settle(self, core: Core) -> None:
        """At a core's end: nothing may run on its device while the process is taken apart."""
        self._finish(core)

    def _finish(self, core: Core) -> None:
        """Wait until the core's device has run what was launched before."""
        self._wait_device([core.device])
        core.tokens.clear()

    def _kept(self, core: Core) -> list[Any]:
        """What the user's functions hold in variables and has no value yet."""
        found = [
            tensor
            for frame in user_frames(core.thread, FRAMES)
            for tensor in xla_tensors(waited(tensors_in(frame)))
        ]
        waits = self._waits(found) if found and self._waits is not None else ()
        return [tensor for tensor, waiting in zip(found, waits, strict=False) if waiting]

    def _holds_collective(self, tensors: Any) -> bool:
        return count_collectives(self._graph_text(list(tensors))) > 0

    def read(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around READ and FALLBACK: the launch that the read needs passes through LAUNCH."""
        core.group.check()
        core.reads.append((call.what, user_frame(core.thread)))
        call.args = tuple(waited(call.args))
        kind = "read" if call.point == READ else "fallback"
        launch = Call(LAUNCH, call.what, call.core, facts={"kind": kind})
        tensors = xla_tensors(call.args)
        if core.collectives and tensors and self._holds_collective(tensors):
            if call.what not in ENDING:
                # Such a read leaves the pending graph as it is, and so does a launch of copies,
                # whose graph is the one that the read would end.
                copies = {id(one): one.clone() for one in tensors}
                call.args = tuple(exchanged(call.args, copies))
                tensors = list(copies.values())
            launch.what = "_xla_sync_multi"
            launch.args = (tensors, [])
            launch.kwargs = {"wait": False, "sync_xla_data": True}
            self._running.points.run(launch, self._sync)
            result = proceed()
        else:
            result = self._running.points.run(launch, proceed)
        call.facts["waited"] = launch.facts.get("waited", 0.0)
        return result

    def wait(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around WAIT: a core waits for its own device, as it would in a process of its own."""
        call.args, call.kwargs = ([core.device],), {}
        return proceed()

    def collective(self, core: Core, call: Call, proceed: Callable[[], Any]) -> Any:
        """Around COLLECTIVE: note what the pending graph of this core now holds."""
        if call.what in _IN_MEMORY or compiled.taking_out():
            return proceed()
        held = Collective(call.what, detail(call), user_frame(core.thread))
        if xla.eager():
            return self._run_now(core, call, held, proceed)
        if not core.collectives:
            self._meet_at_first(core, call, held)
        core.collectives.append(held)
        return proceed()

    def _meet_at_first(self, core: Core, call: Call, held: Collective) -> None:
        """Before a graph gets its first collective: whether the cores have the same graph so far.

        If not, what is pending is run now, in a graph without a collective, which every core may
        have for itself; what comes after it is the same on all cores again.
        """
        tensors = xla_tensors((*call.args, *call.kwargs.values()))
        if not tensors or self._graph_hash is None:
            return
        # The hash waits for what runs on the device and holds the GIL meanwhile: cores that have
        # still to launch their share of it could not.
        self._finish(core)
        tensors += self._kept(core)
        brings = Pending(
            self._graph_hash(tensors).hex(),
            lambda: self._graph_text(tensors),
            hlo=lambda: self._graph_hlo(tensors),
            device=str(tensors[0].device),
            reads=tuple(core.reads),
            collectives=(held,),
        )
        began = time.perf_counter()
        meeting = core.group.meet(core, f"{BEFORE}{held.name} {held.detail}", held.name, brings)
        call.facts["waited"] = time.perf_counter() - began
        if meeting.apart:
            run = Call(
                LAUNCH, "_xla_sync_live_tensors", core.number, (brings.device, [], False),
                facts={"kind": "library"},
            )  # fmt: skip
            self._running.points.run(run, xla.binding("_xla_sync_live_tensors"))

    def _run_now(self, core: Core, call: Call, held: Collective, proceed: Callable[[], Any]) -> Any:
        """A collective in eager mode is a graph of its own, and launched here."""
        if self._running.crossing is not None:
            raise RuntimeError(
                "xladoctor: a collective in eager mode cannot run on the simulated cores of "
                "several processes: leave out torch_xla.experimental.eager_mode, or simulate all "
                "cores in one process"
            )
        self._finish(core)
        purpose = f"eager {held.name} {held.detail}"
        meeting = core.group.meet(core, purpose, held.name, Pending(None, str, collectives=(held,)))
        core.launches += 1
        core.group.progress = time.monotonic()
        gathers = held.detail.startswith(("'and'", "'or'"))
        if held.name == "all_gather":
            gathers = padded(xla.arguments(call.what, call.args, call.kwargs))
        # What is built from several operations takes its turn at the reduction alone: the operation
        # after it waits for the reduction, which waits for the other cores.
        with contextlib.nullcontext() if gathers else one_at_a_time():
            result = proceed()
        core.group.launched(core, meeting)
        return result


def _no_text(tensors: list[Any]) -> str:  # noqa: ARG001
    """The text of a graph where torch_xla gives none."""
    return ""


def _graph_of(call: Call) -> str | None:
    """The hash of the graph that a launch has run; None where nobody measures it."""
    graphs = call.facts.get("graphs")
    return graphs[-1]["graph"] if graphs else None
