"""Does this run on XLA devices? One answer for all rules: yes, no, or maybe.

A condition is judged by what its parts are bound to and by whole words of what programs call their
settings: ``args.use_tpu``, ``CFG["is_xla"]``, ``torch.cuda.is_available()``,
``device.type == "xla"``. "gpu" within a longer word ("timestamps" for "mps") says nothing.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import gpu_programs
from xladoctor.lint.model.dotted import string
from xladoctor.lint.model.syntax import Function, children, walk
from xladoctor.lint.model.unreached import combined, is_logic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.names import LinkedNames, Names
    from xladoctor.lint.model.syntax import Class, Tree

_DEPTH = 4
_XLA = frozenset({"tpu", "tpus", "xla", "neuron", "neuronx"})
_OTHER = frozenset(
    [
        "cuda", "gpu", "gpus", "npu", "hpu", "xpu", "mps", "mlu", "rocm", "hip", "nccl",
        "sagemaker", "nvidia",
    ]
)  # fmt: skip
#: Words that make a flag of such a word: ``use_tpu``, ``is_torch_xla_available``, ``tpu_found``.
_FLAG = frozenset(
    [
        "use", "used", "using", "is", "has", "have", "on", "with", "torch", "available", "found",
        "enabled", "enable", "installed", "imported", "supported", "running", "flag", "mode", "mp",
        "dp", "want", "in", "env",
    ]
)  # fmt: skip
_REFUSES = frozenset({"no", "not", "non", "without", "disable", "disabled"})
#: Words that ask for the kind of device, whatever the answer.
_ASKS = _XLA | _OTHER | {"backend", "platform", "pjrt"}
#: What asks for the operating system.
_NOT_DEVICES = ("sys.", "platform.", "os.name")
#: What a call that XLA code does not survive on another device (or the other way round) raises.
_CAUGHT = frozenset(
    {"Exception", "BaseException", "ImportError", "ModuleNotFoundError", "RuntimeError",
     "AttributeError", "AssertionError"}
)  # fmt: skip
_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")


class OnXla(enum.Enum):
    """Whether code runs on XLA devices."""

    YES = "yes"
    NO = "no"
    #: It serves several kinds of device, and nothing here says which.
    MAYBE = "maybe"


def words(text: str) -> frozenset[str]:
    """The words that a name is made of, in small letters ("isTPUAvailable": is, tpu, available)."""
    return frozenset(word.lower() for word in _WORD.findall(text))


def for_others(text: str) -> bool:
    """Whether a name says that something is for other devices: ``CudaTimer``."""
    named = words(text)
    return bool(named & _OTHER) and not named & _XLA


class Devices:
    """Answers for conditions and for nodes.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        guards: The conditions around a node within its function.
        callers: The calls of a function.
        believes: Whether the file that a node stands in is for XLA devices.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names | LinkedNames,
        guards: Callable[[cst.CSTNode], Sequence[Guard]],
        callers: Callable[[Function], Sequence[cst.Call]],
        believes: Callable[[cst.CSTNode], bool],
    ) -> None:
        self._tree = tree
        self._names = names
        self._guards = guards
        self._callers = callers
        self._believes = believes
        #: The files with a word of XLA, once asked for.
        self._worded: set[cst.Module] | None = None
        self._of_function: dict[Function, OnXla | None] = {}
        self._open: set[str] = set()

    def runs(self, node: cst.CSTNode) -> OnXla:
        """Whether a node runs on XLA devices, by all conditions here and in its callers."""
        optional = self._optional.get(self._tree.module_of(node), False)
        return self.asked(node) or (OnXla.MAYBE if optional else OnXla.YES)

    def asked(self, node: cst.CSTNode) -> OnXla | None:
        """The same of the conditions alone; None if none asks for the kind of device."""
        if self._tree.module_of(node) in self.elsewhere:
            return OnXla.NO
        return _strongest([self._said(node), *self._tried(node)])

    def _said(self, node: cst.CSTNode) -> OnXla | None:
        """What the conditions around a node say; None if none asks for the device."""
        answers = [guard.runs for guard in self._guards(node)]
        function = self._tree.function_of(node)
        if function is not None:
            answers.append(self._function(function))
        return _strongest(answers)

    def _function(self, function: Function) -> OnXla | None:
        """What a function's name and its callers say, and the function around it."""
        if function not in self._of_function:
            if function.owner in self._for_gpus:
                self._of_function[function] = OnXla.NO
                return OnXla.NO
            self._of_function[function] = None  # a function that calls itself
            named = words(function.name)
            own = OnXla.MAYBE if named & _OTHER and not named & _XLA else None
            calls = [*self._callers(function), *self._handed.get(function, ())]
            through = [self._said(call) for call in calls]
            around = self._function(function.outer) if function.outer is not None else None
            same = set(through) if None not in through else set()
            called = same.pop() if len(same) == 1 else OnXla.MAYBE if same else None
            self._of_function[function] = _strongest([own, called, around])
        return self._of_function[function]

    @functools.cached_property
    def _for_gpus(self) -> frozenset[Class | None]:
        """The classes that are for GPUs, by what they are called and what they need."""
        found = [
            *gpu_programs.moves_to_gpu(self._tree, self._names),
            *gpu_programs.needs_gpu(self._tree, self._names),
        ]
        functions = filter(None, map(self._tree.function_of, found))
        owners = (function.owner for function in functions)
        return frozenset(owner for owner in owners if owner is not None and for_others(owner.name))

    @functools.cached_property
    def _handed(self) -> dict[Function, list[cst.Call]]:
        """The calls that a function is given to, as ``xmp.spawn(main, ...)``: they run it too."""
        found: dict[Function, list[cst.Call]] = {}
        for call in self._tree.calls:
            for argument in call.args:
                if isinstance(argument.value, cst.Name):
                    function = self._names.definition(argument.value)
                    if isinstance(function, Function):
                        found.setdefault(function, []).append(call)
        return found

    def _tried(self, node: cst.CSTNode) -> Iterator[OnXla]:
        """Code in ``try`` whose failure is caught, and in the handler of a missing torch_xla."""
        child = node
        for parent in self._tree.ancestors(node):
            if isinstance(parent, cst.FunctionDef | cst.Lambda):
                return
            if isinstance(parent, cst.Try):
                if child is parent.body:
                    if any(self._catches(handler) for handler in parent.handlers):
                        yield OnXla.MAYBE
                elif isinstance(child, cst.ExceptHandler):
                    tried = (node for node in walk(parent.body) if node in self._imports)
                    yield OnXla.NO if any(True for _ in tried) else OnXla.MAYBE
            child = parent

    def _catches(self, handler: cst.ExceptHandler) -> bool:
        if handler.type is None:
            return True
        return any(
            (self._names.resolve(part) or "").removeprefix("builtins.") in _CAUGHT
            for part in walk(handler.type)
            if isinstance(part, cst.Name | cst.Attribute)
        )

    @functools.cached_property
    def _imports(self) -> dict[cst.CSTNode, None]:
        """The imports of torch_xla."""
        return {node: None for node in self._tree.imports if _imports_torch_xla(node)}

    @functools.cached_property
    def _optional(self) -> dict[cst.Module, bool]:
        """Modules that import torch_xla: whether they take it only where it is there.

        Such a module serves other devices too.
        """
        found: dict[cst.Module, bool] = {}
        for node in self._imports:
            module = self._tree.module_of(node)
            tried = any(isinstance(x, cst.Try) for x in self._tree.ancestors(node))
            under = tried or self._tree.function_of(node) is not None or bool(self._guards(node))
            found[module] = found.get(module, True) and under
        return found

    @functools.cached_property
    def elsewhere(self) -> frozenset[cst.Module]:
        """Scripts for CUDA beside those for XLA: ``model.cuda()``, without a word of XLA.

        What they run of the helpers that both import, they run on another device. What is imported
        itself may run on any.
        """
        tree, names = self._tree, self._names
        found = {
            tree.module_of(call)
            for call in gpu_programs.moves_to_gpu(tree, names)
            if self._is_sure(call)
        }
        only = [*gpu_programs.needs_gpu(tree, names), *gpu_programs.chooses_gpu(tree, names)]
        modules = (tree.module_of(node) for node in only if self._is_sure(node))
        found.update(module for module in modules if not self._believes(module))
        found = {module for module in found if not self._serves_xla(module)}
        return gpu_programs.with_helpers(
            found,
            names.importers(),
            lambda module: self._believes(module) or self._serves_xla(module),
        )

    def _is_sure(self, node: cst.CSTNode) -> bool:
        """Whether no condition around it asks for the kind of device."""
        return _strongest([self._said(node), *self._tried(node)]) is None

    def _serves_xla(self, module: cst.Module) -> bool:
        """Whether a file imports torch_xla or has a word of XLA in its names and texts."""
        if module in self._optional:
            return True
        if self._worded is None:
            nodes = self._tree.nodes(cst.Name, cst.SimpleString)
            self._worded = {
                self._tree.module_of(node)
                for node in nodes
                if isinstance(node, cst.Name | cst.SimpleString) and words(node.value) & _XLA
            }
        return module in self._worded

    def imports_torch_xla(self, module: cst.Module) -> bool:
        """Whether a module imports torch_xla itself, whatever the condition."""
        return module in self._optional

    # Conditions

    def of_guard(self, test: cst.BaseExpression, *, when: bool) -> OnXla | None:
        """What it says of a branch that its condition has that truth value there.

        Returns:
            None if the condition does not ask for the kind of device.
        """
        truth = self.truth(test)
        if truth is not None:
            return OnXla.YES if truth is when else OnXla.NO
        if when and self._needs_xla(test):
            return OnXla.YES
        return OnXla.MAYBE if self._asks(test) else None

    def truth(self, test: cst.BaseExpression, depth: int = _DEPTH) -> bool | None:
        """What a condition is on XLA devices; None if it does not say so."""
        if is_logic(test):
            return combined(test, lambda part: self.truth(part, depth))
        if isinstance(test, cst.Comparison):
            return self._comparison(test)
        if isinstance(test, cst.Call):
            return self._call(test, depth)
        if isinstance(test, cst.Name) and depth:
            bound = self._bound(test)
            known = self.truth(bound, depth - 1) if bound is not None else None
            if known is not None:
                return known
        if self._is_torch_xla(test):
            return True
        if self._stays_none(test):
            return False
        return _flag(_said_by(test))

    def _stays_none(self, node: cst.BaseExpression) -> bool:
        """``scaler = None``, and anything else only where the program runs on other devices."""
        if not isinstance(node, cst.Name) or node.value in self._open:
            return False
        bindings = self._names.lookup(node.value, self._tree.scopes[node]) or []
        given = [item.node for item in bindings if not _is_none(item.node)]
        if not given or len(given) == len(bindings):
            return False
        if any(item.kind != "assign" for item in bindings):
            return False
        self._open.add(node.value)  # ``if scaler is not None: scaler = wrap(scaler)``
        try:
            return all(self.asked(one) is OnXla.NO for one in given if one is not None)
        finally:
            self._open.discard(node.value)

    def _bound(self, name: cst.Name) -> cst.BaseExpression | None:
        bindings = self._names.lookup(name.value, self._tree.scopes[name]) or []
        node = bindings[0].node if len(bindings) == 1 and bindings[0].kind == "assign" else None
        return node if isinstance(node, cst.BaseExpression) else None

    def _is_torch_xla(self, node: cst.BaseExpression) -> bool:
        """``xm``, which is None where torch_xla is missing."""
        if not isinstance(node, cst.Name):
            return False
        return (self._names.resolve(node) or "").partition(".")[0] == "torch_xla"

    def _call(self, test: cst.Call, depth: int) -> bool | None:
        func, given = test.func, [argument.value for argument in test.args]
        name = self._names.resolve(func) or ""
        if name == "builtins.bool" and given:
            return self.truth(given[0], depth)
        if name == "builtins.isinstance" and len(given) == 2:
            kind = (self._names.resolve(given[1]) or "").rpartition(".")[2]
            return True if words(kind) & _XLA else None
        if name == "builtins.getattr" and len(given) > 1:
            return _flag(_said_by(given[1]))
        method = func.attr.value if isinstance(func, cst.Attribute) else ""
        if method == "get" and given:
            return _flag(_said_by(given[0]))
        if method in {"startswith", "endswith"} and given:
            return _device(_strings(given[0]))
        if method == "is_available" and isinstance(func, cst.Attribute):
            return _flag(_said_by(func.value))
        return _flag(_said_by(func))

    def _comparison(self, test: cst.Comparison) -> bool | None:
        if len(test.comparisons) != 1:
            return None
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        positive = isinstance(operator, cst.Equal | cst.In | cst.Is)
        if not positive and not isinstance(operator, cst.NotEqual | cst.NotIn | cst.IsNot):
            return self._counted(test)
        if isinstance(right, cst.Name) and right.value == "None":
            known: bool | None = False if self._is_torch_xla(test.left) else None
            if known is None and self._stays_none(test.left):
                known = True
        elif isinstance(right, cst.Name) and right.value in {"True", "False"}:
            known = self.truth(test.left)  # ``if args.tpu != True``
            known = None if known is None else known is (right.value == "True")
        else:
            named = [*self._kinds(test.left), *self._kinds(right)]
            known = _device(named)
            if known is None and named == ["cpu"] and self._is_device(test.left):
                known = False
        return None if known is None else known is positive

    def _kinds(self, node: cst.BaseExpression) -> list[str]:
        """The kinds of device that an expression names: texts, Accelerate's ``DistributedType``."""
        if isinstance(node, cst.Attribute):
            owner = self._names.resolve(node.value) or ""
            # ``MULTI_GPU``: the kind stands last.
            kind = node.attr.value.rpartition("_")[2].lower()
            return [kind] if owner.endswith(".DistributedType") and kind in _XLA | _OTHER else []
        return _strings(node)

    def _counted(self, test: cst.Comparison) -> bool | None:
        """``torch.cuda.device_count() > 0``: the hosts of XLA devices have no GPU as a rule."""
        more = isinstance(test.comparisons[0].operator, cst.GreaterThan | cst.GreaterThanEqual)
        called = test.left.func if isinstance(test.left, cst.Call) else None
        counts = called is not None and self._names.resolve(called) == "torch.cuda.device_count"
        return False if counts and more else None

    def _is_device(self, node: cst.BaseExpression) -> bool:
        return "device" in self._words(node)

    def _needs_xla(self, test: cst.BaseExpression) -> bool:
        """Whether a condition that holds is one that needs XLA: ``use_tpu and epoch > 0``."""
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            return self._needs_xla(test.left) or self._needs_xla(test.right)
        return self.truth(test) is True and bool(self._words(test) & _XLA)

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


