"""What is certainly the arguments of a Trainer of transformers: how it was made or parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, walk
from xladoctor.lint.model.frameworks import TRAINER_CALLBACKS, TRAINERS
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.rules._constants import PARSERS, constant, of_class
from xladoctor.lint.rules._exact import same_name
from xladoctor.lint.rules._given import all_given
from xladoctor.lint.rules._given import given as given_by_name
from xladoctor.lint.rules._itself import itself
from xladoctor.lint.rules._sources import the_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xladoctor.lint.model import CallSite, FileModel

#: The class itself, what transformers builds on it, and the settings of TRL's Trainers.
ARGUMENTS = re.compile(
    r"^transformers\.(\w+\.)*(Seq2Seq)?TrainingArguments$|^trl\.(\w+\.)*[A-Z]\w*Config$"
)
#: What those of transformers are unless somebody says otherwise (transformers 5.24 and all before).
DEFAULTS: Mapping[str, object] = {"learning_rate": 5e-5}
OF_TRANSFORMERS = re.compile(r"^transformers\.(\w+\.)*(Seq2Seq)?TrainingArguments$")
#: Methods of the Trainer that get its arguments, and the parameter.
_HANDED = frozenset(
    {
        ("_inner_training_loop", "args"),
        ("set_initial_training_values", "args"),
        ("get_total_train_batch_size", "args"),
        ("get_optimizer_cls_and_kwargs", "args"),
    }
)
#: What arguments of a training run are called by nobody but transformers.
_SAY_SO = frozenset(
    {"per_device_train_batch_size", "per_device_eval_batch_size", "num_train_epochs"}
)
#: Has a Trainer and arguments of its own, which do not stand on those of transformers. It takes
#: torch_xla's checkpoint and logs in step closures (0.0.25 to 0.4.5 were read).
OF_NEURON = "optimum.neuron."
#: Methods of such a parser that give one object for each class, in order.
_PARSES = ("parse_args_into_dataclasses", "parse_json_file", "parse_dict", "parse_yaml_file")


def is_training_arguments(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether something is the arguments of transformers, or of a class of the program on them."""
    if isinstance(node, cst.Attribute):
        is_args = node.attr.value == "args" and _is_trainer(model, node.value)
        return is_args or _is_attribute(model, node)
    if not isinstance(node, cst.Name):
        return False
    owner = itself(model, node)
    if owner is not None:
        return _extends(model, owner)
    if _is_declared(model, node):
        return True
    kept = [*model.assigned_to(node)]
    others = len(model.bindings(node.value, node)) - len(kept)
    is_known = (bool(kept) and not others) or _is_handed(model, node)
    if is_known and all(_is_kept(model, one) for one in kept):
        return True
    made = the_call(model, node)
    if made is not None and (made.name is not None or isinstance(made.target, Class)):
        known: list[cst.BaseExpression | None] = [made.node.func]
    else:
        known = list(parsed_as(model, node)) or [_annotation(model, node)]
    return all(_is_class(model, one) for one in known)


def makes_own(model: FileModel, call: CallSite) -> bool:
    """Whether a call makes an object of a class on the arguments of transformers.

    One of the program; or one that nobody has read, by its name and by what it is given, in a file
    with torch_xla: ``TrainingArgumentsWithDecay(num_train_epochs=3, ...)``.
    """
    if isinstance(call.target, Class):
        return any(map(OF_TRANSFORMERS.search, model.library_bases(call.target)))
    name = call.name or ""
    elsewhere = call.target is None and not ARGUMENTS.search(name) and model.imports_torch_xla
    said = "TrainingArg" in call.last and not name.startswith(OF_NEURON)
    return elsewhere and said and len(_SAY_SO & call.keywords.keys()) > 1


def fields(model: FileModel, cls: Class) -> Iterator[str]:
    """The fields of a class of the program, and of those that it inherits from."""
    for one in (cls, *model.parents(cls)):
        for line in walk(one.node.body):
            if isinstance(line, cst.AnnAssign) and isinstance(line.target, cst.Name):
                yield line.target.value


def _is_attribute(model: FileModel, node: cst.Attribute) -> bool:
    """``self.training_args``, whose class keeps nothing else in it."""
    if itself(model, node.value) is None:
        return False
    kept = [one for one in model.kept_in(node) if not _parses(model, one)]
    parsed = [*parsed_as(model, node)] if len(kept) < len(model.kept_in(node)) or not kept else []
    given = all(isinstance(one, cst.Name) and is_training_arguments(model, one) for one in kept)
    return bool(kept or parsed) and given and all(_is_class(model, one) for one in parsed)


def argument(model: FileModel, node: cst.BaseExpression) -> object:
    """What ``training_args.learning_rate`` is: what they are made with, else the default.

    ``NotImplemented`` where that is not known.
    """
    if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
        return NotImplemented
    name, made = node.attr.value, the_call(model, node.value)
    if name not in DEFAULTS or not is_training_arguments(model, node.value):
        return NotImplemented
    if made is None or made.method in _PARSES:
        classes = [*parsed_as(model, node.value)]
    else:
        given = given_by_name(model, made)
        if name in given:
            return constant(model, given[name])
        classes = [made.node.func] if all_given(model, made) else []
    known = bool(classes) and all(_leaves(model, one, name) for one in classes)
    return DEFAULTS[name] if known else NotImplemented


