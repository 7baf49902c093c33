"""What is believed of values in files for XLA devices, by what the program does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import container
from xladoctor.lint.model.dotted import dotted_text
from xladoctor.lint.model.evidence import Evidence
from xladoctor.lint.model.values import UNKNOWN, Kind, Value

if TYPE_CHECKING:
    from xladoctor.lint.model.frames import Frame
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.running import Running
    from xladoctor.lint.model.syntax import Tree


class Belief:
    """Answers for modules and names.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        xla: The modules that are for XLA devices: only there are names such as ``device`` or the
            arguments of ``forward`` believed.
        now: What runs just now.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names | LinkedNames,
        xla: frozenset[cst.Module],
        now: Running,
    ) -> None:
        self._tree = tree
        self._xla = xla
        self._now = now
        self._evidence = Evidence(tree, names)

    def believes(self, node: cst.CSTNode | None = None) -> bool:
        """Whether the module of a node (or of the code that runs now) is for XLA devices."""
        module = self._now.module if node is None else self._tree.module_of(node)
        return module in self._xla

    def steps(self) -> bool:
        """Whether the code that runs now is of a module that takes steps on the device."""
        return self.believes() and self._evidence.takes_steps(self._now.module)

    def believed(self, name: str, value: Value, frame: Frame) -> Value:
        """What a name holds that is bound to a value, by what its function does with it."""
        value = self.as_device(name, value, frame)
        home = frame.function or self._now.module
        if value.kind in {Kind.UNKNOWN, Kind.NUMBER} and self.steps():  # of no loader: ``None``
            call = self._evidence.fed(home, name)
            if call is not None:
                return Value(Kind.DEVICE_TENSOR, origin=call, local=True)
        unread = value.kind is Kind.OBJECT and value.instance is None and not value.classes
        if not (unread or value.kind in {Kind.UNKNOWN, Kind.DEVICE_TENSOR}) or not self.believes():
            return value
        if unread:  # ``net = Net()``, of a file that is not there; no metric, which is moved too
            metric = (value.type_name or "").startswith(know.BROUGHT_TOGETHER)
            whole = not metric and self._evidence.is_model(home, name, moved=False)
            return Value(Kind.MODEL, origin=value.origin, local=value.local) if whole else value
        if name in frameworks.ACCELERATORS and value == UNKNOWN:  # ``accelerator = build(config)``
            return Value(Kind.OBJECT, type_name=frameworks.ACCELERATOR_CLASS)
        if value.kind is Kind.DEVICE_TENSOR:
            # ``net = build(args).to(device)``
            whole = (
                not value.local
                and _is_move(value.origin)
                and self._evidence.is_model(home, name, moved=True)
            )
            return Value(Kind.MODEL, origin=value.origin, on_device=True) if whole else value
        if self._evidence.is_model(home, name, moved=False):
            return Value(Kind.MODEL, origin=value.origin, local=value.local)
        if self._evidence.is_optimizer(home, name):
            return Value(Kind.OPTIMIZER, origin=value.origin)
        step = self._evidence.stepped(home, name)
        if step is None:
            taken = self._evidence.holds_losses(home, name)
            if taken is None:
                return value
            return container(Value(Kind.DEVICE_TENSOR, origin=taken, local=True))
        return Value(Kind.DEVICE_TENSOR, origin=step, local=value.local)

    def of_attribute(self, node: cst.Attribute, frame: Frame) -> Value:
        """What ``self.gen`` is that an unread function made, by what its class does with it."""
        text = dotted_text(node)
        if text is None or not text.startswith("self.") or not self.believes():
            return UNKNOWN
        home = frame.function or self._now.module
        if self._evidence.is_model(home, text, moved=False):
            return Value(Kind.MODEL)
        return Value(Kind.OPTIMIZER) if self._evidence.is_optimizer(home, text) else UNKNOWN

    def as_device(self, text: str, value: Value, frame: Frame) -> Value:
        """The device of the family, if a device loader is given what is called so."""
        if value.kind not in {Kind.UNKNOWN, Kind.NUMBER, Kind.OTHER_DEVICE}:
            return value
        call = self._evidence.given_as_device(frame.function or self._now.module, text)
        return value if call is None else Value(Kind.DEVICE, origin=call)


def _is_move(node: cst.CSTNode | None) -> bool:
    """``....to(device)``: what a model gives back is none, whatever is done with it."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in {"to", "cuda", "prepare", "setup"}
    )
