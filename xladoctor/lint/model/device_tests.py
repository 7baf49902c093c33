"""What a condition is on XLA devices.

A condition is judged by what its parts are bound to and by whole words of what programs call their
settings: ``args.use_tpu``, ``CFG["is_xla"]``, ``torch.cuda.is_available()``,
``device.type == "xla"``. "gpu" within a longer word ("timestamps" for "mps") says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.conditions import joined
from xladoctor.lint.model.dotted import is_name, last_name, string, takes_torch_xla
from xladoctor.lint.model.loops import OnXla
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.process_groups import ProcessGroups
from xladoctor.lint.model.syntax import children
from xladoctor.lint.model.unreached import combined, is_logic
from xladoctor.lint.words import EXTENSIONS, OTHER_WORDS, XLA_WORDS, flag, kinds_of_xla, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: Words that ask for the kind of device, whatever the answer.
_ASKS = XLA_WORDS | OTHER_WORDS | {"backend", "platform", "pjrt"}
#: What asks for the operating system.
_NOT_DEVICES = ("sys.", "platform.", "os.name")
#: What objects call torch_xla's modules that they keep.
_MODULES = frozenset({"xm", "xla_model", "torch_xla"})
#: Words in the names of enumerations of kinds of devices.
_ENUMERATIONS = frozenset({"device", "devices", "accelerator", "backend", "platform", "hardware"})
#: What DeepSpeed's ZeRO keeps in the parameters that it has divided.
_OF_ZERO = frozenset({"ds_id", "ds_status", "ds_tensor", "ds_shape", "ds_numel"})
_DEPTH = 4


class DeviceTests:
    """What conditions say of the device that a program runs on.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        asked: What the conditions around a node say of the devices that it runs on.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names | LinkedNames,
        asked: Callable[[cst.CSTNode], OnXla | None],
    ) -> None:
        self._tree = tree
        self._names = names
        self._asked = asked
        self._open: set[str] = set()
        #: What conditions say of process groups of PyTorch.
        self.groups = ProcessGroups(tree, names)

    def of_guard(self, test: cst.BaseExpression, *, when: bool) -> OnXla | None:
        """What it says of a branch that its condition has that truth value there.

        Returns:
            None if the condition does not ask for the kind of device.
        """
        truth = self.truth(test)
        if truth is False and not when and self._asks_for_extension(test):
            return None
        if truth is not None:
            return OnXla.YES if truth is when else OnXla.NO
        if when and self._needs_xla(test):
            return OnXla.YES
        if not when and self._is_xla_unless_cpu(test):
            return OnXla.NO
        if self._asks(test) or (self.groups.asked(test) is when and not self.groups.of_xla):
            return OnXla.MAYBE
        return None

    def _asks_for_extension(self, test: cst.BaseExpression) -> bool:
        """``if use_deepspeed``: where it is false, nothing is said of the device."""
        if isinstance(test, cst.Call) and self._asks_for_zero(test):
            return True
        said = self._words(test) & (XLA_WORDS | OTHER_WORDS)
        return bool(said) and said <= EXTENSIONS

    def _asks_for_zero(self, test: cst.Call) -> bool:
        """``hasattr(param, "ds_id")``: is it divided by DeepSpeed?"""
        if self._names.resolve(test.func) != "builtins.hasattr" or len(test.args) != 2:
            return False
        asked = test.args[1].value
        return isinstance(asked, cst.SimpleString) and string(asked) in _OF_ZERO

    def truth(self, test: cst.BaseExpression, depth: int = _DEPTH) -> bool | None:
        """What a condition is on XLA devices; None if it does not say so."""
        if is_logic(test):
            return combined(test, lambda part: self.truth(part, depth))
        if isinstance(test, cst.Comparison):
            return self._comparison(test)
        if isinstance(test, cst.Call):
            return self._call(test, depth)
        if isinstance(test, cst.Name) and depth:
            bound = self._tree.assigned_once(test)
            known = self.truth(bound, depth - 1) if bound is not None else None
            if known is not None:
                return known
        if self._is_torch_xla(test) or self._is_imported(test):
            return True
        if self._stays_none(test):
            return False
        return flag(_said_by(test))

    def _stays_none(self, node: cst.BaseExpression) -> bool:
        """``scaler = None``, and anything else only where the program runs on other devices.

        Also ``index = device.index if device.type == "cuda" else None``.
        """
        if not isinstance(node, cst.Name) or node.value in self._open:
            return False
        bindings = self._tree.bindings(node)
        given = [item.node for item in bindings if not is_name(item.node, "None")]
        if not given or any(item.kind != "assign" for item in bindings):
            return False
        self._open.add(node.value)  # ``if scaler is not None: scaler = wrap(scaler)``
        try:
            others = [one for one in given if one is not None and not self._is_none_here(one)]
            if len(others) == len(bindings):
                return False
            return all(self._asked(one) is OnXla.NO for one in others)
        finally:
            self._open.discard(node.value)

    def _is_none_here(self, node: cst.CSTNode) -> bool:
        """Whether a choice by the kind of device gives None on XLA devices."""
        if not isinstance(node, cst.IfExp):
            return False
        holds = self.truth(node.test)
        return holds is not None and is_name(node.body if holds else node.orelse, "None")

    def _is_imported(self, node: cst.BaseExpression) -> bool:
        """``FOUND = True`` behind ``import torch_xla`` in a ``try``, else ``FOUND = False``."""
        if not isinstance(node, cst.Name):
            return False
        bindings = self._tree.bindings(node)
        found = [item.node for item in bindings if is_name(item.node, "True")]
        missing = [item.node for item in bindings if is_name(item.node, "False")]
        known = bool(found) and bool(missing) and len(found) + len(missing) == len(bindings)
        return known and all(map(self._behind_import, found))

    def _behind_import(self, node: cst.CSTNode) -> bool:
        """Whether a node runs where the imports of torch_xla of its ``try`` have not failed."""
        above = list(self._tree.ancestors(node))
        tried = next((one for one in above if isinstance(one, cst.Try)), None)
        if tried is None or not (tried.body in above or tried.orelse in above):
            return False
        return any(
            tried.body in self._tree.ancestors(one) and takes_torch_xla(one)
            for one in self._tree.imports
        )

    def _is_torch_xla(self, node: cst.BaseExpression) -> bool:
        """``xm``, which is None where torch_xla is missing, also kept as ``self.xm``."""
        if isinstance(node, cst.Attribute):
            return node.attr.value in _MODULES
        if not isinstance(node, cst.Name):
            return False
        return (self._names.resolve(node) or "").partition(".")[0] == "torch_xla"

    def _call(self, test: cst.Call, depth: int) -> bool | None:
        func, given = test.func, [argument.value for argument in test.args]
        name = self._names.resolve(func) or ""
        if name == "builtins.bool" and given:
            return self.truth(given[0], depth)
        if self._asks_for_zero(test):
            return False
        if name == "builtins.isinstance" and len(given) == 2:
            kind = (self._names.resolve(given[1]) or "").rpartition(".")[2]
            return True if words(kind) & XLA_WORDS else None
        if name == "builtins.getattr" and len(given) > 1:
            return flag(_said_by(given[1]).removesuffix("_device"))  # ``"xla_device"``
        method = func.attr.value if isinstance(func, cst.Attribute) else ""
        if method == "get" and given:
            return flag(_said_by(given[0]))
        if method in {"startswith", "endswith"} and given:
            return kinds_of_xla(_strings(given[0]))
        if method == "is_available" and isinstance(func, cst.Attribute):
            return flag(_said_by(func.value))
        return flag(_said_by(func))

    def _comparison(self, test: cst.Comparison) -> bool | None:
        if len(test.comparisons) != 1:
            return None
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        positive = isinstance(operator, cst.Equal | cst.In | cst.Is)
        if not positive and not isinstance(operator, cst.NotEqual | cst.NotIn | cst.IsNot):
            return self._counted(test)
        if is_name(right, "None"):
            known: bool | None = False if self._is_torch_xla(test.left) else None
            if known is None and self._stays_none(test.left):
                known = True
        elif isinstance(right, cst.Name) and right.value in {"True", "False"}:
            known = self.truth(test.left)  # ``if args.tpu != True``
            known = None if known is None else known is (right.value == "True")
        elif isinstance(operator, cst.Equal | cst.NotEqual) and self._is_half(test.left, right):
            known = False
        else:
            named = [*self._kinds(test.left), *self._kinds(right)]
            known = kinds_of_xla(named)
            if known is None and named == ["cpu"] and self._is_device(test.left):
                known = False
        return None if known is None else known is positive

    def _is_half(self, node: cst.BaseExpression, compared: cst.BaseExpression) -> bool:
        """``x.dtype == torch.float16``: TPUs compute in bfloat16, and nobody trains so on them."""
        halves = {"torch.float16", "torch.half"}
        return last_name(node) == "dtype" and self._names.resolve(compared) in halves

    def _kinds(self, node: cst.BaseExpression) -> list[str]:
        """The kinds of device that an expression names, also as members of enumerations.

        Texts, Accelerate's ``DistributedType.MULTI_GPU``, ``DeviceType.CUDA``, a constant ``CUDA``.
        """
        if isinstance(node, cst.Name):
            word = node.value.lower()
            return [word] if node.value.isupper() and word in XLA_WORDS | OTHER_WORDS else []
        if isinstance(node, cst.Attribute):
            owner = self._names.resolve(node.value) or ""
            # ``MULTI_GPU``: the kind stands last.
            kind = node.attr.value.rpartition("_")[2].lower()
            known = owner.endswith(".DistributedType") or (
                node.attr.value.isupper() and words(last_name(node.value)) & _ENUMERATIONS
            )
            return [kind] if known and kind in XLA_WORDS | OTHER_WORDS else []
        return _strings(node)

    def _counted(self, test: cst.Comparison) -> bool | None:
        """``torch.cuda.device_count() > 0``: the hosts of XLA devices have no GPU as a rule."""
        more = isinstance(test.comparisons[0].operator, cst.GreaterThan | cst.GreaterThanEqual)
        called = test.left.func if isinstance(test.left, cst.Call) else None
        counts = called is not None and self._names.resolve(called) == "torch.cuda.device_count"
        return False if counts and more else None

    def _is_device(self, node: cst.BaseExpression) -> bool:
        """``device``, and the ``mode`` of ``if mode == "cpu":``."""
        return not self._words(node).isdisjoint({"device", "mode"})

    def _needs_xla(self, test: cst.BaseExpression) -> bool:
        """Whether a condition that holds is one that needs XLA: ``use_tpu and epoch > 0``."""
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            return self._needs_xla(test.left) or self._needs_xla(test.right)
        return self.truth(test) is True and bool(self._words(test) & XLA_WORDS)

    def _is_xla_unless_cpu(self, test: cst.BaseExpression) -> bool:
        """``use_tpu and not cpu``: where that is false, the program runs on something else."""
        parts = list(joined(test, cst.And))
        needs = [self._needs_xla(part) for part in parts]
        return any(needs) and all(
            need or self._is_not_cpu(part) for part, need in zip(parts, needs, strict=True)
        )

    def _is_not_cpu(self, test: cst.BaseExpression) -> bool:
        """``not args.cpu``, ``device != "cpu"``."""
        denied = (
            isinstance(test.comparisons[0].operator, cst.NotEqual)
            if isinstance(test, cst.Comparison)
            else isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
        )
        return denied and "cpu" in self._words(test) and not self._asks(test)

    def _asks(self, test: cst.BaseExpression) -> bool:
        return bool(self._words(test) & _ASKS)

    def _words(self, test: cst.BaseExpression) -> frozenset[str]:
        found: set[str] = set()
        waiting: list[cst.CSTNode] = [test]
        while waiting:
            part = waiting.pop()
            if isinstance(part, cst.Name | cst.Attribute) and (
                self._names.resolve(part) or ""
            ).startswith(_NOT_DEVICES):
                continue
            if isinstance(part, cst.Name):
                found |= words(part.value)
            elif isinstance(part, cst.SimpleString):
                found |= words(str(string(part)))
            waiting.extend(children(part))
        return frozenset(found | ({"backend"} if {"device", "type"} <= found else set()))


def _said_by(node: cst.BaseExpression) -> str:
    """The last name of an expression: of ``CFG["is_xla"]`` its key."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    if isinstance(node, cst.Subscript) and (key := index_of(node)) is not None:
        return _said_by(key)
    if isinstance(node, cst.SimpleString):
        return str(string(node))
    return node.value if isinstance(node, cst.Name) else ""


def _strings(node: cst.BaseExpression) -> list[str]:
    """The string that an expression is, or those of a tuple, list or set."""
    if isinstance(node, cst.SimpleString):
        return [str(string(node))]
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        return [text for element in node.elements for text in _strings(element.value)]
    return []
