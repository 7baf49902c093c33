"""Each core its own random numbers, as in a process of its own.

torch, ``random`` and numpy keep one generator per process. Cores that are threads would draw from
it in turn: after the same ``torch.manual_seed(0)`` on all cores, each would begin with other
weights, and a coin tossed in the training loop would fall differently. So in a core's thread, and
in the threads that it starts (the device loaders), the functions that use the process's generator
use the core's. It begins where the process's stood when the cores began, again as with processes.

jax draws from numpy's generator while it is imported (0.7.1); torch_xla imports it when it first
names a stretch of time (2.9.0: ``debug/profiler.py``, for the first batch of a device loader). A
process for each core would do so on each. Here it happens once, in whatever core comes first, and
from no core's generator.

What cannot be redirected from Python: dropout on CPU tensors, ``torch.default_generator`` itself,
and ``from random import ...`` executed before torch_xla was imported.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: In-place fillings of ``torch.Tensor``; all take ``generator``.
_FILLINGS = (
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "normal_",
    "random_",
    "uniform_",
)
#: Functions of ``torch`` that take ``generator`` and make a new tensor on ``device``.
_FACTORIES = ("rand", "randint", "randn", "randperm")
#: Functions of ``torch`` that take ``generator`` and draw for given tensors.
_DRAWS = ("bernoulli", "multinomial", "normal")
#: Functions of ``numpy.random`` that are no methods of its instance, and what they call.
_NUMPY_FUNCTIONS = {"seed": "seed", "sample": "random_sample", "ranf": "random_sample"}

_thread = threading.local()


@dataclasses.dataclass(frozen=True, slots=True)
class Generators:
    """The generators of one core; ``numpy`` is a ``RandomState``, or None without numpy."""

    torch: Any
    python: random.Random
    numpy: Any


def current() -> Generators | None:
    """The generators of the core that this thread belongs to; None outside of cores."""
    mine: Generators | None = getattr(_thread, "generators", None)
    return mine


def use(generators: Generators | None) -> None:
    """From now on this thread draws from these; for threads that it starts see ``threads``."""
    _thread.generators = generators


class Origin:
    """Where the process's generators stand now, from where every core begins."""

    def __init__(self) -> None:
        import torch

        self._torch = torch.default_generator.get_state()
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.mtrand._rand.get_state()

    def generators(self) -> Generators:
        """A new set of generators that stands there."""
        import torch

        ours = torch.Generator()
        ours.set_state(self._torch)
        python = random.Random()  # noqa: S311  (the program's own generator, not ours)
        python.setstate(self._python)
        numpy = None
        if self._numpy is not None:
            numpy = sys.modules["numpy"].random.RandomState()
            numpy.set_state(self._numpy)
        return Generators(ours, python, numpy)


def install() -> None:
    """Redirect the functions that use the process's generators."""
    _import_aside()
    _install_torch()
    _redirect(random, random._inst, lambda generators: generators.python)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _redirect(numpy.random, numpy.random.mtrand._rand, lambda generators: generators.numpy)
        # In newer numpys these are functions of their own around the hidden instance.
        for name, method in _NUMPY_FUNCTIONS.items():
            _redirect_function(numpy.random, name, method, lambda generators: generators.numpy)


def _import_aside() -> None:
    """Let torch_xla import jax outside of the cores' random numbers."""
    workarounds = sys.modules.get("torch_xla._internal.jax_workarounds")
    original: Any = getattr(workarounds, "maybe_get_jax", None)
    if original is None:
        return

    @functools.wraps(original)
    def maybe_get_jax(*args: Any, **kwargs: Any) -> Any:
        mine = current()
        use(None)
        try:
            return original(*args, **kwargs)
        finally:
            use(mine)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("maybe_get_jax") is original:
            module.__dict__["maybe_get_jax"] = maybe_get_jax


def _redirect(module: Any, instance: Any, choose: Callable[[Generators], Any]) -> None:
    """Let the functions of a module that are methods of one hidden instance find the core's."""
    for name, function in list(vars(module).items()):
        if getattr(function, "__self__", None) is instance and hasattr(instance, name):
            _redirect_function(module, name, name, choose)


def _redirect_function(
    module: Any, name: str, method: str, choose: Callable[[Generators], Any]
) -> None:
    original = getattr(module, name, None)
    if original is None or hasattr(original, "__wrapped__"):
        return  # not in this version, or redirected as a method

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        generators = current()
        mine = None if generators is None else choose(generators)
        if mine is None:
            return original(*args, **kwargs)
        return getattr(mine, method)(*args, **kwargs)

    setattr(module, name, function)


def _install_torch() -> None:
    import torch

    for name in _FILLINGS:
        setattr(torch.Tensor, name, _filling(getattr(torch.Tensor, name)))
    for name in _FACTORIES:
        setattr(torch, name, _factory(getattr(torch, name)))
    for name in _DRAWS:
        setattr(torch, name, _draw(getattr(torch, name)))
        if hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, _draw(getattr(torch.Tensor, name)))
    for name, fill in (("rand_like", "uniform_"), ("randn_like", "normal_")):
        setattr(torch, name, _like(getattr(torch, name), fill))
    _install_seeds()


def _filling(original: Any) -> Any:
    @functools.wraps(original)
    def fill(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        generators = current()
        if generators is not None and tensor.is_cpu and kwargs.get("generator") is None:
            kwargs["generator"] = generators.torch
        return original(tensor, *args, **kwargs)

    return fill


def _factory(original: Any) -> Any:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        generators = current()
        if generators is not None and kwargs.get("generator") is None:
            import torch

            device = kwargs.get("device")
            if device is None:
                device = torch.get_default_device()
            if torch.device(device).type == "cpu":
                kwargs["generator"] = generators.torch
        return original(*args, **kwargs)

    return make


def _draw(original: Any) -> Any:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        generators = current()
        if generators is not None and kwargs.get("generator") is None:
            values = (*args, *kwargs.values())
            if all(value.is_cpu for value in values if hasattr(value, "is_cpu")):
                kwargs["generator"] = generators.torch
        return original(*args, **kwargs)

    return draw


def _like(original: Any, fill: str) -> Any:
    """``rand_like`` takes no generator; torch makes it of ``empty_like`` and a filling."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        generators = current()
        tensor = args[0] if args else kwargs.get("input")
        cpu = getattr(tensor, "is_cpu", False)
        if generators is None or not cpu or kwargs.get("device") is not None:
            return original(*args, **kwargs)
        import torch

        kwargs.pop("input", None)
        needs_gradient = kwargs.pop("requires_grad", False)
        made = getattr(torch.empty_like(tensor, **kwargs), fill)()
        return made.requires_grad_(needs_gradient)

    return make


def _install_seeds() -> None:
    """The functions that seed torch's generator, save it and bring it back."""
    import torch

    def manual_seed(generator: Any, seed: int) -> Any:
        return generator.manual_seed(int(seed))

    replacements: dict[str, Callable[..., Any]] = {
        "manual_seed": manual_seed,
        "seed": lambda generator: generator.seed(),
        "initial_seed": lambda generator: generator.initial_seed(),
        "get_rng_state": lambda generator: generator.get_state(),
        "set_rng_state": lambda generator, new_state: generator.set_state(new_state),
    }
    for name, replacement in replacements.items():
        function = _seeding(getattr(torch.random, name), replacement)
        setattr(torch.random, name, function)
        setattr(torch, name, function)


def _seeding(original: Any, replacement: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        generators = current()
        if generators is None:
            return original(*args, **kwargs)
        return replacement(generators.torch, *args, **kwargs)

    return function