def _leaves(model: FileModel, node: cst.BaseExpression | None, name: str) -> bool:
    """Whether a class is that of transformers, or of the program on it, with the default of it."""
    own = model.value(node).makes if node is not None else ()
    if node is None or not own:
        return node is not None and OF_TRANSFORMERS.search(model.name(node) or "") is not None
    return all(
        all(map(OF_TRANSFORMERS.search, model.library_bases(cls)))
        and all(of_class(one.node, name) is None for one in (cls, *model.parents(cls)))
        for cls in own
    )


def _is_class(model: FileModel, node: cst.BaseExpression | None) -> bool:
    """Whether an expression names the class, or one of the program that stands on it."""
    if node is None:
        return False
    own = model.value(node).makes
    if own:
        return all(_extends(model, cls) for cls in own)
    return ARGUMENTS.search(model.name(node) or "") is not None


def _extends(model: FileModel, cls: Class) -> bool:
    bases = model.library_bases(cls)
    return any(ARGUMENTS.search(base) for base in bases)


def _is_trainer(model: FileModel, node: cst.BaseExpression) -> bool:
    """``self`` in a class right on the Trainer of transformers, or what such a class made."""
    owner = itself(model, node)
    if owner is not None:
        return _is_right_on_it(model, owner)
    made = the_call(model, node) if isinstance(node, cst.Name) else None
    if made is None:
        return False
    of_program = isinstance(made.target, Class) and _is_right_on_it(model, made.target)
    return of_program or (not isinstance(made.target, Class) and made.name in TRAINERS)


def _is_right_on_it(model: FileModel, owner: Class) -> bool:
    """Whether a class stands on Trainers that ``TRAINERS`` has, and on nothing else."""
    bases = model.library_bases(owner)
    return bool(bases) and TRAINERS.issuperset(bases)


def _is_kept(model: FileModel, node: cst.BaseExpression) -> bool:
    """``self.args``, also as one side of ``self.args if args is None else args``."""
    if isinstance(node, cst.IfExp):
        sides = (one for one in (node.body, node.orelse) if not isinstance(one, cst.Name))
        return all(_is_kept(model, one) for one in sides)
    return isinstance(node, cst.Attribute) and is_training_arguments(model, node)


def _is_handed(model: FileModel, node: cst.Name) -> bool:
    """A parameter that the Trainer gives its arguments for: ``on_log(self, args, state, ...)``."""
    function = model.with_parameter(node)
    if function is None or function.owner is None:
        return False
    if not TRAINER_CALLBACKS.isdisjoint(model.library_bases(function.owner)):
        return function.name.startswith("on_") and function.parameters[1:2] == (node.value,)
    handed = (function.name, node.value) in _HANDED
    return handed and _is_right_on_it(model, function.owner)


def _is_declared(model: FileModel, node: cst.Name) -> bool:
    """A parameter ``args: TrainingArguments`` that its function gives nothing else."""
    alone = len(model.bindings(node.value, node)) == 1
    return alone and model.is_parameter(node) and _is_class(model, _annotation(model, node))


def _annotation(model: FileModel, node: cst.Name) -> cst.BaseExpression | None:
    """What a parameter is said to be: ``args: TrainingArguments``."""
    function = model.with_parameter(node)
    return None if function is None else function.annotation(node.value)


def parsed_as(
    model: FileModel, node: cst.Name | cst.Attribute
) -> Iterator[cst.BaseExpression | None]:
    """The classes that a name is parsed as: ``model_args, args = parser.parse_json_file(path)``.

    None where it gets its meaning in another way, or nobody knows the class.
    """
    classes = _classes(model)
    for line in model.nodes(cst.Assign):
        assert isinstance(line, cst.Assign)
        for target in (one.target for one in line.targets):
            for place, value, whole in _placed(model, target, line.value):
                if same_name(value, node) and _is_one_name(model, value, node):
                    known = 0 <= place < len(classes) and _parses(model, whole)
                    yield classes[place] if known else None


def _is_one_name(model: FileModel, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether two names that are spelled alike mean one, not those of two functions."""
    if not isinstance(one, cst.Name) or not isinstance(other, cst.Name):
        return True
    return model.bindings(one.value, one) == model.bindings(other.value, other)


def _placed(
    model: FileModel, target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[int, cst.BaseExpression, cst.BaseExpression]]:
    """The places of ``a, b = made`` and of ``b = made[1]``, with what is set and what is taken.

    -1 where no place is said.
    """
    if isinstance(target, cst.Tuple):
        for place, part in enumerate(target.elements):
            yield place, part.value, value
        return
    index = index_of(value) if isinstance(value, cst.Subscript) else None
    said = model.literal(index) if index is not None else None
    if isinstance(value, cst.Subscript) and isinstance(said, int):
        yield said, target, value.value
    else:
        yield -1, target, value


def _parses(model: FileModel, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and model.call(node).method in _PARSES


def _classes(model: FileModel) -> list[cst.BaseExpression]:
    """The classes that the one parser of a file reads."""
    parsers = list(model.calls(*PARSERS))
    given = parsers[0].node.args[:1] if len(parsers) == 1 else ()
    for argument in given:
        value = argument.value
        several = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
        return [x.value for x in several] or [value]
    return []
