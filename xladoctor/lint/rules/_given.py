"""What a call is given by name, also through dictionaries: ``Trainer(**settings)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import OnXla
from xladoctor.lint.model.dotted import dotted_text, is_name
from xladoctor.lint.rules._environment import key_of
from xladoctor.lint.rules._sources import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xladoctor.lint.model import CallSite, FileModel

#: Dictionaries within dictionaries.
_DEPTH = 4


def given(model: FileModel, call: CallSite) -> dict[str, cst.BaseExpression]:
    """The keyword arguments of a call, with those of dictionaries that it unpacks.

    What a dictionary is given where no XLA device is used is left out.
    """
    found: dict[str, cst.BaseExpression] = {}
    for name, value in each_given(model, call):
        found.setdefault(name, value)
    return found


def each_given(model: FileModel, call: CallSite) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The same, each way: of a name that two branches give other values, both."""
    yield from call.keywords.items()
    for argument in call.node.args:
        if argument.star == "**":
            for name, value in entries(model, argument.value, _DEPTH):
                if not model.is_here(value) or model.on_xla(value) is not OnXla.NO:
                    yield name, value


def argument(model: FileModel, call: CallSite, place: int, name: str) -> cst.BaseExpression | None:
    """What a call is given at a place or by a name, also by a dictionary that it unpacks."""
    written = call.argument(place, name)
    return given(model, call).get(name) if written is None else written


def all_given(model: FileModel, call: CallSite) -> bool:
    """Whether all that a call is given is in sight: dictionaries that it unpacks are written."""
    starred = [argument for argument in call.node.args if argument.star]
    return all(one.star == "**" and is_written(model, one.value) for one in starred)


def is_written(model: FileModel, node: cst.BaseExpression) -> bool:
    """Whether a dictionary is written out in the program, with those that it unpacks."""
    return _is_written(model, node, _DEPTH)


def _is_written(model: FileModel, node: cst.BaseExpression, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(node, cst.Dict):
        return all(
            isinstance(one, cst.DictElement) or _is_written(model, one.value, depth - 1)
            for one in node.elements
        )
    if isinstance(node, cst.Call) and model.name(node.func) == "builtins.dict":
        return all(
            one.keyword is not None or _is_written(model, one.value, depth - 1) for one in node.args
        )
    if isinstance(node, cst.DictComp):
        return bool(_listed_keys(model, node))
    if not isinstance(node, cst.Name):
        return False
    made = sources(model, node)
    return bool(made) and all(_is_written(model, one, depth - 1) for one in made or ())


def _listed_keys(model: FileModel, node: cst.DictComp) -> Sequence[str]:
    """``{key: settings[key] for key in ("num_beams", "length_penalty")}``."""
    over, target = node.for_in, node.for_in.target
    listed = model.literal(over.iter) if over.inner_for_in is None else None
    if not isinstance(target, cst.Name) or not is_name(node.key, target.value):
        return ()
    return [x for x in listed if isinstance(x, str)] if isinstance(listed, list | tuple) else ()


def entries(
    model: FileModel, node: cst.BaseExpression, depth: int = _DEPTH
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Name and value of what a dictionary holds, the last one first."""
    if depth == 0:
        return
    if isinstance(node, cst.Dict):
        yield from _written(model, node, depth)
    elif isinstance(node, cst.DictComp):
        yield from ((name, node.value) for name in _listed_keys(model, node))
    elif isinstance(node, cst.Call) and model.name(node.func) == "builtins.dict":
        for argument in node.args:
            if argument.keyword is not None:
                yield argument.keyword.value, argument.value
            else:
                yield from entries(model, argument.value, depth - 1)
    elif isinstance(node, cst.Name | cst.Attribute):
        gone = set(_taken_out(model, node))
        made = [one for one in sources(model, node) or () if one is not node]
        all_ways = (_added(model, node, depth), *(entries(model, one, depth - 1) for one in made))
        yield from (one for way in all_ways for one in way if one[0] not in gone)
    elif isinstance(node, cst.Subscript):
        yield from _of_key(model, node, depth)


def _taken_out(model: FileModel, node: cst.Name | cst.Attribute) -> Iterator[str]:
    """``del settings["devices"]`` of the same function."""
    text, function = _spelled(model, node), model.function_of(node)
    for line in model.nodes(cst.Del):
        targets = line.target
        parts = [x.value for x in targets.elements] if isinstance(targets, cst.Tuple) else [targets]
        for place in parts:
            named = isinstance(place, cst.Subscript) and _spelled(model, place.value) == text
            if isinstance(place, cst.Subscript) and named and model.function_of(line) is function:
                key = key_of(model, place)
                yield from () if key is None else (key,)


def _of_key(
    model: FileModel, node: cst.Subscript, depth: int
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The same of a dictionary in a dictionary: ``config["trainer"]``."""
    key = key_of(model, node)
    if key is None:
        return
    yield from _added(model, node, depth)
    for name, value in entries(model, node.value, depth - 1):
        if name == key:
            yield from entries(model, value, depth - 1)


def _written(
    model: FileModel, node: cst.Dict, depth: int
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """``{"devices": 8, **others}``."""
    for element in node.elements:
        if not isinstance(element, cst.DictElement):
            yield from entries(model, element.value, depth - 1)
        elif isinstance(name := model.literal(element.key), str):
            yield name, element.value


def _added(
    model: FileModel, node: cst.Name | cst.Attribute | cst.Subscript, depth: int
) -> Iterator[tuple[str, cst.BaseExpression]]:
    """``settings["devices"] = 8`` and ``settings.update(devices=8)`` of the same function."""
    text, function = _spelled(model, node), model.function_of(node)
    if text is None:
        return
    for call in model.methods("update"):
        if call.function is function and _spelled(model, call.receiver) == text:
            yield from call.keywords.items()
            for one in call.positional:
                yield from entries(model, one, depth - 1)
    for line in model.nodes(cst.Assign):
        for target in line.targets:
            place = target.target
            if not isinstance(place, cst.Subscript) or _spelled(model, place.value) != text:
                continue
            name = key_of(model, place)
            if name is not None and model.function_of(line) is function:
                yield name, line.value


def _spelled(model: FileModel, node: cst.BaseExpression | None) -> tuple[str, ...] | None:
    """A name, an attribute, and what a dictionary in it holds: ``config["trainer"]``."""
    if isinstance(node, cst.Subscript):
        within, key = _spelled(model, node.value), key_of(model, node)
        return None if within is None or key is None else (*within, key)
    text = dotted_text(node) if node is not None else None
    return None if text is None else (text,)
