"""What reads values of device tensors on the host: methods, casts, functions, stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.copies import COPIES, copied_to_host
from xladoctor.lint.events import Event, How
from xladoctor.lint.library import Effect
from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.parts import literal_parts
from xladoctor.lint.model.trainers import LOADERS
from xladoctor.lint.model.training import steps_environment
from xladoctor.lint.model.values import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.library import Name
    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.file import FileModel
    from xladoctor.lint.model.values import Value

#: Methods of a tensor that hand its content to the host.
_READS = ("item", "cpu", "tolist", "numpy", "is_nonzero")
_CASTS = tuple(f"builtins.{name}" for name in ("float", "int", "bool", "complex", "range"))
_LOADERS = frozenset({"torch.utils.data.DataLoader",
                      "torchdata.stateful_dataloader.StatefulDataLoader"})  # fmt: skip


class Reads:
    """The reads of a file.

    Args:
        model: The file.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model

    def of_call(self, call: CallSite, name: Name | None) -> Iterator[Event]:
        """The read that a call is by itself, if it is one.

        Args:
            call: The call.
            name: What the library knows of what it calls.
        """
        tensor, how = self._by_method(call), How.METHOD
        if tensor is None and call.name is not None and _is_cast(call.name):
            tensor, how = self._device_tensor(call.positional), How.CAST
        elif tensor is None and call.method in COPIES:
            tensor = copied_to_host(self._model, call)
        elif tensor is None and (given := processed(call)):
            inner = [part for value in given for part in literal_parts(value)]
            tensor, how = self._device_tensor([*given, *inner]), How.LIBRARY
        elif tensor is None and tells_text(call):
            tensor, how = self._by_library(call) or self._ids(call), How.LIBRARY
        elif tensor is None and self._looks(call, name):
            tensor, how = self._by_library(call), How.LIBRARY
        if tensor is not None:
            yield Event(Effect.READ, call.node, call, name, tensor, how)

    def _by_method(self, call: CallSite) -> cst.BaseExpression | None:
        tensor = call.receiver
        if tensor is None or call.method not in {*_READS, "to"}:
            return None
        value = self._model.value(tensor)
        if not value.is_device_tensor or (call.method == "to" and not self._to_cpu(call)):
            return None
        # ``.numpy()`` of what is certainly on the device raises instead.
        return None if call.method == "numpy" and value.certain else tensor

    def _to_cpu(self, call: CallSite) -> bool:
        target = call.argument(0, "device")
        held = self._model.value(target) if target is not None else None
        if held is not None and held.kind is Kind.OTHER_DEVICE and held.certain and not held.roads:
            # ``host = torch.device("cpu")``, and where ``x.is_cuda`` does not hold.
            target = held.origin if isinstance(held.origin, cst.Call) else target
        if isinstance(target, cst.Call) and self._model.name(target.func) == "torch.device":
            target = self._model.call(target).argument(0, "type") or target
        return target is not None and self._model.literal(target) == "cpu"

    def _looks(self, call: CallSite, name: Name | None) -> bool:
        """Whether a call looks at the values of what it is given: it is known to, or says so."""
        if name is not None:
            return Effect.READ in name.effects
        if call.name is None and (
            self._is_writer(call) or self._acts(call) or self._is_log_of_trainer(call)
        ):
            return True
        torchs = call.name is not None and call.name.startswith(("torch.", "torch_xla."))
        return call.target is None and not torchs and bool(know.READER.search(call.last))

    def _acts(self, call: CallSite) -> bool:
        """``env.step(action)`` of a simulation that runs on the host, and looks at the action."""
        if call.target is not None or not steps_environment(call.node):
            return False
        parts = (self._model, *self._model.linked)
        return any(know.SIMULATIONS.match(name) for part in parts for name in part.named)

    def _is_log_of_trainer(self, call: CallSite) -> bool:
        """``self.log({"accuracy": right.mean()})`` of a Trainer, whose callbacks print it.

        Also ``accelerator.log(...)``, whose trackers write it down.
        """
        if call.method != "log" or call.receiver is None or call.target is not None:
            return False
        value = self._model.value(call.receiver)
        if value.type_name == frameworks.ACCELERATOR_CLASS:
            return True
        instance = value.instance
        return instance is not None and not frameworks.TRAINERS.isdisjoint(
            self._model.library_bases(instance.cls)
        )

    def _is_writer(self, call: CallSite) -> bool:
        """A method of a logger, by its name: TensorBoard's writer goes by many names."""
        return call.method in self._model.library.methods(Effect.READ)

    def _by_library(self, call: CallSite) -> cst.BaseExpression | None:
        values = [*call.positional, *call.keywords.values()]
        inner = [part for value in values for part in literal_parts(value)]
        tensor = self._device_tensor([*values, *inner])
        if tensor is not None and call.name == "torch.tensor" and tensor not in inner:
            return None  # torch.tensor(t) of one tensor is a copy on its device
        if tensor is None and call.name == "torch.tensor":
            # Of a list it reads each.
            listed = (self._model.value(node) for node in values[:1])
            tensor = values[0] if any(_lists_device_tensors(value) for value in listed) else None
        return tensor or self._device_tensor([*self._written(values)])

    def _written(self, values: Sequence[cst.BaseExpression]) -> Iterator[cst.BaseExpression]:
        """``wandb.log(logs)`` of a dictionary that is written down before: ``logs = {...}``."""
        for node in values:
            bound = self._model.bindings(node.value, node) if type(node) is cst.Name else ()
            for made in [item.node for item in bound] or [node]:
                if isinstance(made, cst.Call) and self._model.name(made.func) == "builtins.dict":
                    yield from self._model.call(made).keywords.values()
                elif made is not node:
                    yield from literal_parts(made)

    def _device_tensor(self, nodes: Sequence[cst.BaseExpression]) -> cst.BaseExpression | None:
        return next((node for node in nodes if self._model.value(node).is_device_tensor), None)

    def _ids(self, call: CallSite) -> cst.BaseExpression | None:
        """What a tokenizer makes texts of: tensors, or one or some of them on each road."""
        values = ((node, self._model.value(node)) for node in call.positional[:1])
        return next((node for node, value in values if _is_read(value)), None)

    def stores(self) -> Iterator[Event]:
        """``losses[i] = loss`` with ``losses`` on the CPU waits without a word of it."""
        for node in self._model.nodes(cst.Assign):
            if self._model.value(node.value).is_device_tensor and any(
                isinstance(item.target, cst.Subscript) and self._is_cpu_tensor(item.target.value)
                for item in node.targets
            ):
                yield Event(Effect.READ, node, value=node.value, how=How.STORE)

    def _is_cpu_tensor(self, node: cst.BaseExpression) -> bool:
        """Whether something was made as one tensor: a loader's batch may be a dictionary."""
        value = self._model.value(node)
        if value.kind is not Kind.CPU_TENSOR or not isinstance(value.origin, cst.Call):
            return False
        made = value.origin.func
        own = isinstance(made, cst.Attribute) and made.attr.value in LOADERS
        return not own and self._model.name(made) not in _LOADERS


