"""Values that a program gets from its own settings: a dictionary of flags, an argparse default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import is_name, last_name
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.words import names_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.lint.model import CallSite, Class, FileModel

#: Parsers that make objects of the classes that they are given, of what the command line says.
PARSERS = (
    *("transformers.HfArgumentParser", "trl.TrlParser", "trl.H4ArgumentParser"),
    "optimum.neuron.NeuronHfArgumentParser",
    "optimum.neuron.hf_argparser.NeuronHfArgumentParser",
)
#: What adds the settings of Lightning's Trainer to a program's options, and which count devices.
_BRINGS = "lightning.pytorch.Trainer.add_argparse_args"
_TRAINER_BRINGS = frozenset({"devices", "tpu_cores"})


def constant(model: FileModel, node: cst.BaseExpression) -> object:
    """The value of an expression if the program settles it, else ``NotImplemented``.

    Knows, beyond literals and names bound once to one (also in the file that they are imported
    from), ``FLAGS["cores"]`` when the file sets that key once, ``config.FLAGS["cores"]`` of a file
    that it imports, and ``args.cores`` when an ``add_argument("--cores", default=8)`` says what it
    is unless the caller chooses otherwise.
    """
    value = model.literal(node)
    if value is NotImplemented and isinstance(node, cst.Name | cst.Attribute):
        value = model.imported_literal(node)
    if value is not NotImplemented:
        return value
    if isinstance(node, cst.Subscript):
        key = key_of(model, node)
        return NotImplemented if key is None else _of_key(model, node.value, key)
    default = default_of(model, node)
    return NotImplemented if default is None else model.literal(default)


def default_of(model: FileModel, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Where the default of ``args.cores`` is written.

    In ``add_argument("--cores", default=8)``, or in the class of the settings: ``cores: int = 8``,
    ``cores: int = field(default=8)``, also of those that ``HfArgumentParser(Settings)`` reads.
    """
    if not isinstance(node, cst.Attribute) or not _are_settings(node.value):
        return None
    settings = model.value(node.value).instance
    if settings is not None:
        made = settings.call
        given = made.args if isinstance(made, cst.Call) else ()
        named = {x.keyword.value for x in given if x.keyword is not None}
        if node.attr.value in named or any(x.keyword is None for x in given):
            return None
        return of_class(settings.cls.node, node.attr.value)
    for name, written in option_defaults(model):
        if name == node.attr.value:
            return written
    found = (of_class(cls.node, node.attr.value) for cls in parsed_classes(model))
    return next(filter(None, found), None)


def _are_settings(node: cst.BaseExpression) -> bool:
    """A name, or what an object keeps under one of settings: ``args``, ``self.training_args``."""
    kept = isinstance(node, cst.Attribute) and is_name(node.value, "self")
    return isinstance(node, cst.Name) or (kept and names_settings(last_name(node)))


def option_defaults(model: FileModel) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Name and default of the options that a file declares: ``add_argument("--cores", default=8)``.

    Yields:
        One for each flag of an option, as the parsed settings call it.
    """
    for name, call in _options(model):
        if "default" in call.keywords:
            yield name, call.keywords["default"]


def of_options(model: FileModel, node: cst.Attribute) -> list[object]:
    """What ``args.workers`` of a parameter is by default: as linked files declare the option."""
    if not isinstance(node.value, cst.Name) or not model.is_parameter(node.value):
        return []
    return [
        part.literal(written)
        for part in model.linked
        for name, written in option_defaults(part)
        if name == node.attr.value
    ]


def is_required(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether the command line has to say what ``args.model`` is, so that it is never None."""
    if not isinstance(node, cst.Attribute) or not _are_settings(node.value):
        return False
    given = [
        call.keywords.get("required") for name, call in _options(model) if name == node.attr.value
    ]
    return bool(given) and all(one is not None and model.literal(one) is True for one in given)


