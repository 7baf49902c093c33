"""The fix of ``pl.ParallelLoader``: ``pl.MpDeviceLoader``, which makes one for every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Function
from xladoctor.lint.rewrites.imports import spell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.findings import Edit, Fix
    from xladoctor.lint.model import CallSite, FileModel

PARALLEL = "torch_xla.distributed.parallel_loader.ParallelLoader"
_DEVICE_LOADER = "torch_xla.distributed.parallel_loader.MpDeviceLoader"
#: What can be done with the iterator of ``per_device_loader`` and not with a device loader.
_ITERATOR_METHODS = frozenset({"next", "__next__", "close", "next_item", "per_device_samples"})


class _Odd(Exception):  # noqa: N818 (it is no error of anybody's)
    """The loader is used in a way that is not understood."""


def device_loader_fix(model: FileModel, call: CallSite) -> Fix | None:
    """Write ``MpDeviceLoader(loader, device)`` and iterate it where the program asked for one.

    Args:
        model: The file.
        call: ``pl.ParallelLoader(loader, [device])``.

    Returns:
        None if the device is not written there, or the loader goes where it cannot be followed.
    """
    if _uses_iterators(model):
        return None
    try:
        edits = list(dict.fromkeys(_Group(model).of(call)))
    except _Odd:
        return None
    return model.fix("Use MpDeviceLoader", edits, safe=True)


def _uses_iterators(model: FileModel) -> bool:
    for call in model.calls("builtins.next"):
        first = call.argument(0)
        if not isinstance(first, cst.Call) or model.call(first).name != "builtins.iter":
            return True
    return any(
        call.name is None and not call.node.args for call in model.methods(*_ITERATOR_METHODS)
    )


class _Group:
    """The loaders that reach the same ``per_device_loader`` calls: changed together or not."""

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._seen: set[object] = set()

    def of(self, call: CallSite) -> Iterator[Edit]:
        """The edits for a loader and all that goes with it."""
        if call.node in self._seen:
            return
        self._seen.add(call.node)
        model, parent = self._model, self._model.parent(call.node)
        made, imports = self._made(call)
        yield from imports
        if isinstance(parent, cst.Attribute):
            yield self._edit(self._asked(parent), made)
            return
        if isinstance(parent, cst.Arg):
            yield self._edit(call.node, made)
            yield from self._passed(parent)
            return
        if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
            raise _Odd
        target = parent.targets[0].target
        if not isinstance(target, cst.Name):
            raise _Odd
        yield self._edit(call.node, made)
        yield from self._name(target)
        assert model.is_here(call.node)

    def _made(self, call: CallSite) -> tuple[str, list[Edit]]:
        """``pl.MpDeviceLoader(loader, device, ...)`` as text."""
        model = self._model
        loader = call.argument(0, "cpu_loader") or call.argument(None, "loader")
        devices = call.argument(1, "devices")
        if call.has_star or len(call.positional) > 2 or loader is None:
            raise _Odd
        if not isinstance(devices, cst.List) or len(devices.elements) != 1:
            raise _Odd
        element = devices.elements[0]
        if isinstance(element, cst.StarredElement) or "#" in model.tree.text(call.node):
            raise _Odd
        func = call.node.func
        if isinstance(func, cst.Attribute):
            imports: list[Edit] = []
            spelled = f"{model.tree.text(func.value).strip()}.MpDeviceLoader"
        else:
            written = spell(model, call.node, _DEVICE_LOADER)
            if written is None:
                raise _Odd
            spelled, imports = written
        given = [model.tree.text(item).strip() for item in (loader, element.value)]
        given += [
            f"{name}={model.tree.text(value).strip()}"
            for name, value in call.keywords.items()
            if name not in {"cpu_loader", "loader", "devices"}
        ]
        return f"{spelled}({', '.join(given)})", imports

    def _name(self, name: cst.Name) -> Iterator[Edit]:
        """All uses of a name, whose every meaning must be such a loader."""
        model = self._model
        bindings = model.bindings(name.value, name)
        if id(bindings) in self._seen:
            return
        self._seen.add(id(bindings))
        for binding in bindings:
            if binding.kind == "assign" and isinstance(binding.node, cst.Call):
                other = model.call(binding.node)
                if other.name != PARALLEL:
                    raise _Odd
                yield from self.of(other)
            elif binding.kind == "param" and isinstance(binding.node, cst.Param):
                yield from self._given(binding.node)
            else:
                raise _Odd
        for use in model.nodes(cst.Name):
            if use.value == name.value and model.bindings(use.value, use) is bindings:
                yield from self._use(use)

    def _use(self, use: cst.Name) -> Iterator[Edit]:
        parent = self._model.parent(use)
        if isinstance(parent, cst.AssignTarget | cst.Param | cst.Del):
            return
        if isinstance(parent, cst.Arg) and parent.keyword is use:
            return
        if isinstance(parent, cst.Attribute):
            if parent.attr is not use:
                yield self._edit(self._asked(parent), use.value)
            return
        if not isinstance(parent, cst.Arg):
            raise _Odd
        yield from self._passed(parent)

    def _asked(self, attribute: cst.Attribute) -> cst.Call:
        """The call ``x.per_device_loader(device)`` of which this is the function."""
        call = self._model.parent(attribute)
        if attribute.attr.value != "per_device_loader" or not isinstance(call, cst.Call):
            raise _Odd
        if call.func is not attribute or len(call.args) != 1:
            raise _Odd
        return call

    def _passed(self, argument: cst.Arg) -> Iterator[Edit]:
        """An argument of a function of the file: its parameter is such a loader then."""
        model, call = self._model, self._model.parent(argument)
        target = model.call(call).target if isinstance(call, cst.Call) else None
        if not isinstance(call, cst.Call) or not isinstance(target, Function):
            raise _Odd
        if argument.star or not isinstance(target.node, cst.FunctionDef):
            raise _Odd
        if not model.is_here(target.node) or target.owner is not None:
            raise _Odd
        if argument.keyword is not None:
            name = argument.keyword.value
        else:
            index = call.args.index(argument)
            if index >= len(target.parameters):
                raise _Odd
            name = target.parameters[index]
        for parameter in target.node.params.params:
            if parameter.name.value == name:
                yield from self._name(parameter.name)
                return
        raise _Odd

    def _given(self, parameter: cst.Param) -> Iterator[Edit]:
        """What callers give for a parameter: loaders of this kind, all of them."""
        model = self._model
        function = model.function_of(parameter.name)
        if function is None or parameter.default is not None or not model.callers(function):
            raise _Odd
        for call in model.callers(function):
            value = call.given_to(function, parameter.name.value)
            if value is None or not model.is_here(call.node) or call.has_star:
                raise _Odd
            if isinstance(value, cst.Call) and model.call(value).name == PARALLEL:
                yield from self.of(model.call(value))
            elif isinstance(value, cst.Name):
                yield from self._name(value)
            else:
                raise _Odd

    def _edit(self, node: cst.CSTNode, content: str) -> Edit:
        edit = self._model.replace(node, content)
        if edit is None:
            raise _Odd
        return edit
