"""The value of a method call on what holds others: containers, and models of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import frameworks
from xladoctor.lint.model.contained import container, element_of, modules, under, updated
from xladoctor.lint.model.dotted import text_of
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Arguments, Value, join

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.frames import Frame


class HolderMethods:
    """Evaluates methods of what holds other values.

    Args:
        flow: The run that the calls belong to: what holds more than before is bound anew there.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def of_modules(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value | None:
        """``layers.append(Block())``, ``heads.items()`` of what holds modules."""
        name = func.attr.value
        if name in {"append", "add_module", "extend", "insert", "update"} and arguments:
            added = arguments[-1][1]
            added = element_of(added) if name in {"extend", "update"} else added
            parts = [element_of(receiver), added] if receiver.element is not None else [added]
            grown = modules(parts, places=False, node=node, name=receiver.type_name or "")
            moved = grown.but(on_device=receiver.on_device, origin=receiver.origin)
            self._flow.statements.assign(func.value, moved, frame)
            return NUMBER
        if name == "items":
            return container(container(None, (NUMBER, element_of(receiver))))
        return container(element_of(receiver)) if name == "values" else None

    def of_container(
        self,
        node: cst.Call,
        func: cst.Attribute,
        receiver: Value,
        arguments: Arguments,
        frame: Frame,
    ) -> Value:
        """``kept.append(x)``, ``d.items()`` of a list, dictionary or set: what it then holds."""
        name = func.attr.value
        if name == "update" and receiver.entries is not None:
            self._flow.statements.assign(func.value, updated(receiver, arguments), frame)
            return NUMBER
        if name in {"append", "add", "appendleft", "extend", "insert", "update"} and arguments:
            # ``figures.update(loss=loss, lr=0.1)``: each of them
            for key, value in arguments if name == "update" else arguments[-1:]:
                whole = name in {"extend", "update"} and key is None
                added = element_of(value) if whole else value
                self._flow.statements.put_into(func.value, added, frame)
            return NUMBER
        if name == "items":
            return container(container(None, (NUMBER, element_of(receiver))))
        if name == "values":
            return container(element_of(receiver))
        if name == "copy":
            return receiver
        if name == "setdefault" and len(arguments) > 1:
            self._flow.statements.put_into(func.value, arguments[1][1], frame)
            return join(element_of(receiver), arguments[1][1])
        if name in {"get", "pop", "popleft", "popitem", "setdefault"}:
            key = text_of(node.args[0].value) if node.args else None
            return UNKNOWN if key in frameworks.FLAGS_OF_BATCHES else under(receiver, key)
        if name in {"index", "count", "keys"}:
            return NUMBER if name != "keys" else container(NUMBER)
        return UNKNOWN