def _is_none(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _strongest(answers: Iterable[OnXla | None]) -> OnXla | None:
    """No is for good, yes outweighs what is not sure."""
    given = set(answers)
    order = (OnXla.NO, OnXla.YES, OnXla.MAYBE)
    return next((answer for answer in order if answer in given), None)


def _imports_torch_xla(node: cst.Import | cst.ImportFrom) -> bool:
    if isinstance(node, cst.ImportFrom):
        modules = [node.module] if node.module is not None and not node.relative else []
    else:
        modules = [alias.name for alias in node.names]
    for module in modules:
        while isinstance(module, cst.Attribute):
            module = module.value  # type: ignore[assignment]
        if isinstance(module, cst.Name) and module.value == "torch_xla":
            return True
    return False


def _said_by(node: cst.BaseExpression) -> str:
    """The last name of an expression: of ``CFG["is_xla"]`` its key."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        return _said_by(index.value) if isinstance(index, cst.Index) else ""
    if isinstance(node, cst.SimpleString):
        return str(string(node))
    return node.value if isinstance(node, cst.Name) else ""


def _flag(name: str) -> bool | None:
    """What a flag of that name is on XLA devices."""
    said = words(name)
    rest = said - _XLA - _OTHER - _FLAG
    if said & _XLA and not said & _OTHER and not rest - _REFUSES:
        return not rest
    return False if said & _OTHER and not said & _XLA and not rest else None


def _device(texts: Sequence[str]) -> bool | None:
    """Whether the kinds of device that are named are XLA's, all or none of them."""
    kinds = {text.lower().partition(":")[0] for text in texts}
    if kinds and kinds <= _XLA:
        return True
    return False if kinds & _OTHER and kinds <= _OTHER | {"cpu"} else None


def _strings(node: cst.BaseExpression) -> list[str]:
    """The string that an expression is, or those of a tuple, list or set."""
    if isinstance(node, cst.SimpleString):
        return [str(string(node))]
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        return [text for element in node.elements for text in _strings(element.value)]
    return []
