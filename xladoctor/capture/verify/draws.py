"""Random numbers that are the same in all ways, whatever draws them.

A draw is known by the optimizer step in which it happens and by its number within that step, and
its values come from a generator on the host that is seeded with both. So it does not matter that
torch and XLA have other generators. What belongs to the samples of a batch is drawn in as many
blocks as the batch has shares: core k draws block k, one core alone draws all of them one after the
other. What does not (a number for the whole step) is the same on all cores.

Before the first optimizer is made, and for the weights of modules also later, a draw is known by
the program's own seeds instead: cores that seed differently start differently, as they would.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any

from ..simulate import randomness
from . import state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .settings import Settings

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
_FACTORIES = ("rand", "randn", "randint")
#: What fills a tensor that is like another one.
_LIKE = {"rand_like": "uniform_", "randn_like": "normal_", "randint_like": "random_"}
_OF_TENSORS = ("bernoulli", "multinomial", "normal", "poisson")
#: Dimensions of the mask of each dropout that have a size of their own; None for all.
_MASKS = {"dropout": None, "dropout1d": 2, "dropout2d": 2, "dropout3d": 2}

#: Of self-normalizing networks: what alpha dropout puts in the place of a value is minus this.
_ALPHA = 1.7580993408473766
#: Attribute of a state of torch's generator: where the draws were when the program asked for it.
_ASKED = "_xladoctor_drawn"
#: States of the device's generator are numbers: those from here on are ours.
_FIRST_STATE = 1 << 40
#: How far to look for a module's constructor among the callers.
_NEAR = 16


class Draws:
    """Stands in the place of torch's functions that draw.

    Args:
        settings: Of this way.
    """

    def __init__(self, settings: Settings) -> None:
        self._first = settings.source is None
        self._shares = settings.cores
        self._states: dict[int, tuple[int, int, tuple[int, int]]] = {}
        self._originals: dict[str, Any] = {}
        self._lock = threading.Lock()

    def install(self) -> None:
        """Stand in the place of what draws; before anything else does, so that all see it drawn."""
        import torch
        from torch.nn import functional

        for name in _FILLINGS:
            self._replace(torch.Tensor, name, self._filling)
        for name in _FACTORIES:
            self._replace(torch, name, self._factory)
        self._replace(torch, "randperm", self._permutation)
        for name in _LIKE:
            self._replace(torch, name, self._like)
        for name in _OF_TENSORS:
            self._replace(torch, name, self._of_tensors)
        for name in ("bernoulli", "multinomial"):
            self._replace(torch.Tensor, name, self._of_tensors)
        for name in _MASKS:
            self._replace(functional, name, self._dropout)
        self._replace(torch, "dropout", self._dropout)
        self._replace(functional, "alpha_dropout", self._alpha_dropout)
        self._replace(functional, "scaled_dot_product_attention", self._attention)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            self._originals.setdefault(name, original)
            setattr(owner, name, functools.wraps(original)(make(original)))

    # -- generators ------------------------------------------------------------------------------
    def _blocks(
        self, core: state.Core, shape: Sequence[int], weights: bool
    ) -> tuple[list[Any], bool]:
        """The generators of the next draw, one for each block, and whether it is enlarged.

        Args:
            core: Who draws.
            shape: Of what is drawn.
            weights: Whether it is, or may be, the start of a model.
        """
        if state.is_aside():
            core.asides += 1
            return [_generator("aside", core.number, *core.seeds, core.asides)], False
        number, core.drawn = core.drawn, core.drawn + 1
        if weights or not core.trains:
            return [_generator("start", *core.seeds, number)], False
        key = ("step", core.steps, number)
        first = shape[0] if len(shape) else 0
        if not first:
            return [_generator(*key, 0)], False
        if core.batch is not None and first % core.batch == 0:
            if self._first:
                return [_generator(*key, core.number)], False
            if first % self._shares == 0:
                return [_generator(*key, block) for block in range(self._shares)], False
        if core.from_loader or core.depth:
            return [_generator(*key, 0)], False
        # A program that draws its samples itself: it asks for the share of one core.
        if self._first:
            if len(shape) > 1:
                core.batch = first
            return [_generator(*key, core.number)], False
        if len(shape) > 1:
            core.batch = first * self._shares
        return [_generator(*key, block) for block in range(self._shares)], self._shares > 1

    def _drawn(
        self,
        shape: Sequence[int],
        fill: Callable[[tuple[int, ...], Any], Any],
        *,
        weights: bool,
        fixed: bool = False,
    ) -> Any:
        """A host tensor of the values of the next draw.

        Args:
            shape: As the program asked for it.
            fill: Makes a block from its shape and its generator.
            weights: See :meth:`_blocks`.
            fixed: Whether it must have that shape.
        """
        import torch

        core = state.current()
        shape = tuple(shape)
        generators, enlarged = self._blocks(core, shape, weights)
        if enlarged and fixed:
            generators, enlarged = generators[:1], False
        if len(generators) == 1:
            return fill(shape, generators[0])
        share = shape if enlarged else (shape[0] // len(generators), *shape[1:])
        return torch.cat([fill(share, generator) for generator in generators])

    # -- torch's functions -----------------------------------------------------------------------
    def _filling(self, original: Any) -> Any:
        def fill(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            import torch

            if _has_generator(kwargs) or _elsewhere(tensor):
                return original(tensor, *args, **kwargs)

            def block(shape: tuple[int, ...], generator: Any) -> Any:
                made = torch.empty(shape, dtype=tensor.dtype, device="cpu")
                return original(made, *args, generator=generator, **kwargs)

            weights = isinstance(tensor, torch.nn.Parameter) or _constructing()
            if any(isinstance(one, torch.Tensor) for one in args):
                values = self._given(tensor, args, kwargs, original)
            else:
                values = self._drawn(tensor.shape, block, weights=weights, fixed=True)
            with torch.no_grad():
                tensor.copy_(values)
            return tensor

        return fill

    def _given(self, tensor: Any, args: Any, kwargs: Any, original: Any) -> Any:
        """A filling with a probability for each element."""
        import torch

        uniform = self._uniform(tensor.shape)
        if original.__name__ != "bernoulli_":
            made = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            return original(made, *[_on_host(one) for one in args], **kwargs)
        return (uniform < _on_host(args[0]).float()).to(tensor.dtype)

    def _factory(self, original: Any) -> Any:
        name = original.__name__

        def make(*args: Any, **kwargs: Any) -> Any:
            import torch

            if _has_generator(kwargs) or "out" in kwargs:
                return original(*args, **kwargs)
            device = kwargs.pop("device", None)
            device = torch.get_default_device() if device is None else torch.device(device)
            if device.type not in ("cpu", "xla"):
                return original(*args, device=device, **kwargs)
            needs = kwargs.pop("requires_grad", False)
            bounds, size = _size(name, args, kwargs)

            def block(shape: tuple[int, ...], generator: Any) -> Any:
                return original(*bounds, shape, generator=generator, device="cpu", **kwargs)

            made = self._drawn(size, block, weights=_constructing())
            return made.to(device).requires_grad_(needs)

        return make

    def _permutation(self, original: Any) -> Any:
        def permute(n: int, /, **kwargs: Any) -> Any:
            import torch

            if _has_generator(kwargs) or "out" in kwargs:
                return original(n, **kwargs)
            device = kwargs.pop("device", None)

            def block(shape: tuple[int, ...], generator: Any) -> Any:
                return original(shape[0], generator=generator, device="cpu", **kwargs)

            made = self._drawn((n,), block, weights=False, fixed=True)
            if made.numel() and int(made.max()) + 1 < n:  # shares, each permuted by itself
                share = int(made.max()) + 1
                made = made + torch.arange(0, n, share).repeat_interleave(share)
            return made if device is None else made.to(device)

        return permute

    def _like(self, original: Any) -> Any:
        name, filling = original.__name__, self._originals

        def make(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            import torch

            device = kwargs.pop("device", None)
            needs = kwargs.pop("requires_grad", False)

            dtype = kwargs.get("dtype") or tensor.dtype

            def block(shape: tuple[int, ...], generator: Any) -> Any:
                made = torch.empty(shape, dtype=dtype, device="cpu")
                if name == "randint_like":
                    low, high = _bounds(args, kwargs)
                    return filling["random_"](made, low, high, generator=generator)
                return filling[_LIKE[name]](made, generator=generator)

            made = self._drawn(tensor.shape, block, weights=_constructing(), fixed=True)
            return made.to(tensor.device if device is None else device).requires_grad_(needs)

        return make

    def _of_tensors(self, original: Any) -> Any:
        """``bernoulli``, ``multinomial`` and their kin: a row for each row of what is given."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            import torch

            given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
            if not given or _has_generator(kwargs) or "out" in kwargs:
                return original(*args, **kwargs)
            whole = max(given, key=lambda one: one.dim())
            core = state.current()
            generators, _ = self._blocks(core, whole.shape, False)
            share = whole.shape[0] // len(generators) if whole.dim() else 0

            def part(value: Any, at: int) -> Any:
                if not isinstance(value, torch.Tensor):
                    return value
                value = _on_host(value)
                if len(generators) == 1 or not value.dim() or value.shape[0] != whole.shape[0]:
                    return value
                return value[at * share : (at + 1) * share]

            made = [
                original(
                    *[part(one, at) for one in args],
                    **{name: part(one, at) for name, one in kwargs.items()},
                    generator=generator,
                )
                for at, generator in enumerate(generators)
            ]
            return (made[0] if len(made) == 1 else torch.cat(made)).to(whole.device)

        return draw

    # -- dropout ---------------------------------------------------------------------------------
    def _uniform(self, shape: Sequence[int]) -> Any:
        import torch

        def block(share: tuple[int, ...], generator: Any) -> Any:
            return torch.empty(share, device="cpu").random_(0, 1 << 24, generator=generator) / (
                1 << 24
            )

        return self._drawn(shape, block, weights=False, fixed=True)

    def _kept(self, tensor: Any, p: float, dims: int | None) -> Any:
        """Where a dropout keeps the value: 1, else 0."""
        shape = tuple(tensor.shape)
        if dims is not None:
            shape = shape[:dims] + (1,) * (len(shape) - dims)
        return (self._uniform(shape) >= p).to(tensor.dtype).to(tensor.device)

    def _dropout(self, original: Any) -> Any:
        dims = _MASKS[original.__name__]
        of_torch = getattr(original, "__module__", None) != "torch.nn.functional"

        def dropout(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            named = dict(
                zip(("p", "train" if of_torch else "training", "inplace"), args, strict=False)
            )
            named |= kwargs
            p = named.get("p", 0.5)
            training = named.get("train", named.get("training", True))
            if not training or not 0 < p < 1 or _elsewhere(tensor):
                return original(tensor, *args, **kwargs)
            mask = self._kept(tensor, p, dims) / (1 - p)
            return tensor.mul_(mask) if named.get("inplace") else tensor * mask

        return dropout

    def _alpha_dropout(self, original: Any) -> Any:
        def dropout(
            tensor: Any, p: float = 0.5, training: bool = False, inplace: bool = False
        ) -> Any:
            if not training or not 0 < p < 1 or _elsewhere(tensor):
                return original(tensor, p, training, inplace)
            kept = self._kept(tensor, p, None)
            a = 1.0 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
            return tensor * kept * a + (kept - 1 + p) * (_ALPHA * a)

        return dropout

    def _attention(self, original: Any) -> Any:
        """Attention with dropout: its masks are drawn in C++, so it is computed step by step."""

        def attention(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            scale: float | None = None,
            enable_gqa: bool = False,
        ) -> Any:
            import torch

            if not dropout_p:
                return original(
                    query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                    enable_gqa=enable_gqa,
                )  # fmt: skip
            if enable_gqa:
                key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
                value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
            weights = query @ key.transpose(-2, -1)
            weights = weights * (query.size(-1) ** -0.5 if scale is None else scale)
            if is_causal:
                ones = torch.ones(weights.shape[-2:], dtype=torch.bool, device=query.device)
                weights = weights.masked_fill(~ones.tril(), float("-inf"))
            if attn_mask is not None and attn_mask.dtype == torch.bool:
                weights = weights.masked_fill(~attn_mask, float("-inf"))
            elif attn_mask is not None:
                weights = weights + attn_mask
            weights = torch.softmax(weights, -1)
            return torch.nn.functional.dropout(weights, dropout_p, True) @ value

        return attention

    # -- seeds and states ------------------------------------------------------------------------
    def watch_seeds(self) -> None:
        """Take notice of seeds and states; after everything else, which may keep them to itself."""
        import torch

        def seeding(original: Any) -> Any:
            def manual_seed(seed: int) -> Any:
                core = state.current()
                core.seeds, core.drawn = (int(seed), core.seeds[1]), 0
                return original(seed)

            return manual_seed

        def asking(original: Any) -> Any:
            def get_rng_state() -> Any:
                found = original()
                setattr(found, _ASKED, _position())
                return found

            return get_rng_state

        def putting(original: Any) -> Any:
            def set_rng_state(new_state: Any) -> Any:
                _go_back(getattr(new_state, _ASKED, None))
                return original(new_state)

            return set_rng_state

        for name, make in (
            ("manual_seed", seeding),
            ("get_rng_state", asking),
            ("set_rng_state", putting),
        ):
            function = functools.wraps(getattr(torch, name))(make(getattr(torch, name)))
            setattr(torch, name, function)
            setattr(torch.random, name, function)
        self._watch_device_seeds()

    def _watch_device_seeds(self) -> None:
        import torch_xla

        bindings: Any = torch_xla._XLAC
        put = bindings._xla_set_rng_seed

        def set_rng_seed(seed: int, device: str = "") -> Any:
            known = self._states.get(int(seed))
            if known is not None:
                _go_back(known)
                return None
            core = state.current()
            core.seeds, core.drawn = (core.seeds[0], int(seed)), 0
            return put(seed, device)

        def get_rng_seed(device: str = "") -> int:  # noqa: ARG001
            with self._lock:
                number = _FIRST_STATE + len(self._states)
                self._states[number] = _position()
            return number

        bindings._xla_set_rng_seed = set_rng_seed
        bindings._xla_get_rng_seed = get_rng_seed


def _position() -> tuple[int, int, tuple[int, int]]:
    core = state.current()
    return core.steps, core.drawn, core.seeds


def _go_back(position: tuple[int, int, tuple[int, int]] | None) -> None:
    """Draw again what was drawn after that: a checkpointed block is run once more."""
    if position is not None:
        core = state.current()
        _, core.drawn, core.seeds = position


def _has_generator(kwargs: dict[str, Any]) -> bool:
    """Whether the program draws from a generator of its own; takes out any other."""
    given = kwargs.get("generator")
    simulated = randomness.current()
    if given is not None and (simulated is None or given is not simulated.torch):
        return True
    kwargs.pop("generator", None)
    return False


def _generator(*key: object) -> Any:
    import torch

    text = repr(key).encode()
    seed = zlib.crc32(text) | zlib.crc32(text + b"more") << 32
    return torch.Generator().manual_seed(seed & (1 << 63) - 1)


def _on_host(tensor: Any) -> Any:
    return tensor.detach().cpu() if hasattr(tensor, "detach") else tensor


def _elsewhere(tensor: Any) -> bool:
    """Whether a tensor is none that can be filled from the host: meta, sparse, fake, traced."""
    import torch

    return tensor.device.type not in ("cpu", "xla") or torch.compiler.is_compiling()


def _size(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The bounds and the size that a factory was given; takes them out of ``kwargs``."""
    if name != "randint":
        size = kwargs.pop("size", args)
        if len(size) == 1 and not isinstance(size[0], int):
            size = size[0]
        return (), tuple(size)
    given = list(args)
    size = kwargs.pop("size", None)
    if size is None:
        size = given.pop()
    bounds = _bounds(tuple(given), kwargs)
    kwargs.pop("low", None)
    kwargs.pop("high", None)
    return bounds, tuple(size)


def _bounds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """The bounds of random whole numbers, as torch takes them: ``(high)`` or ``(low, high)``."""
    given = list(args)
    high = kwargs["high"] if "high" in kwargs else given.pop()
    low = kwargs["low"] if "low" in kwargs else (given.pop() if given else 0)
    return int(low), int(high)


def _constructing() -> bool:
    """Whether a module is being made: what is drawn may be its weights."""
    import torch

    frame: Any = sys._getframe(2)
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == "__init__" and isinstance(
            frame.f_locals.get("self"), torch.nn.Module
        ):
            return True
        frame = frame.f_back
    return False
