"""What a program that is one program for all devices (``xr.use_spmd()``) has on each of them.

At the end of the first and behind the third optimizer step each parameter, buffer, optimizer state
and input of the step is written with its size and its sharding, as torch_xla names it:

* Names of parameters and buffers are those of the modules that are alive; wrappers are left out.
* ``_XLAC._get_xla_sharding_spec`` gives "" for a tensor that was never marked, which XLA takes for
  replicated, and after an execution what XLA has chosen for a result (torch_xla 2.9.0, seen by
  running).
* The meshes are those that are alive; their axes name the devices that exchange data.
* A mesh that torch_xla refuses is written too: the program ends with it, before it uses a device.
* A tensor and the parameter that is made of it share a storage, so the line that sent a tensor is
  the one that made the parameter what it is (seen by running).

Nothing is asked, and no module is looked at, in a program that is not SPMD.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

from . import xla
from .alive import instances
from .points import COLLECTIVE, LAUNCH, MARK, RECORD, STEP, UPLOAD, Call, Points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .process import Process
    from .sites import Sites

#: Optimizer steps at whose end the shardings are written: before the first graph runs, as they were
#: declared, and behind a later one, as they settle.
LOOKS = (1, 3)

#: Tensors of one look that get an entry (the largest), marked tensors and calls remembered.
MOST = 400

#: What a :data:`MARK` of a device loader is called.
MADE_LOADER, ITERATED = "MpDeviceLoader", "iter"

#: Where torch_xla makes meshes, and looks whether they fit the devices.
_MESHES = os.path.join("torch_xla", "distributed", "spmd", "xla_sharding.py")

_WRAPPERS = ("_orig_module.", "_checkpoint_wrapped_module.", "_orig_mod.")

#: Where ``HybridMesh`` asks where each device stands, which only TPUs can tell (torch_xla 2.9.0).
_ASKS_FOR_A_TPU = "_get_physical_tpu_mesh"


@dataclasses.dataclass(slots=True)
class _Tensor:
    kind: str
    name: str
    tensor: Any


class Shardings:
    """The shardings of one process.

    Args:
        process: Takes the rows.
        feed: Gives the row of the loader whose batch a core is at, or None.
        start: Makes the process one that is recorded, if it is not yet.
    """

    def __init__(
        self,
        process: Process,
        feed: Callable[[int | None], dict[str, Any] | None],
        start: Callable[[], None],
    ) -> None:
        self._process = process
        self._feed = feed
        self._start = start

    def begin(self, sites: Sites) -> None:
        """Begin with nothing seen, in a new process or a forked child.

        Args:
            sites: The process's program points.
        """
        self._sites = sites
        self._steps = 0
        self._due = False
        self._optimizers: dict[int, Any] = {}
        self._marks: dict[int, tuple[Any, int]] = {}  # id of a tensor -> (reference, site)
        self._inputs: list[tuple[Any, dict[str, Any]]] = []  # (reference, entry)
        self._calls: set[tuple[str, int]] = set()
        self._made: dict[int, int | None] = {}  # id of a device loader -> where it was made
        self._loader: int | None = None  # that of the one that is iterated
        self._ranks: dict[int, list[int]] = {}  # id of a device loader -> entries of its specs
        self._given: list[int] = []  # those of the one that is iterated
        self._sent: dict[int, int] = {}  # storage of a tensor -> site that sent it

    def failed(self, error: BaseException) -> None:
        """Write a mesh that torch_xla has refused; what ended the program may be anything else.

        Args:
            error: What nobody caught.
        """
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames and frames[-1].f_code.co_name == _ASKS_FOR_A_TPU:
            return  # about the kind of the devices, not about the mesh
        for frame in frames:
            code, known = frame.f_code, frame.f_locals
            made = code.co_name == "__init__" and code.co_filename.endswith(_MESHES)
            if not made or ("device_ids" not in known and "ici_mesh_shape" not in known):
                continue
            self._start()
            self._process.write(
                {
                    "e": "mesh-refused",
                    "devices": _devices(),
                    "ids": _length(known.get("device_ids")),
                    "places": _places(known.get("mesh_shape") or known.get("ici_mesh_shape")),
                    "error": f"{type(error).__name__}: {error}",
                    "site": self._sites.at_error(error),
                }
            )
            return

    def install(self, points: Points) -> None:
        """Put the observers around the points."""
        for point, function in (
            (STEP, self._step),
            (LAUNCH, self._launch),
            (UPLOAD, self._upload),
            (MARK, self._mark),
            (COLLECTIVE, self._collective),
        ):
            points.around(point, RECORD, function, f"shardings at a {point}")

    # -- points -------------------------------------------------------------------------------
    def _step(self, call: Call, proceed: Callable[[], Any]) -> Any:
        if self._steps <= LOOKS[-1]:
            self._steps += 1
            if xla.spmd():
                optimizer = call.args[0]
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)
                self._due = self._steps in LOOKS
        return proceed()

    def _launch(self, call: Call, proceed: Callable[[], Any]) -> Any:
        due = self._due and call.what == "_xla_step_marker"
        if due:
            self._due = False
        if call.what == "_xla_step_marker" and self._steps <= LOOKS[-1]:
            for held, entry in self._inputs:  # those of a step are marked by now
                tensor = held()
                if tensor is not None:
                    entry["spec"] = _spec(tensor)
        settled = self._steps == LOOKS[-1]
        if due and not settled:
            self._write(call.core)
        result = proceed()
        if due and settled:
            self._write(call.core)
        return result

    def _upload(self, call: Call, proceed: Callable[[], Any]) -> Any:
        result = proceed()
        # A device loader sends batches ahead; what else is sent before the first step is the model.
        ahead = call.what == "tensors_from_aten"
        if (ahead or self._steps) and self._steps < LOOKS[-1] and xla.spmd():
            site = self._loader if ahead else self._site()
            for tensor in _uploaded(call, result)[: MOST - len(self._inputs)]:
                entry = self._entry(_Tensor("input", "", tensor), site)
                self._inputs.append((weakref.ref(tensor), entry))
        elif not self._steps and call.what == "to" and len(self._sent) < 10 * MOST and xla.spmd():
            storage, site = _storage(result, held=True), self._site()
            if storage is not None and site is not None:
                self._sent[storage] = site
        return result

    def _mark(self, call: Call, proceed: Callable[[], Any]) -> Any:
        if call.what in (MADE_LOADER, ITERATED):
            self._device_loader(call)
            return proceed()
        if self._steps > LOOKS[-1]:
            return proceed()  # nobody looks any more
        tensor = call.args[0] if call.args else None
        if tensor is not None and (id(tensor) in self._marks or len(self._marks) < 10 * MOST):
            site = self._site()
            if site is not None:
                self._marks[id(tensor)] = (weakref.ref(tensor), site)
        return proceed()

    def _device_loader(self, call: Call) -> None:
        loader = id(call.args[0])
        if call.what == ITERATED:
            self._loader = self._made.get(loader)
            self._given = self._ranks.get(loader, [])
        elif len(self._made) < MOST:
            self._made[loader] = self._site()
            self._ranks[loader] = _ranks(call.kwargs.get("input_sharding"))

    def _collective(self, call: Call, proceed: Callable[[], Any]) -> Any:
        """A collective between cores: under SPMD there is one core, and nothing is exchanged."""
        if len(self._calls) < MOST and xla.spmd():
            site = self._site()
            if site is not None and (call.what, site) not in self._calls:
                self._calls.add((call.what, site))
                self._process.write({"e": "spmd-call", "what": call.what, "site": site})
        return proceed()

    # -- rows ---------------------------------------------------------------------------------
    def _write(self, core: int | None) -> None:
        modules, meshes = _alive()
        entries = [self._entry(one, self._marked_at(one.tensor)) for one in self._kept(modules)]
        if self._steps == LOOKS[-1]:
            entries += _once(entry for _, entry in self._inputs)
        entries.sort(key=lambda entry: -int(entry["bytes"]))
        self._process.write(
            {
                "e": "sharding",
                "core": core or 0,
                "step": self._steps,
                "devices": _devices(),
                "meshes": meshes,
                "fed": self._feed(core),
                "ranks": self._given,
                "tensors": entries[:MOST],
                "others": sum(int(entry["bytes"]) for entry in entries[MOST:]),
            }
        )

    def _kept(self, modules: list[Any]) -> Iterator[_Tensor]:
        names: dict[int, str] = {}
        for module in modules:
            for kind, named in (
                ("parameter", module.named_parameters()),
                ("buffer", module.named_buffers()),
            ):
                for name, tensor in named:
                    if tensor.is_xla and id(tensor) not in names:
                        names[id(tensor)] = _plain(name)
                        yield _Tensor(kind, names[id(tensor)], tensor)
        for held in self._optimizers.values():
            optimizer = held()
            groups = () if optimizer is None else optimizer.param_groups
            for number, parameter in enumerate(one for group in groups for one in group["params"]):
                name = names.get(id(parameter))
                if name is None:
                    name = names[id(parameter)] = f"parameter {number} of the optimizer"
                    if parameter.is_xla:
                        yield _Tensor("parameter", name, parameter)
                for key, state in optimizer.state.get(parameter, {}).items():
                    if getattr(state, "is_xla", False) and state.dim():
                        yield _Tensor("state", f"{name}: {key}", state)

    def _entry(self, one: _Tensor, site: int | None) -> dict[str, Any]:
        tensor = one.tensor
        return {
            "kind": one.kind,
            "name": one.name,
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "bytes": math.prod(tensor.shape) * tensor.element_size(),
            "spec": _spec(tensor),
            "site": site,
            "sent": None if one.kind == "input" else self._sent.get(_storage(tensor) or 0),
        }

    def _marked_at(self, tensor: Any) -> int | None:
        held, site = self._marks.get(id(tensor), (None, None))
        return site if held is not None and held() is tensor else None

    def _site(self) -> int | None:
        """The user's line that the calling thread is at; None in threads that help a core."""
        if threading.current_thread() is not threading.main_thread():
            return None
        frames = self._sites.frames(sys._getframe(1))
        return self._sites.of(frames) if frames else None


