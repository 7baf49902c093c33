"""One module per rule, and the list of them.

How to write a rule
-------------------
A rule is a function that asks the model of one file and yields problems::

    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.rules import rule


    @rule("XLA404")
    def spawn_nprocs(model: FileModel) -> Iterator[Problem]:
        for call in model.calls("torch_xla.distributed.xla_multiprocessing.spawn"):
            value = call.argument(2, "nprocs")
            if value is not None and model.literal(value) not in (None, 1):
                yield model.problem(
                    value,
                    "nprocs=8 raises in torch_xla 2.9: only 1 or None are accepted",
                    suggestion="leave nprocs out",
                    related=[model.place(call.node, "the cores are started here")],
                    fix=model.fix("Remove nprocs", model.remove_argument(call.node, value)),
                )

Put it into a module of this package (any name; modules that begin with ``_`` are helpers) and
write its page in ``rules/``: name and severity come from the page. The engine finds the module by
itself, adds code, name and severity, maps notebooks and applies suppressions. A rule

* never prints, reads files or keeps state between files;
* is silent when the model says *unknown*;
* says in one line what is wrong, why it costs here, and (``suggestion``) what to write instead;
* gives as ``related`` places why it believes so (the loop, what put the tensor on the device);
* gives a *safe* fix only if names and values prove it.

What to ask (all on :class:`~xladoctor.lint.model.FileModel`; nodes are LibCST nodes of the file)

=============================  ============================================================
``is_xla``, ``multi_core``     Is this a file for XLA devices? Does it run on several cores?
``spmd``, ``frameworks``       SPMD is on; {"lightning", "accelerate", "transformers"}
``target``                     torch_xla version to lint for, as a tuple (2, 9)
``calls(*names)``              CallSites, all or those of the given dotted names ("a.b.*" too)
``reached(node)``              the calls in a node and in the functions they run
``methods(*names)``            CallSites of ``x.name(...)`` whatever x is
``name(expr)``                 dotted original of what an expression names, or None
``value(expr)``                Value: kind, certain, origin, local, element, items
``loop(node)``                 innermost Loop around a node in the same function
``step_loop(node)``            the STEP loop that runs it on every step, or None
``eval_loop(node)``            the EVAL loop that runs it for every batch, or None
``hot_loop(node)``             step or evaluation loop
``throttled(node)``            it stands under ``if step % 50 == 0`` or the like
``in_step_closure(node)``      it is run by ``xm.add_step_closure``, where reads are right
``on_every_core(node)``        Entry (spawned function) that reaches it, or None
``master_only(node)``          Guard that lets only the master core through, or None
``guards(node)``               all conditions around a node, early returns included
``core_guard(node)``           Guard whose condition may differ from core to core, or None
``place(node, note)``          a related place;  ``problem(node, message, ...)`` a finding
``literal(expr)``              its value if it is a literal (or a name bound once to one)
``spelled(dotted, node)``      how the file can write a name there ("xm.mark_step"), or None
``replace``, ``remove_...``    edits for fixes; ``add_import("import torch_xla")``
=============================  ============================================================
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem


class Rule(Protocol):
    """A rule: a function from the model of a file to the problems in it."""

    def __call__(self, model: FileModel, /) -> Iterator[Problem]:
        """Yield the problems of one file."""


_registry: dict[str, Rule] = {}


def rule(code: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of a code.

    Raises:
        ValueError: The code is taken.
    """

    def register(function: Rule) -> Rule:
        if code in _registry:
            raise ValueError(f"two rules claim {code}")
        _registry[code] = function
        return function

    return register


@functools.cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")


def rules() -> Mapping[str, Rule]:
    """All rules by code, in the order of their codes."""
    _load()
    return dict(sorted(_registry.items()))
