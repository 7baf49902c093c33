"""Does this run on XLA devices? One answer for all rules: yes, no, or maybe.

By the conditions around a node and in its callers (``device_tests`` says what each of them asks),
by what functions are called, and by what a program tries and imports.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import beside_cores, gpu_programs, gpu_scripts, other_classes
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.device_tests import DeviceTests
from xladoctor.lint.model.dotted import takes_torch_xla
from xladoctor.lint.model.loops import OnXla
from xladoctor.lint.model.placed_on_gpus import placed_on_gpus
from xladoctor.lint.model.quantized import loads_quantized
from xladoctor.lint.model.syntax import Function, walk
from xladoctor.lint.model.trainers import of_searches
from xladoctor.lint.model.unclaimed import unclaimed
from xladoctor.lint.model.unreached import gives_up
from xladoctor.lint.words import OTHER_WORDS, XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.loops import Guard
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Class, Tree
    from xladoctor.lint.model.unclaimed import Definition

#: What a call that XLA code does not survive on another device (or the other way round) raises.
_CAUGHT = frozenset(
    {"Exception", "BaseException", "ImportError", "ModuleNotFoundError", "RuntimeError",
     "AttributeError", "AssertionError"}
)  # fmt: skip
#: What such a handler looks for in the message of an error where the device itself is there.
_NO_MEMORY = "out of memory"

_XLA = "torch_xla."
#: The method that a call of a model runs.
_RUN_BY_CALLS = "forward"
#: What chooses the device for a program.
_CHOOSES = frozenset(
    {"accelerate", "Accelerator", "lightning", "pytorch_lightning", "Fabric", "Trainer", "ignite"}
)


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
        #: The classes that are for other devices by how they are made, once asked for.
        self._made_for_others: frozenset[Class] | None = None
        #: What a search for hyperparameters alone runs, which nobody starts.
        self.of_searches = of_searches(tree)
        #: What conditions say of the device.
        self.tests = DeviceTests(tree, names, self.asked)

    def runs(self, node: cst.CSTNode) -> OnXla:
        """Whether a node runs on XLA devices, by all conditions here and in its callers."""
        optional = self._optional.get(self._tree.module_of(node), False)
        optional = optional and not self._is_needed(node)
        return self.asked(node) or (OnXla.MAYBE if optional else OnXla.YES)

    def asked(self, node: cst.CSTNode) -> OnXla | None:
        """The same of the conditions alone; None if none asks for the kind of device."""
        if self._tree.module_of(node) in self.elsewhere or self._is_device_of_others(node):
            return OnXla.NO
        return _strongest([self._said(node), *self._tried(node)])

    def _is_device_of_others(self, node: cst.CSTNode) -> bool:
        """Whether a node makes the device that functions for GPUs alone read."""
        devices = self._beside_cores[1]
        return bool(devices) and not devices.isdisjoint([node, *self._tree.ancestors(node)])

    @functools.cached_property
    def _beside_cores(self) -> tuple[frozenset[Function], frozenset[cst.BaseExpression]]:
        return beside_cores.beside_started(self._tree, self._names)

    def _is_needed(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in a function that cannot go on without torch_xla."""
        function = self._tree.function_of(node)
        return function is not None and not self._needing.isdisjoint(function.around)

    @functools.cached_property
    def _needing(self) -> frozenset[Function]:
        """The functions that import torch_xla whatever happens, or give up without it."""
        found = (
            self._tree.function_of(node)
            for node in self._imports
            if self._asked_always(node) and not self._guards(node)
        )
        return frozenset(one for one in found if one is not None)

    def _asked_always(self, node: cst.CSTNode) -> bool:
        """Whether nothing catches that an import fails, or what catches it gives up."""
        return not any(
            isinstance(one, cst.Try) and not all(map(gives_up, one.handlers))
            for one in self._tree.ancestors(node)
        )

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
            self._of_function[function] = None  # a function that calls itself
            if (
                function.owner in self._for_gpus
                or self._is_for_others(function.owner)
                or function in self._of_gpu_scripts
                or function in self._beside_cores[0]
                or function in self.of_searches
                or self._is_unclaimed(function)
                or self._is_defined_elsewhere(function)
                or self._is_left_to_others(function)
            ):
                self._of_function[function] = OnXla.NO
                return OnXla.NO
            named = words(function.name)
            own = OnXla.MAYBE if named & OTHER_WORDS and not named & XLA_WORDS else None
            calls = [*self._callers(function), *self._handed.get(function, ())]
            calls = [x for x in calls if self._tree.function_of(x) not in self.of_searches]
            if function.owner is not None and function.name == _RUN_BY_CALLS:
                # Whoever has the model may run it: what a script for GPUs does with it is its own.
                calls = [x for x in calls if self._tree.function_of(x) not in self._of_gpu_scripts]
            through = [self._said_of_call(call, function) for call in calls]
            around = self._function(function.outer) if function.outer is not None else None
            same = set(through) if None not in through else set()
            called = same.pop() if len(same) == 1 else OnXla.MAYBE if same else None
            if called is OnXla.NO and self._has_other_callers(function, calls):
                called = OnXla.MAYBE
            self._of_function[function] = _strongest([own, called, around])
        return self._of_function[function]

    def _said_of_call(self, call: cst.Call, function: Function) -> OnXla | None:
        """The same of a call, and of where the name that it calls takes the function."""
        taken = other_classes.taken_at(self._tree, self._names, function, call)
        return _strongest([self._said(call), *map(self._said, taken)])

    def _is_for_others(self, owner: Class | None) -> bool:
        """Whether a class refuses XLA devices, or is made where the program has none."""
        if self._made_for_others is None:
            self._made_for_others = frozenset()  # conditions may ask for what stands in a class
            tree, names = self._tree, self._names
            found = other_classes.refusing(tree, names, self._guards)
            self._made_for_others = found
            self._made_for_others |= other_classes.made_beside(
                tree, names, self._said, self._is_of_xla
            )
            self._of_function.clear()
        return owner in self._made_for_others

    def _is_of_xla(self, node: cst.CSTNode) -> bool:
        """Whether the file of a node is for XLA devices, or has a word of them."""
        return self._believes(node) or self._serves_xla(self._tree.module_of(node))

    def _is_unclaimed(self, function: Function) -> bool:
        """Whether nothing of the program names a function of a helper, or the class of it."""
        found = self._unclaimed
        return any(
            one.node in found or (one.owner is not None and one.owner.node in found)
            for one in function.around
        )

    @functools.cached_property
    def _unclaimed(self) -> frozenset[Definition]:
        return unclaimed(self._tree, self._names, self.imports_torch_xla)

    def _is_left_to_others(self, function: Function) -> bool:
        """``train``, which nothing for XLA calls, beside ``train_tpu``, which calls torch_xla."""
        if function not in self._with_twins:
            return False
        calls = [*self._callers(function), *self._handed.get(function, ())]
        return all(self._said(call) is OnXla.NO for call in calls)

    def _is_defined_elsewhere(self, function: Function) -> bool:
        """``if is_sagemaker_mp_enabled(): def gather(x)``: only other devices ever have it."""
        defined = [function.node, *([function.owner.node] if function.owner is not None else ())]
        return any(guard.runs is OnXla.NO for node in defined for guard in self._guards(node))

    def _has_other_callers(self, function: Function, calls: Iterable[cst.Call]) -> bool:
        """Whether what is called for other devices alone is written for XLA devices too.

        A function that calls torch_xla, or an object with such methods that others use. The step
        of an optimizer of the program, which ``xm.optimizer_step(optimizer)`` takes.
        """
        if self._is_step(function) and self._steps_on_xla:
            return True
        if function in self._asks_xla or function.owner not in self._asks_xla:
            return function in self._asks_xla
        homes = (self._tree.function_of(call) for call in calls)
        return all(home is None or home.owner is not function.owner for home in homes)

    def _is_step(self, function: Function) -> bool:
        bases = function.owner.bases if function.owner is not None else ()
        optim = any((self._names.resolve(x) or "").startswith("torch.optim.") for x in bases)
        return optim and function.name == "step"

    @functools.cached_property
    def _steps_on_xla(self) -> bool:
        step = f"{know.XM}.optimizer_step"
        return any(self._names.resolve(call.func) == step for call in self._tree.calls)

    @functools.cached_property
    def _with_twins(self) -> frozenset[Function]:
        return gpu_scripts.with_twins(self._tree, self._asks_xla)

    @functools.cached_property
    def _asks_xla(self) -> frozenset[Function | Class]:
        """The functions that call torch_xla, and the classes with such a method."""
        found: set[Function | Class] = set()
        for call in self._tree.calls if self._imports else ():
            function = self._tree.function_of(call)
            if function is not None and (self._names.resolve(call.func) or "").startswith(_XLA):
                found.update(function.around)
                found.update(one.owner for one in function.around if one.owner is not None)
        return frozenset(found)

    @functools.cached_property
    def _for_gpus(self) -> frozenset[Class]:
        return other_classes.for_gpus(self._tree, self._names, self._is_of_xla)

    @functools.cached_property
    def _of_gpu_scripts(self) -> frozenset[Function]:
        """What scripts for GPUs do for themselves, of which others take only helpers."""
        chosen = gpu_programs.chooses_gpu(self._tree, self._names)
        scripts = {self._tree.module_of(node) for node in chosen}
        importers = self._names.importers()
        others = {
            module
            for module in self._tree.modules
            if self._believes(module) or self._serves_xla(module) or importers.get(module)
        }
        alone = (
            gpu_scripts.left_alone(self._tree, self._names, one, others - {one})
            for one in scripts
            if not self._believes(one) and not self._serves_xla(one)
        )
        return frozenset().union(*alone)

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
                    needed = any(map(gives_up, parent.handlers)) and self._takes_xla(parent)
                    if not needed and any(map(self._catches, parent.handlers)):
                        yield OnXla.MAYBE
                elif isinstance(child, cst.ExceptHandler):
                    yield OnXla.NO if self._takes_xla(parent) else OnXla.MAYBE
            child = parent

    def _takes_xla(self, tried: cst.Try) -> bool:
        """Whether torch_xla is imported in what is tried."""
        return any(node in self._imports for node in walk(tried.body))

    def _catches(self, handler: cst.ExceptHandler) -> bool:
        """Whether a handler takes what is raised without the device: not if it asks for memory.

        ``if "out of memory" in str(error)`` meets a device that is there.
        """
        texts = self._tree.within(handler.body, cst.SimpleString)
        if any(_NO_MEMORY in text.value.lower() for text in texts):
            return False
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
            within = self._tree.function_of(node) is not None or bool(self._guards(node))
            under = within or not self._asked_always(node)
            found[module] = found.get(module, True) and under
        return {node: under and not self._has_cpu_only(node) for node, under in found.items()}

    def _has_cpu_only(self, module: cst.Module) -> bool:
        """Whether a program that tries torch_xla falls back on the CPU, and knows no other device.

        It asks for the XLA device and names the CPU by itself; no framework chooses for it.
        """
        nodes = self._tree.nodes(cst.Name, cst.SimpleString)
        here = [node for node in nodes if self._tree.module_of(node) is module]
        texts = [x.value for x in here if not isinstance(self._tree.parents.get(x), cst.Expr)]
        if not any(text.strip("\"'") == "cpu" for text in texts):
            return False
        if any(text in _CHOOSES or words(text) & OTHER_WORDS for text in texts):
            return False
        calls = (call for call in self._tree.calls if self._tree.module_of(call) is module)
        asked = (self._names.resolve(call.func) or "" for call in calls)
        return any(name.endswith(know.ASKS_FOR_DEVICE) for name in asked)

    @functools.cached_property
    def elsewhere(self) -> frozenset[cst.Module]:
        """Scripts for CUDA beside those for XLA: ``model.cuda()``, without a word of XLA.

        What they run of the helpers that both import, they run on another device. What is imported
        itself may run on any.
        """
        tree, names = self._tree, self._names
        moves = {
            tree.module_of(x) for x in gpu_programs.moves_to_gpu(tree, names) if self._is_sure(x)
        }
        needing = (*gpu_programs.needs_gpu(tree, names), *loads_quantized(tree, names))
        needs = {tree.module_of(x) for x in needing if self._is_sure(x)}
        # Without a word of XLA in the file, a condition chooses between a GPU and the CPU at most.
        takes = {tree.module_of(x) for x in gpu_programs.chooses_gpu(tree, names)}
        takes |= gpu_scripts.moves_if_asked(tree, names, lambda x: self._said(x) is OnXla.NO)
        over = {
            x for x in gpu_programs.divides_over_gpus(tree, names) if self._optional.get(x, True)
        }
        bound = {x for x in moves | needs if not self._believes(x) and not self._serves_xla(x)}
        found = {x for x in moves | takes if x in moves or not self._believes(x)}
        # Also of what is believed for the class alone that it is built on.
        found |= {*gpu_programs.trains_elsewhere(tree), *gpu_scripts.stays_on_cpu(tree, names)}
        placed = placed_on_gpus(tree, names, self._is_of_xla)
        helped = gpu_programs.with_helpers(
            {x for x in found if not self._serves_xla(x)} | bound | over | placed,
            bound | over | placed,
            names.importers(),
            lambda module: (
                module not in over | placed and (self._believes(module) or self._serves_xla(module))
            ),
        )
        # Who imports these has a GPU, then; a question for XLA is left over from what was copied.
        needy = (x for x in gpu_programs.needs_package(tree, names) if x not in self._optional)
        # A file with words of its own for XLA devices is meant for them, whatever it lacks.
        broken = gpu_programs.fails_without_cuda(
            tree,
            names,
            lambda x: self._optional.get(x) is False or (self._believes(x) and self._serves_xla(x)),
        )
        return helped.union(needy, broken)

    def is_for_gpus(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in a program or class for GPUs, beside those for XLA devices."""
        if self._tree.module_of(node) in self.elsewhere:
            return True
        function = self._tree.function_of(node)
        around = function.around if function is not None and self._for_gpus else ()
        return any(one.owner in self._for_gpus for one in around)

    def _is_sure(self, node: cst.CSTNode) -> bool:
        """Whether no condition around it asks for the kind of device."""
        return _strongest([self._said(node), *self._tried(node)]) is None

    def _serves_xla(self, module: cst.Module) -> bool:
        """Whether a file imports torch_xla or has a word of XLA in its names and texts.

        What a file is called that it takes a helper from says nothing: ``train_tpu``. Nor does a
        sentence for people: "very slow on a TPU".
        """
        if module in self._optional:
            return True
        if self._worded is None:
            nodes = self._tree.nodes(cst.Name, cst.SimpleString)
            self._worded = {
                self._tree.module_of(node)
                for node in nodes
                if isinstance(node, cst.Name | cst.SimpleString)
                and words(node.value) & XLA_WORDS
                and not self._is_path(node)
                and " " not in node.value
            }
        return module in self._worded

    def _is_path(self, node: cst.CSTNode) -> bool:
        """Whether a name is of the path of a module that is imported from."""
        above = self._tree.parents.get(node)
        while isinstance(above, cst.Attribute):
            node, above = above, self._tree.parents.get(above)
        return isinstance(above, cst.ImportFrom) and above.module is node

    def imports_torch_xla(self, module: cst.Module) -> bool:
        """Whether a module imports torch_xla itself, whatever the condition."""
        return module in self._optional


def _strongest(answers: Iterable[OnXla | None]) -> OnXla | None:
    """No is for good, yes outweighs what is not sure."""
    given = set(answers)
    order = (OnXla.NO, OnXla.YES, OnXla.MAYBE)
    return next((answer for answer in order if answer in given), None)


def _imports_torch_xla(node: cst.Import | cst.ImportFrom) -> bool:
    near = isinstance(node, cst.ImportFrom) and node.relative
    return not near and takes_torch_xla(node)
