"""What Ignite starts on every core: ``idist.spawn`` and ``idist.Parallel(...).run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import string
from xladoctor.lint.model.values import Arguments, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names

PACKAGE = "ignite"
#: The one backend of Ignite that runs on XLA devices (Ignite 0.5, distributed/comp_models/xla.py).
BACKEND = "xla-tpu"
SPAWN = "ignite.distributed.spawn"
PARALLEL = "ignite.distributed.Parallel"
#: What a function that is started so gets first.
CORE = Value(Kind.CORE_NUMBER, certain=True, local=True)


class Start(NamedTuple):
    """Where Ignite starts the cores.

    Attributes:
        function: The function that each core runs, after its number.
        backend: What chooses the backend; None if nothing does.
    """

    function: cst.BaseExpression
    backend: cst.BaseExpression | None

    @property
    def for_others(self) -> bool:
        """Whether the backend is written out, and another than XLA's."""
        written = string(self.backend) if isinstance(self.backend, cst.SimpleString) else None
        return written is not None and written != BACKEND


def start(
    call: cst.Call, names: Names | LinkedNames, value: Callable[[cst.BaseExpression], Value]
) -> Start | None:
    """What a call starts: ``idist.spawn(backend, fn)``, ``parallel.run(fn)``; None if nothing."""
    if names.resolve(call.func) == SPAWN:
        function = given(call, 1, "fn")
        return None if function is None else Start(function, given(call, 0, "backend"))
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "run":
        return None
    made = value(call.func.value)
    function = given(call, 0, "func")
    if made.type_name != PARALLEL or not isinstance(made.origin, cst.Call) or function is None:
        return None
    return Start(function, given(made.origin, 0, "backend"))


def given_to_run(receiver: Value, arguments: Arguments) -> Arguments:
    """What ``parallel.run(fn, a, key=b)`` calls ``fn`` with: the core's number first."""
    return [(None, CORE), *arguments[1:]] if receiver.type_name == PARALLEL else ()