def tells_text(call: CallSite) -> bool:
    """``tokenizer.decode(ids)`` takes the ids to the host, whatever they are on."""
    if call.name is not None or call.method not in know.TELLS_IDS:
        return False
    text = dotted_text(call.receiver) if call.receiver is not None else None
    named = know.TOKENIZER_NAME.search((text or "").rpartition(".")[2])
    return call.method == "batch_decode" or named is not None


def processed(call: CallSite) -> Sequence[cst.BaseExpression]:
    """What ``processor(images=pixels, return_tensors="pt")`` makes arrays of.

    ``tokenizer.pad({"input_ids": ids})`` makes lists of all. Tokenizers that are called take texts
    alone, and a module that is called so takes no such arguments.
    """
    if call.name is not None or call.target is not None:
        return ()
    pads = call.method == "pad" and call.receiver is not None
    text = dotted_text(call.receiver if pads and call.receiver is not None else call.node.func)
    last = (text or "").rpartition(".")[2]
    if know.TOKENIZER_NAME.search(last) is None:
        return ()
    named = [value for key, value in call.keywords.items() if key in know.PROCESSED]
    if pads:
        return [*call.positional, *call.keywords.values()]
    sure = know.PROCESSOR_NAME.search(last) and not know.OF_PROCESSORS.isdisjoint(call.keywords)
    return [*named, *(call.positional if sure else ())]


def _is_read(value: Value) -> bool:
    """A device tensor, or one or some on each road: ``ids if mask is None else (ids, mask)``."""
    return value.is_device_tensor or (bool(value.roads) and value.holds_device_tensor)


def _is_cast(name: str) -> bool:
    return name in _CASTS or name.startswith("math.")


def _lists_device_tensors(value: Value) -> bool:
    return value.kind is Kind.CONTAINER and value.holds_device_tensor
