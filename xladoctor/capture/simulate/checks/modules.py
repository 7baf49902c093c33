"""Which modules take part in the first steps, so that only what is used is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..cores import Core
    from .memory import Memory

#: Optimizer steps for which modules are noted.
STEPS = 3


class Ran:
    """Notes the modules that run with gradients on, and goes away when the first steps are over.

    Args:
        memory: Of the cores.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._handle: Any = None

    def install(self) -> bool:
        """Begin; False if this torch has no such hook."""
        try:
            from torch.nn.modules.module import register_module_forward_pre_hook
        except ImportError:
            return False
        self._handle = register_module_forward_pre_hook(self._before)
        return True

    def modules(self, core: Core) -> list[Any]:
        """The core's modules, in the order of their first runs."""
        return list(self._noted(core).values())

    def note(self, core: Core, modules: Iterable[Any]) -> None:
        """Count modules in that run where the hook does not see it."""
        noted = self._noted(core)
        for module in modules:
            noted.setdefault(id(module), module)

    def over(self, core: Core) -> None:
        """An optimizer of the core steps: after the first steps of all cores, stop looking."""
        minds = [self._memory.of(one) for one in list(core.group.cores.values())]
        if self._handle is not None and all(mind.steps >= STEPS for mind in minds):
            self._handle.remove()
            self._handle = None

    def _noted(self, core: Core) -> dict[int, Any]:
        noted: dict[int, Any] = self._memory.of(core).note("ran", dict)
        return noted

    def _before(self, module: Any, args: Any) -> None:  # noqa: ARG002
        import torch

        core = self._memory.here()
        if core is not None and torch.is_grad_enabled() and self._memory.of(core).steps < STEPS:
            self._noted(core).setdefault(id(module), module)
