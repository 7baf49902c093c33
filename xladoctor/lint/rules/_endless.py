"""Data without an end: a loader over it has no last batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, Function, children, walk
from xladoctor.lint.rules._exact import assigned
from xladoctor.lint.rules._settled import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Samples that no training comes to the end of.
_ENDLESS = 10**8
_SAMPLERS = frozenset({"torch.utils.data.RandomSampler", "torch.utils.data.WeightedRandomSampler"})
_DEEPEST = 4


def endless(model: FileModel, loader: CallSite) -> bool:
    """Whether a loader's samples never run out, as far as the file says."""
    dataset, sampler = loader.argument(0, "dataset"), loader.keywords.get("sampler")
    if sampler is not None and _samples(model, sampler) >= _ENDLESS:
        return True
    made = _made(model, dataset) if dataset is not None else None
    if made is not None and _repeats(model, made.node):
        return True
    if dataset is not None and any(_repeats(model, stage) for stage in _stages(model, dataset)):
        return True
    if made is None or not isinstance(made.target, Class):
        return False
    if any(_repeats(model, method.node) for method in made.target.methods.values()):
        return True
    method = made.target.methods.get("__iter__")
    return method is not None and _goes_on(model, method.node.body)


def endless_behind(model: FileModel, device_loader: CallSite) -> bool:
    """Whether ``pl.ParallelLoader(batches, [device])`` goes over batches that never run out."""
    batches = device_loader.argument(0, "loader")
    made = model.value(batches).origin if batches is not None else None
    if not isinstance(made, cst.Call):
        return False
    home = model.file_with(made)
    return endless(home, home.call(made))


def _repeats(model: FileModel, node: cst.CSTNode) -> bool:
    """``rows.repeat()`` of tf.data and WebDataset: without a number they begin again for ever.

    So do shards of WebDataset that are drawn again and again (``resampled=True``; webdataset 1.0).
    """
    return any(
        isinstance(part, cst.Call) and _begins_again(model, model.call(part)) for part in walk(node)
    )


def _begins_again(model: FileModel, call: CallSite) -> bool:
    again = call.keywords.get("resampled")
    return (
        (call.method == "repeat" and not call.node.args)
        or call.last == "ResampledShards"
        or (again is not None and {*settled(model, again)} == {True})
    )


def _stages(model: FileModel, dataset: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a row of calls begins with, name by name: ``data`` of ``data.map(f)``."""
    waiting, seen = [dataset], set()
    while waiting:
        one = waiting.pop()
        while isinstance(one, cst.Call | cst.Attribute):
            one = one.func if isinstance(one, cst.Call) else one.value
        if not isinstance(one, cst.Name):
            continue
        for made in assigned(model, one):
            if made not in seen and isinstance(made, cst.Call):
                seen.add(made)
                waiting.append(made)
                yield made


def cut_to_batches(model: FileModel, loader: CallSite) -> bool:
    """Whether a dataset of the program keeps whole batches alone: ``rows[: len(rows) // n * n]``.

    ``n`` is a batch size by its name, or by those that it is computed of.
    """
    dataset = loader.argument(0, "dataset")
    instance = model.value(dataset).instance if dataset is not None else None
    return instance is not None and any(
        isinstance(part, cst.BinaryOperation) and _whole_batches(model, part)
        for method in instance.cls.methods.values()
        for part in walk(method.node)
    )


def _whole_batches(model: FileModel, node: cst.BinaryOperation) -> bool:
    """``count // n * n``, with a batch size as ``n``."""
    left = node.left
    if not isinstance(node.operator, cst.Multiply) or not isinstance(left, cst.BinaryOperation):
        return False
    count = model.tree.text(node.right).strip()
    again = model.tree.text(left.right).strip() == count
    if not isinstance(left.operator, cst.FloorDivide) or not again:
        return False
    parts = [node.right, *model.assigned_to(node.right)]
    return any("batch" in model.tree.text(part) for part in parts)


def _made(model: FileModel, node: cst.BaseExpression) -> CallSite | None:
    """The call that makes a value."""
    origin = node if isinstance(node, cst.Call) else model.value(node).origin
    return model.call(origin) if isinstance(origin, cst.Call) else None


def _samples(model: FileModel, sampler: cst.BaseExpression) -> float:
    """How many samples a sampler draws; 0 if that is not written down."""
    made = _made(model, sampler)
    if made is None or made.name not in _SAMPLERS:
        return 0
    number = made.keywords.get("num_samples")
    if isinstance(number, cst.Call) and model.call(number).name == "builtins.int" and number.args:
        number = number.args[0].value
    value = model.literal(number) if number is not None else 0
    return value if isinstance(value, int | float) else 0


def _goes_on(model: FileModel, body: cst.CSTNode, depth: int = 0) -> bool:
    """Whether a generator is one without end, or gives or returns what another such one does."""
    if _loops_for_ever(body):
        return True
    if depth >= _DEEPEST:
        return False
    parts = list(walk(body, into_functions=False))
    given = [part.value for part in parts if isinstance(part, cst.Return)]
    given += [part.item for part in parts if isinstance(part, cst.From)]
    called = [_called(model, node) for node in given if isinstance(node, cst.Call)]
    return any(body is not None and _goes_on(model, body, depth + 1) for body in called)


def _called(model: FileModel, node: cst.Call) -> cst.CSTNode | None:
    """The body of the function that is called (a method that nobody calls is not run through)."""
    target = model.call(node).target
    if isinstance(target, Function):
        return target.node.body
    if not isinstance(node.func, cst.Name):
        return None
    bound = [binding.node for binding in model.bindings(node.func.value, node)]
    return bound[0].body if len(bound) == 1 and isinstance(bound[0], cst.FunctionDef) else None


def _loops_for_ever(body: cst.CSTNode) -> bool:
    return any(
        isinstance(node, cst.While)
        and isinstance(node.test, cst.Name | cst.Integer)
        and node.test.value in {"True", "1"}
        and not _ends(node.body)
        for node in walk(body, into_functions=False)
    )


def _ends(body: cst.CSTNode) -> bool:
    """Whether a loop can be left from inside: ``return``, or ``break`` that is its own."""
    waiting = [body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Return | cst.Raise):
            return True
        if isinstance(node, cst.For | cst.While):
            inner = walk(node.body, into_functions=False)
            if any(isinstance(part, cst.Return | cst.Raise) for part in inner):
                return True
        elif isinstance(node, cst.Break):
            return True
        elif not isinstance(node, cst.FunctionDef | cst.Lambda):
            waiting.extend(children(node))
    return False
