"""One module per rule, in the folder of its family, and the list of them.

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
                    fix=model.fix(
                        "Remove nprocs", model.remove_argument(call.node, value), safe=True
                    ),
                )

Put it into the folder of its family, in a module named as its page (modules that begin with ``_``
are helpers; what fixes write stands in ``lint/rewrites/``), and write its page in ``rules/``: name
and severity come from the page. The engine finds the module by itself, adds code, name and
severity, maps notebooks and applies suppressions. A rule

* never prints, reads files or keeps state between files;
* is silent when the model says *unknown*;
* says in one line what is wrong, why it costs here, and (``suggestion``) what to write instead;
* gives as ``related`` places why it believes so (the loop, what put the tensor on the device);
* gives a *safe* fix only if names and values prove it;
* asks no node for white space or punctuation (``model.tree.text(node)`` is what is written):
  nodes hold it only for rules of other projects.

What to ask (all on :class:`~xladoctor.lint.model.FileModel`; nodes are LibCST nodes of the file)

=============================  ============================================================
``is_xla``, ``multi_core``     Is this a file for XLA devices? Does it run on several cores?
``spmd``, ``frameworks``       SPMD is on; {"lightning", "accelerate", "transformers"}
``target``                     torch_xla version to lint for, as a tuple (2, 9)
``keeps_old(name, release)``   does the project pin an older release of this framework?
``calls(*names)``              CallSites, all or those of the given dotted names ("a.b.*" too)
``calls_in(node)``             the calls that stand in a node;  ``calls_between(first, last)``
``reached(node)``              the calls in a node and in the functions they run
``methods(*names)``            CallSites of ``x.name(...)`` whatever x is
``nodes(*types)``              every node of the file (of these types), in source order
``within(node, type)``         the nodes of a type in a node, without a walk
``name(expr)``                 dotted original of what an expression names, or None
``named``                      expressions by the dotted originals that they name
``value(expr)``                Value: kind, certain, origin, local, element, items
``loop(node)``                 innermost Loop around a node in the same function
``step_loop(node)``            the STEP loop that runs it on every step, or None
``eval_loop(node)``            the EVAL loop that runs it for every batch, or None
``hot_loop(node)``             step, evaluation or rollout loop
``throttled(node)``            it stands under ``if step % 50 == 0`` or the like
``in_step_closure(node)``      it is run by ``xm.add_step_closure``, where reads are right
``on_every_core(node)``        Entry (spawned function) that reaches it, or None
``master_only(node)``          Guard that lets only the master core through, or None
``guards(node)``               all conditions around a node, early returns included
``core_guard(node)``           Guard whose condition may differ from core to core, or None
``place(node, note)``          a related place;  ``problem(node, message, ...)`` a finding
``literal(expr)``              its value if it is a literal (or a name bound once to one)
``effects.of(Effect.READ)``    what happens in the file: reads, graph ends, collectives, steps
``on_xla(node)``               whether a node runs on XLA devices: yes, no or maybe
``spelled(dotted, node)``      how the file can write a name there ("xm.mark_step"), or None
``linked``                     models of the linted files that it imports or that import it
``bindings(name, node)``       the ways in which a name gets its meaning at a node
``assigned_to(name)``          what is assigned to a name where it stands, or to ``self.x``
``made_of(name)``              the same of each binding, or the whole that is taken apart
``taken(target)``              the line or loop that gives a target its value, and its place there
``kept_in(attribute)``         all that a class gives to ``self.x``
``replace``, ``remove_...``    edits for fixes; ``add_import("import torch_xla")``
=============================  ============================================================

Files that import each other are modelled together: ``value``, ``step_loop``, ``reached``,
``callers`` and the like see through them, so a node that they give back may be of another file.
``place`` knows where it is; ``is_here(node)`` tells; edits of such nodes are None.

Rules of a project
------------------
The same decorator, in a module that the settings name (``[tool.xladoctor.lint] plugins =
["mycompany.xla_rules"]``, or a file, ``"tools/xla_rules.py"``) or that an installed package offers
as an entry point of the group ``xladoctor.rules``. The docstring is the rule's page::

    @rule("ACME101", name="own-loader", severity="warning")
    def own_loader(model: FileModel) -> Iterator[Problem]:
        '''Loaders come from acme.data.

        ```py bad
        from torch.utils.data import DataLoader
        loader = DataLoader([])  # error: [ACME101]
        ```

        ```py good
        from acme.data import make_loader
        loader = make_loader([])
        ```
        '''
        for call in model.calls("torch.utils.data.DataLoader"):
            yield model.problem(call.node, "a bare DataLoader", suggestion="use acme.data")

``xladoctor rules test`` runs the blocks of these pages. What this module, ``xladoctor.lint.model``
and ``xladoctor.lint.selftest`` export stays compatible within a major version; modules and names
that begin with an underscore do not.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from typing import TYPE_CHECKING, Protocol

from xladoctor import catalogue
from xladoctor.catalogue import Page
from xladoctor.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from xladoctor.lint.model import FileModel, Problem


class Rule(Protocol):
    """A rule: a function from the model of a file to the problems in it."""

    def __call__(self, model: FileModel, /) -> Iterator[Problem]:
        """Yield the problems of one file."""


_registry: dict[str, Rule] = {}
_OWN = re.compile(r"^(?!XLA)[A-Z]{2,12}\d{1,4}$")


def rule(
    code: str,
    *,
    name: str = "",
    severity: str = "warning",
    summary: str = "",
    fix: str = "none",
    default: bool = True,
) -> Callable[[Rule], Rule]:
    """Register a function as the rule of a code.

    Our own rules have their page in ``rules/``; for a rule of a plugin, the function's docstring is
    the page (Markdown, with ``py bad`` and ``py good`` blocks that ``xladoctor rules test`` runs).

    Args:
        code: For a plugin: two or more capital letters of its own and a number ("ACME101").
        name: For a plugin: the rule's name in kebab case.
        severity: For a plugin: "error", "warning" or "info".
        summary: For a plugin: one line for tables; the docstring's first line by default.
        fix: For a plugin: "safe", "unsafe" or "none".
        default: For a plugin: whether it is on without being selected.

    Raises:
        ValueError: The code is taken, or a plugin's rule lacks its name or has an impossible code.
    """

    def register(function: Rule) -> Rule:
        if code in _registry:
            raise ValueError(f"two rules claim {code}")
        if name or not code.startswith("XLA"):
            catalogue.register(_page(code, name, severity, summary, fix, default, function))
        _registry[code] = function
        return function

    return register


def _page(
    code: str, name: str, severity: str, summary: str, fix: str, default: bool, function: Rule
) -> Page:
    if not _OWN.match(code):
        raise ValueError(f"{code} cannot be a plugin's code: write letters of your own, as ACME101")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"{code} needs a name in kebab case: name='no-such-thing'")
    text = inspect.cleandoc(function.__doc__ or "")
    first = text.partition("\n")[0].rstrip(".")
    return Page(
        code=code,
        name=name,
        severity=Severity(severity),
        since="",
        fix=fix,
        confidence="high",
        found_by=("lint",),
        summary=summary or first,
        default=default,
        select="",
        text=f"# {name} ({code})\n\n{text}\n",
        url="",
    )


@functools.cache
def _load() -> None:
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(module.name)


def rules() -> Mapping[str, Rule]:
    """All rules by code, in the order of their codes."""
    _load()
    return dict(sorted(_registry.items()))


def has_others() -> bool:
    """Whether rules are loaded that are not ours: those may concern any file."""
    return any(not code.startswith("XLA") for code in _registry)
