"""What a program's own constants decide: ``if not self.predict_mode``, if all objects are made so.

A parameter that every call gives the same literal, or leaves at it, and an attribute that nothing
sets to anything else are that literal wherever they are asked. Settings are not: a name of a module
and what the command line fills in are there to be changed. Nor is the kind of device, which is
another where the program runs elsewhere.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import assignments, is_name, last_name, paired, text_of
from xladoctor.lint.model.hooks import is_library_model
from xladoctor.lint.model.unreached import combined, is_logic
from xladoctor.lint.model.unreached import truth as written_truth
from xladoctor.lint.words import OTHER_WORDS, XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model.definitions import Class, Function
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree
    from xladoctor.lint.model.uses import Uses

#: ``True``, ``False``, ``None`` or a text.
Literal: TypeAlias = "bool | str | None"
_LITERALS: Mapping[str, Literal] = {"True": True, "False": False, "None": None}
#: Functions of libraries that set nothing of an object that they are given.
_ONLY_READ = ("builtins.", "torch.", "copy.", "logging.")
#: Methods that answer for attributes that nobody has set.
_ANSWERS = frozenset({"__setattr__", "__getattr__", "__getattribute__"})
_ASSIGNS = (cst.Assign, cst.AnnAssign)
_SETS = (cst.AugAssign, cst.For, cst.CompFor, cst.AsName)
#: How many names stand between a condition and a literal.
_DEPTH = 5
#: Words of what is another on other devices, or in a program of several cores.
_OF_DEVICES = (
    XLA_WORDS
    | OTHER_WORDS
    | {"backend", "platform", "pjrt", "device", "devices", "accelerator", "distributed", "ddp"}
    | {"rank", "world", "spmd", "fsdp", "master", "primary", "cores"}
)
_KINDS = XLA_WORDS | OTHER_WORDS | {"cpu"}
#: Classes of libraries that set no attributes of the user's own.
_QUIET = frozenset(
    [
        "object", "ABC", "Module", "LightningModule", "LightningDataModule", "Dataset",
        "IterableDataset", "Sampler", "Generic", "PreTrainedModel", "Callback", "TrainerCallback",
    ]
)  # fmt: skip
#: Attributes that libraries do set.
_SET_BY_LIBRARIES = frozenset(
    ["training", "trainer", "logger", "lr", "learning_rate", "batch_size", "config", "fabric"]
)
#: What libraries turn on in any model that has it, if they are asked.
_CHECKPOINTING = "gradient_checkpointing"
_CHECKPOINTS = (
    "gradient_checkpointing_enable",
    "enable_gradient_checkpointing",
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "HfArgumentParser",
    "TrlParser",
    "prepare_model_for_kbit_training",
)
#: What transformers' models set where they are divided over GPUs, and what divides them.
_OVER_GPUS, _DIVIDES = "model_parallel", "parallelize"
#: Words of what decorates a method, and has nobody else call it.
_QUIET_WORDS = frozenset({"docstring", "docstrings", "doc", "grad", "inference"})
#: Beginnings of methods that libraries may call on a model.
_HOOKS = ("_", "on_", "get_", "set_", "prepare_", "forward", "setup", "configure_", "training_",
          "validation_", "test_", "predict_", "train", "eval", "load", "save", "resize_", "init_",
          "reset", "to", "cuda", "cpu", "half", "float", "optimizer_", "backward")  # fmt: skip


class Constants:
    """Answers for conditions.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        uses: Who calls what they define.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, uses: Uses) -> None:
        self._tree = tree
        self._names = names
        self._uses = uses
        self._open: set[object] = set()
        self._known: dict[object, frozenset[Literal] | None] = {}

    def truth(self, test: cst.BaseExpression) -> bool | None:
        """What a condition always is; None if that is not known."""
        if is_logic(test):
            return combined(test, self.truth)
        known = written_truth(test)
        if known is not None:
            return known
        if isinstance(test, cst.Comparison):
            return self._comparison(test)
        if not isinstance(test, cst.Name | cst.Attribute):
            return None
        values = self._values(test, _DEPTH)
        return None if values is None else _agreed({bool(value) for value in values})

    def _comparison(self, test: cst.Comparison) -> bool | None:
        if len(test.comparisons) != 1:
            return None
        [asked] = test.comparisons
        is_in = isinstance(asked.operator, cst.In | cst.NotIn)
        positive = isinstance(asked.operator, cst.Equal | cst.Is | cst.In)
        if not positive and not isinstance(asked.operator, cst.NotEqual | cst.IsNot | cst.NotIn):
            return None
        left = self._values(test.left, _DEPTH)
        right = _listed(asked.comparator) if is_in else self._values(asked.comparator, _DEPTH)
        if left is None or right is None or _names_devices(left | right):
            return None
        if is_in:
            return _agreed({(one in right) is positive for one in left})
        return _agreed({(one == other) is positive for one in left for other in right})

    def _values(self, node: cst.BaseExpression, depth: int) -> frozenset[Literal] | None:
        """All literals that an expression may be; None if it may be something else."""
        value = _literal(node)
        if value is not NotImplemented:
            return frozenset([value])
        if depth == 0:
            return None
        if isinstance(node, cst.Name):
            return self._of_name(node, depth)
        if isinstance(node, cst.Attribute) and is_name(node.value, "self"):
            owner = self._owner(node)
            return None if owner is None else self._attribute(owner, node.attr.value, depth)
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            owner = self._uses.only_read(node.value)
            return None if owner is None else self._attribute(owner, node.attr.value, depth)
        return None

    def _of_name(self, node: cst.Name, depth: int) -> frozenset[Literal] | None:
        bindings = self._tree.bindings(node) if node in self._tree.scopes else ()
        [bound] = bindings if len(bindings) == 1 else (None,)
        if bound is None:
            return None
        if bound.kind == "param" and isinstance(bound.node, cst.Param):
            return self._parameter(bound.node, depth)
        made = bound.node if bound.kind == "assign" else None
        if isinstance(made, cst.Name | cst.Attribute) and _literal(made) is NotImplemented:
            return self._values(made, depth - 1)  # another name for it; a literal is a setting
        return None

    def _once(self, key: object, found: frozenset[Literal] | None) -> frozenset[Literal] | None:
        self._known[key] = found
        return found

    def _parameter(self, param: cst.Param, depth: int) -> frozenset[Literal] | None:
        """What all calls give a parameter."""
        if param in self._known:
            return self._known[param]
        if param in self._open or words(param.name.value) & _OF_DEVICES:
            return None
        around = self._tree.parents[self._tree.parents[param]]
        if not isinstance(around, cst.FunctionDef | cst.Lambda):
            return None
        function = self._tree.functions[around]
        if param not in function.declared:
            return None
        self._open.add(param)
        try:
            return self._once(param, self._given(function, param.name.value, depth))
        finally:
            self._open.discard(param)

    def _given(self, function: Function, name: str, depth: int) -> frozenset[Literal] | None:
        owner = function.owner
        if owner is not None and function.name == "__init__":
            sites = self._uses.made(owner)
        else:
            sites = self._uses.called(function)
        module = self._tree.module_of(function.node)
        if not sites or not self._uses.is_used_as_written(sites, module):
            return None
        found: set[Literal] = set()
        written = False
        for call, shift in sites:
            place = function.place(name)
            argument = given(call, None if place is None else place + shift, name)
            if argument is None or any(one.star for one in call.args):
                argument = None if any(one.star for one in call.args) else function.default(name)
            else:
                written = True
            values = None if argument is None else self._values(argument, depth - 1)
            if values is None:
                return None
            found |= values
        return frozenset(found) if written else None

    def _owner(self, node: cst.CSTNode) -> Class | None:
        """The class in whose methods a node stands."""
        function = self._tree.function_of(node)
        owners = (one.owner for one in (() if function is None else function.around))
        return next((owner for owner in owners if owner is not None), None)

    def _attribute(self, owner: Class, name: str, depth: int) -> frozenset[Literal] | None:
        """What all lines set an attribute to."""
        family = self._family(owner)
        key = (family[0], name)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            return None
        self._open.add(key)
        try:
            found = self._set(family, name, depth) if self._is_plain(family, name) else None
            return self._once(key, found)
        finally:
            self._open.discard(key)

    def _set(self, family: Sequence[Class], name: str, depth: int) -> frozenset[Literal] | None:
        found: set[Literal] = set()
        for target, value in self._assigned.get(name, ()):
            if is_name(target.value, "self"):
                owner = self._owner(target)
                if owner is not None and owner not in family:
                    continue
                if owner is not None and value is not None and self._is_unnamed(owner, target):
                    continue
            values = None if value is None else self._values(value, depth - 1)
            if values is None:
                return None
            found |= values
        for value in (one for cls in family for one in _in_class(cls, name)):
            values = self._values(value, depth - 1)
            if values is None:
                return None
            found |= values
        return frozenset(found) or None

    def _is_unnamed(self, owner: Class, node: cst.CSTNode) -> bool:
        """Whether a line stands in a method that nothing calls: ``def parallelize(self)``."""
        method = self._tree.function_of(node)
        if method is None or method.owner is not owner or method.name.startswith(_HOOKS):
            return False
        if not all(map(_is_quiet, method.decorators)):
            return False
        return self._uses.unnamed(method.name) and self._uses.is_run_here(
            self._tree.module_of(node)
        )

    def _is_plain(self, family: Sequence[Class], name: str) -> bool:
        """Whether nothing sets an attribute of some classes otherwise than lines that assign it."""
        if name in _SET_BY_LIBRARIES or name in self._uses.texts or words(name) & _OF_DEVICES:
            return False
        if name == _CHECKPOINTING and any(one in self._uses.words for one in _CHECKPOINTS):
            return False
        if name == _OVER_GPUS and not self._uses.unnamed(_DIVIDES):
            return False
        return all(self._is_open(cls) and not _defines(cls, name) for cls in family)

    def _is_open(self, cls: Class) -> bool:
        """Whether the attributes of a class are set by lines that name them."""
        if cls not in self._opened:
            self._opened[cls] = self._find_open(cls)
        return self._opened[cls]

    @functools.cached_property
    def _opened(self) -> dict[Class, bool]:
        return {}

    def _find_open(self, cls: Class) -> bool:
        decorators = (one.decorator for one in cls.node.decorators)
        if not all(map(_is_quiet, decorators)) or not _ANSWERS.isdisjoint(cls.methods):
            return False
        for base in cls.bases:
            name = self._names.resolve(base) or ""
            last = name.rpartition(".")[2] or last_name(base)
            own = name.startswith("transformers.") and is_library_model(name)
            quiet = last in _QUIET or last.endswith("PreTrainedModel") or own
            if not quiet and last not in self._uses.classes:
                return False
        held = self._tree.within(cls.node, cst.Attribute)
        return not any(one.attr.value == "__dict__" for one in held) and not any(
            _sets_by_text(call) or self._hands_on(call)
            for call in self._tree.within(cls.node, cst.Call)
        )

    def _hands_on(self, call: cst.Call) -> bool:
        """``run_search(self)`` of a library, which may set attributes of what it is given."""
        if not any(is_name(argument.value, "self") for argument in call.args):
            return False
        name = self._names.resolve(call.func) or ""
        if name.startswith(_ONLY_READ) or (isinstance(call.func, cst.Attribute) and not name):
            return False
        return self._names.definition(call.func) is None

    def _family(self, cls: Class) -> Sequence[Class]:
        """A class, those of the program that it is built on, those that are built on it, ..."""
        if cls not in self._families:
            found = dict.fromkeys([cls])
            waiting = [cls]
            while waiting:
                for other in self._kin(waiting.pop()):
                    if other not in found:
                        found[other] = None
                        waiting.append(other)
            family = tuple(found)
            for one in family:
                self._families[one] = family
        return self._families[cls]

    @functools.cached_property
    def _families(self) -> dict[Class, Sequence[Class]]:
        return {}

    def _kin(self, cls: Class) -> Iterator[Class]:
        for base in cls.bases:
            yield from self._uses.classes.get(last_name(base), ())
        yield from self._built_on.get(cls.name, ())

    @functools.cached_property
    def _built_on(self) -> Mapping[str, Sequence[Class]]:
        found: dict[str, list[Class]] = {}
        for cls in self._tree.classes.values():
            for base in cls.bases:
                found.setdefault(last_name(base), []).append(cls)
        return found

    @functools.cached_property
    def _assigned(self) -> Mapping[str, Sequence[tuple[cst.Attribute, cst.BaseExpression | None]]]:
        """The attributes that lines set, and what to; None where that is not written."""
        found: dict[str, list[tuple[cst.Attribute, cst.BaseExpression | None]]] = {}
        by_type = self._tree.by_type
        for line in (node for kind in _ASSIGNS for node in by_type.get(kind, ())):
            for target, value in (pair for both in assignments(line) for pair in paired(*both)):
                for held in _attributes(target):
                    found.setdefault(held.attr.value, []).append(
                        (held, value if held is target else None)
                    )
        for line in (node for kind in _SETS for node in by_type.get(kind, ())):
            target = line.name if isinstance(line, cst.AsName) else line.target  # type: ignore[attr-defined]
            for held in _attributes(target):
                found.setdefault(held.attr.value, []).append((held, None))
        return found