def _once(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Inputs that are alike (of several steps) as one entry."""
    kept: dict[str, dict[str, Any]] = {}
    for entry in entries:
        kept.setdefault(repr(sorted(entry.items())), entry)
    return list(kept.values())


def _uploaded(call: Call, result: Any) -> list[Any]:
    if call.what == "to":
        return [result]
    if call.what == "tensors_from_aten":
        return [one for one in result if getattr(one, "is_xla", False)]
    return []


def _spec(tensor: Any) -> str:
    asked = xla.binding("_get_xla_sharding_spec")
    return "" if asked is None else str(asked(tensor))


def _storage(tensor: Any, *, held: bool = False) -> int | None:
    """The number of a tensor's storage; ``held`` keeps it from being given to another one."""
    if not getattr(tensor, "is_xla", False):
        return None
    storage = tensor.untyped_storage()
    return int(storage._weak_ref() if held else storage._cdata)


def _ranks(given: Any) -> list[int]:
    """The entries of each spec that a device loader is given."""
    specs = given.values() if isinstance(given, dict) else [given]
    held = (getattr(one, "partition_spec", None) for one in specs)
    return [len(one) for one in held if isinstance(one, tuple)]


def _length(ids: Any) -> int | None:
    return len(ids) if hasattr(ids, "__len__") else None


def _places(shape: Any) -> int | None:
    whole = isinstance(shape, tuple | list) and all(isinstance(one, int) for one in shape)
    return math.prod(shape) if whole else None


def _devices() -> int:
    return int(importlib.import_module("torch_xla.runtime").global_runtime_device_count())


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _alive() -> tuple[list[Any], list[dict[str, Any]]]:
    """The modules that no other module holds, and the meshes."""
    import torch

    module_class = torch.nn.Module
    spmd = sys.modules.get("torch_xla.distributed.spmd.xla_sharding")
    mesh_classes = () if spmd is None else (spmd.Mesh,)
    modules: list[Any] = []
    meshes: list[dict[str, Any]] = []
    for one in instances(module_class, *mesh_classes):
        if issubclass(type(one), module_class):
            modules.append(one)
        else:
            mesh = {
                "axes": [str(axis) for axis in one.axis_names or ()],
                "shape": [int(size) for size in one.mesh_shape],
                "devices": [int(device) for device in one.device_ids],
            }
            if mesh not in meshes:
                meshes.append(mesh)
    # What __init__ has not finished has no modules of its own yet.
    held = {id(child) for module in modules for child in getattr(module, "_modules", {}).values()}
    return [one for one in modules if id(one) not in held and hasattr(one, "_modules")], meshes