def is_number_option(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether ``args.cores`` is any number that somebody gives: ``type=int``, and no default.

    Such are the options that Lightning's Trainer brings, until the program sets a default.
    """
    if not isinstance(node, cst.Attribute) or not _are_settings(node.value):
        return False
    if node.attr.value in _TRAINER_BRINGS and any(True for _ in model.calls(_BRINGS)):
        own = (name for name, _ in _options(model))
        defaults = (call.keywords for call in model.methods("set_defaults"))
        return not any(node.attr.value in names for names in (set(own), *defaults))
    said = [call.keywords for name, call in _options(model) if name == node.attr.value]
    return bool(said) and all(
        "choices" not in one
        and is_name(one.get("type"), "int")
        and ("default" not in one or is_name(one["default"], "None"))
        for one in said
    )


def _options(model: FileModel) -> Iterator[tuple[str, CallSite]]:
    """Each flag of the options that a file declares, as the parsed settings call it."""
    for call in model.methods("add_argument"):
        for flag in map(model.literal, call.positional):
            if isinstance(flag, str):
                yield flag.lstrip("-").replace("-", "_"), call


def parsed_classes(model: FileModel) -> Iterator[Class]:
    """The classes of settings that a parser of transformers or TRL reads from the command line."""
    for part in (model, *model.linked):
        named = {
            name.value
            for call in part.calls(*PARSERS)
            for argument in call.node.args[:1]
            for name in model.within(argument.value, cst.Name)
        }
        for other in (part, *part.linked) if named else ():
            yield from (cls for cls in other.classes if cls.name in named)


def of_settings(model: FileModel, node: cst.Attribute) -> list[cst.BaseExpression]:
    """The defaults of an option in the settings of a program, which are dataclasses.

    Where nothing says of which class ``config.trainer`` in ``config.trainer.devices`` is, as Hydra
    makes it.
    """
    settings = node.value.attr if isinstance(node.value, cst.Attribute) else node.value
    if default_of(model, node) is not None or is_name(settings, "self"):
        return []
    found = (
        of_class(cls.node, node.attr.value)
        for part in (model, *model.linked)
        for cls in part.classes
        if any("dataclass" in part.tree.text(one.decorator) for one in cls.node.decorators)
    )
    return [one for one in found if one is not None]


def of_class(cls: cst.ClassDef, attribute: str) -> cst.BaseExpression | None:
    """What the body of a class gives an attribute."""
    return next((value for name, value in _values_of(cls) if name == attribute), None)


def class_values(model: FileModel) -> Mapping[str, Sequence[cst.BaseExpression]]:
    """Attribute to what the bodies of the file's classes give it (``model.once(class_values)``)."""
    found: dict[str, list[cst.BaseExpression]] = {}
    for cls in model.classes:
        for name, value in _values_of(cls.node):
            if value is not None:
                found.setdefault(name, []).append(value)
    return found


def _values_of(cls: cst.ClassDef) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """``size: int = 8``, ``size = 8`` in the body of a class."""
    for line in cls.body.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name):
                yield part.target.value, written_default(part.value)
            elif isinstance(part, cst.Assign) and isinstance(part.targets[0].target, cst.Name):
                yield part.targets[0].target.value, part.value


def written_default(value: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """The default in ``field(default=8, metadata={...})``, or what is written itself."""
    if not isinstance(value, cst.Call) or not is_name(value.func, "field"):
        return value
    named = {x.keyword.value: x.value for x in value.args if x.keyword is not None}
    return named.get("default")


def _of_key(model: FileModel, holder: cst.BaseExpression, key: str) -> object:
    """The entry of a dictionary of this file, or of one that it imports."""
    value: object = NotImplemented
    if isinstance(holder, cst.Name):
        value = _entry(model, holder.value, key)
    if value is NotImplemented and isinstance(holder, cst.Name | cst.Attribute):
        value = _imported_entry(model, holder, key)
    return value


def _imported_entry(model: FileModel, holder: cst.Name | cst.Attribute, key: str) -> object:
    """``config.FLAGS["cores"]``, of a dictionary that no file of the program changes there."""
    whole = model.imported_literal(holder)
    if not isinstance(whole, dict) or key not in whole:
        return NotImplemented
    name = last_name(holder)
    changed = any(
        isinstance(item.target, cst.Subscript)
        and last_name(item.target.value) == name
        and key_of(part, item.target) in {key, None}
        for part in (model, *model.linked)
        for node in part.nodes(cst.Assign)
        for item in node.targets
    ) or any(
        call.receiver is not None and last_name(call.receiver) == name
        for part in (model, *model.linked)
        for call in part.methods("update", "setdefault", "pop")
    )
    return NotImplemented if changed else whole[key]


def _entry(model: FileModel, name: str, key: str) -> object:
    """What ``name[key]`` is set to, if that happens exactly once in the file."""
    found: list[cst.BaseExpression] = []
    for node in model.nodes(cst.Assign):
        for item in node.targets:
            target = item.target
            if is_name(target, name):
                if isinstance(node.value, cst.Dict):
                    found.extend(
                        element.value
                        for element in node.value.elements
                        if isinstance(element, cst.DictElement)
                        and model.literal(element.key) == key
                    )
            elif (
                isinstance(target, cst.Subscript)
                and isinstance(target.value, cst.Name)
                and target.value.value == name
                and key_of(model, target) == key
            ):
                found.append(node.value)
    if len(found) != 1:
        return NotImplemented
    [made] = found
    value = model.literal(made)
    if value is NotImplemented and isinstance(made, cst.Subscript):
        # ``flags["cores"] = config.FLAGS["cores"]``
        of, inner = made.value, key_of(model, made)
        if inner is not None and isinstance(of, cst.Name | cst.Attribute):
            value = _imported_entry(model, of, inner)
    return value
