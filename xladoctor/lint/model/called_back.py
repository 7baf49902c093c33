"""Functions of the program that libraries call: ``xmp.spawn(main)``, step closures, threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import frameworks, ignite
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.calls import given
from xladoctor.lint.model.contained import container, dictionary
from xladoctor.lint.model.module_hooks import given_to_hook
from xladoctor.lint.model.values import UNKNOWN, Arguments, Kind, Value

if TYPE_CHECKING:
    from xladoctor.lint.model.callvalue import CallEvaluator
    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.syntax import Function

#: What fields of dataclasses begin with, by what makes it.
_EMPTY = {"builtins.dict": dictionary([]), "builtins.list": container(None)}


class CalledBack:
    """Runs what libraries are given to call.

    Args:
        calls: Evaluates calls of functions of the program.
        flow: The run that the calls belong to.
    """

    def __init__(self, calls: CallEvaluator, flow: Flow) -> None:
        self._calls = calls
        self._flow = flow

    def spawned(self, name: str, arguments: Arguments) -> None:
        """``xmp.spawn(main, args=(...))`` gives the number of the core first, then ``args``."""
        function = self._flow.classes.runs(_given(arguments, 0, know.SPAWNERS[name]))
        extra = _given(arguments, 1, "args", container(None))
        if function.function is None:
            return
        core = Value(Kind.CORE_NUMBER, certain=True, local=True)
        given: list[tuple[str | None, Value]] = [(None, core)]
        if name in know.WITHOUT_NUMBER or _forgets_core(function.function, extra):
            given = []
        given.extend((None, item) for item in extra.items or ())
        self._calls.enter(None, function.function, function, given)

    def started(self, arguments: Arguments) -> None:
        """``mp.Process(target=train, args=(model, device))``, or a thread: it gets ``args``."""
        function = self._flow.classes.runs(_given(arguments, None, "target"))
        given = _given(arguments, None, "args")
        if function.function is not None and given.kind is Kind.CONTAINER:
            bound = [(None, item) for item in given.items or ()]
            self._calls.enter(None, function.function, function, bound)

    def field(self, node: cst.Call, arguments: Arguments) -> Value:
        """What each new object begins with, of a dataclass that says ``default_factory=list``."""
        factory = given(node, None, "default_factory")
        if factory is None:
            return _given(arguments, None, "default")
        function = _given(arguments, None, "default_factory")
        if function.function is not None:
            return self._calls.enter(None, function.function, function, ())
        return _EMPTY.get(self._flow.names.resolve(factory) or "", UNKNOWN)

    def hooked(self, registers: str, module: Value, arguments: Arguments) -> None:
        """``layer.register_forward_hook(keep)``: runs with each forward pass of the module."""
        hook = _given(arguments, 0, "hook")
        if self._flow.belief.believes():
            for function in hook.each_function:
                self._calls.enter(None, function, hook, given_to_hook(registers, module))

    def data_parallel(self, arguments: Arguments) -> Value:
        """``model_parallel(train_loop_fn, loader)``: the function gets what belongs to its core.

        Its model, a device loader, its device, and an object that keeps what the core had before.
        """
        positional = [value for key, value in arguments if key is None]
        if len(positional) < 2 or positional[0].function is None:
            return UNKNOWN
        given = (
            Value(Kind.MODEL, on_device=True),
            Value(Kind.DEVICE_LOADER, element=positional[1], type_name=know.DATA_PARALLEL),
            Value(Kind.DEVICE, certain=True),
            UNKNOWN,
        )
        bound = [(None, value) for value in given]
        return container(self._calls.enter(None, positional[0].function, positional[0], bound))

    def closure(self, arguments: Arguments) -> None:
        """``xm.add_step_closure(report, args=(...))``."""
        function = _given(arguments, 0, "closure")
        extra = _given(arguments, 1, "args")
        if function.function is not None and extra.items:
            given = [(None, item) for item in extra.items]
            self._calls.enter(None, function.function, function, given)

    def given_to(self, name: str, arguments: Arguments) -> None:
        """What a library's trainer is made of, which it calls for every batch."""
        if name in {frameworks.IGNITE_TRAINER, frameworks.IGNITE_EVALUATOR}:
            self._ignite(arguments)
        if name in frameworks.TRAINERS:
            self.trained(arguments)
        if name == ignite.SPAWN:
            function, extra = _given(arguments, 1, "fn"), _given(arguments, 2, "args")
            if function.function is not None:
                given = [(None, item) for item in (ignite.CORE, *(extra.items or ()))]
                self._calls.enter(None, function.function, function, given)

    def _ignite(self, arguments: Arguments) -> None:
        """``create_supervised_trainer(..., output_transform=f)`` hands ``f`` the step's tensors."""
        function = dict(arguments).get("output_transform", UNKNOWN)
        if function.function is not None and self._flow.belief.believes():
            given = [(None, Value(Kind.DEVICE_TENSOR, local=True))] * 4
            self._calls.enter(None, function.function, function, given)

    def trained(self, arguments: Arguments) -> None:
        """``Trainer(model=net, ...)`` moves the model and calls ``net(**batch)`` for each batch."""
        if not self._flow.belief.believes():
            return
        tensor = Value(Kind.DEVICE_TENSOR, local=True)
        net = _given(arguments, 0, "model")
        if net.kind is Kind.MODEL:
            net = net.but(on_device=True)
            self._flow.memory.place(net)
            for instance in self._flow.classes.objects(net):
                method = self._flow.classes.method(instance.cls, "forward")
                if method is not None:
                    bound = net.but(instance=instance)
                    self._calls.enter(None, method, bound, [("**", container(tensor))])
        for name in (frameworks.GIVEN_TO_STEP, frameworks.GIVEN_TO_EVAL):
            function = _given(arguments, None, name)
            if function.function is not None:
                given = [(None, tensor)] * 2
                self._calls.enter(None, function.function, function, given)


def _given(
    arguments: Arguments, place: int | None, keyword: str, otherwise: Value = UNKNOWN
) -> Value:
    """What is given by a name or, if there is one, at a place."""
    positional = 0
    found = otherwise
    for key, value in arguments:
        if key == keyword:
            return value
        if key is None:
            if positional == place:
                found = value
            positional += 1
    return found


def _forgets_core(function: Function, extra: Value) -> bool:
    """``def main(args)`` that is spawned with ``args=(args,)``: XLA408 says enough of it."""
    parameters = function.node.params
    taken = len(function.arguments)
    return (
        extra.items is not None
        and 0 < len(extra.items) == taken
        and not isinstance(parameters.star_arg, cst.Param)
    )