def _attributes(target: cst.CSTNode) -> Iterator[cst.Attribute]:
    """The attributes in what a line sets: ``self.net, (self.a, b)``."""
    if isinstance(target, cst.Attribute):
        yield target
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _attributes(element.value)


def _is_quiet(decorator: cst.BaseExpression) -> bool:
    """``@add_start_docstrings(TEXT)``, ``@torch.no_grad()``: nothing else calls what it is at."""
    written = decorator.func if isinstance(decorator, cst.Call) else decorator
    return not words(last_name(written)).isdisjoint(_QUIET_WORDS)


def _sets_by_text(call: cst.Call) -> bool:
    """``setattr(self, name, value)``, ``vars(self).update(settings)``."""
    given = [argument.value for argument in call.args]
    if not given or not is_name(given[0], "self"):
        return False
    if is_name(call.func, "setattr"):
        return len(given) == 3 and text_of(given[1]) is None
    return is_name(call.func, "vars")


def _in_class(cls: Class, name: str) -> Iterator[cst.BaseExpression]:
    """What the body of a class sets an attribute to."""
    for line in cls.node.body.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            for target, value in assignments(part):
                if is_name(target, name):
                    yield value


def _defines(cls: Class, name: str) -> bool:
    """Whether a class has a method, or a property, of a name."""
    lines = cls.node.body.body
    return any(isinstance(line, cst.FunctionDef) and line.name.value == name for line in lines)


def _literal(node: cst.BaseExpression) -> Any:
    """The value of ``True``, ``None`` or a text; ``NotImplemented`` of others.

    Numbers are sizes, which are there to be changed.
    """
    if isinstance(node, cst.Name):
        return _LITERALS.get(node.value, NotImplemented)
    text = text_of(node)
    return NotImplemented if text is None else text


def _listed(node: cst.BaseExpression) -> frozenset[Literal] | None:
    """The literals of a tuple, list or set."""
    if not isinstance(node, cst.Tuple | cst.List | cst.Set):
        return None
    values = [_literal(element.value) for element in node.elements]
    if any(value is NotImplemented for value in values):
        return None
    return frozenset(values)


def _names_devices(values: frozenset[Literal]) -> bool:
    """Whether some of them are kinds of devices."""
    return any(isinstance(value, str) and words(value) & _KINDS for value in values)


def _agreed(answers: set[bool]) -> bool | None:
    return answers.pop() if len(answers) == 1 else None
