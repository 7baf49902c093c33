"""What was computed of one shard of the evaluation data, and of no reduction over the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from xladoctor.lint.model import Class, Function, Kind, LoopKind, children
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.dotted import dotted_text, last_name, text_of
from xladoctor.lint.model.helpers import returned
from xladoctor.lint.rules._given_names import brought
from xladoctor.lint.rules._handed_over import is_accelerator
from xladoctor.lint.rules._together import Together, brings_together, picks
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xladoctor.lint.model import CallSite, FileModel, Loop
    from xladoctor.lint.rules._given_names import Given, GivenNames
    from xladoctor.lint.rules._sharded_loaders import ShardedLoaders

#: Words of functions that nobody has read, and that may do so.
_TOGETHER = frozenset(
    {"gather", "reduce", "reduced", "allreduce", "allgather", "sync", "synchronize", "merge"}
)
#: What tells how much there is, and not how good it is.
_COUNTS = frozenset({"builtins.len", "builtins.range", "builtins.type", "builtins.id"})
_SIZES = frozenset({"size", "numel", "dim", "ndim", "shape"})
#: Packages whose functions compute with what they are given, and ask no other core.
_COMPUTE = (
    "builtins.", "torch.", "torch_xla.", "numpy.", "math.", "statistics.", "sklearn.", "scipy.",
    "pandas.", "itertools.", "collections.", "functools.", "copy.", "json.", "transformers.",
    "seqeval.", "nltk.", "sacrebleu.", "einops.",
)  # fmt: skip
#: Words of functions of other files that score what they are given.
_SCORES = frozenset({"metric", "metrics", "score", "scores", "accuracy", "auc", "f1", "map", "iou"})
#: Objects that keep what each process gives them, and answer for that process alone, unless they
#: are told how many there are.
_METRICS = frozenset({"evaluate.load", "evaluate.combine", "datasets.load_metric"})
_PROCESSES = frozenset({"process_id", "num_process", "experiment_id"})
#: How deep a part of something may be asked for.
_DEEPEST = 8
#: Methods of Trainers and of Accelerate's object that hand on what they are given.
_HANDS_ON = know.HANDS_ON | {"_prepare_inputs", "_prepare_input"}
_HOLDS = frozenset({Kind.CONTAINER, Kind.DEVICE_TENSOR, Kind.CPU_TENSOR, Kind.ARRAY, Kind.NUMBER})
_TEXTS = (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)
_RUNS = frozenset({Kind.MODEL, Kind.LOSS})
_MOST = 600
#: Keys and places, the outermost first.
Part: TypeAlias = "tuple[str | int, ...]"
#: One of several, wherever it stands.
_ANY = 10**9


class Shards:
    """Questions about values: were they computed in a loop over this core's shard?

    Args:
        model: The file that asks.
        names: What its names are given.
        loaders: Which loaders are sharded.
    """

    def __init__(self, model: FileModel, names: GivenNames, loaders: ShardedLoaders) -> None:
        self.model, self.names, self.loaders = model, names, loaders
        self.loops: Mapping[cst.CSTNode, Loop] = {one.node: one for one in model.loops_of_program}
        self.together = Together(model)

    def loop_of(self, node: cst.BaseExpression) -> Loop | None:
        """The evaluation loop over a shard of which all of a value was computed.

        None where any of it may have been brought together, or is not known.
        """
        question = _Question(self)
        question.ask(node, (), (), adds=False)
        return None if question.unsure else question.found


class _Question:
    """One look at what a value was computed of.

    Attributes:
        found: The loop over a shard, if one was come to.
        unsure: Whether some of it was brought together, or may have been.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards, self._model = shards, shards.model
        self.found: Loop | None = None
        self.unsure = False
        self._seen: set[tuple[object, ...]] = set()

    def ask(
        self,
        node: cst.BaseExpression | None,
        calls: tuple[CallSite, ...],
        part: Part,
        *,
        adds: bool,
    ) -> None:
        """Looks at an expression.

        Args:
            node: The expression.
            calls: Those whose functions it stands in, as far as the way went through them.
            part: Which of several things is asked for: ("loss", 0) for ``x["loss"][0]``.
            adds: Whether it was put to others, or added up, on the way.
        """
        key = (node, calls, part, adds)
        if node is None or self.unsure or key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) > _MOST:
            self.unsure = True
        elif isinstance(node, cst.Name | cst.Attribute):
            self._held(node, calls, part, adds=adds)
        elif isinstance(node, cst.Call):
            self._call(self._model.call(node), calls, part, adds=adds)
        elif isinstance(node, cst.Subscript):
            self._place(node, calls, part, adds=adds)
        elif isinstance(node, cst.Dict | cst.Tuple | cst.List) and part:
            for one in _parts(node, part[0]):
                self.ask(one, calls, part[1:], adds=adds)
        elif isinstance(node, cst.IfExp):
            self.ask(node.body, calls, part, adds=adds)
            self.ask(node.orelse, calls, part, adds=adds)
        elif isinstance(node, cst.DictComp):
            self.ask(node.value, calls, (), adds=adds)
        elif isinstance(node, cst.BaseSimpleComp):
            self.ask(node.elt, calls, (), adds=adds)
        elif not isinstance(node, cst.Lambda):
            self._each(children(node), calls, adds=adds)

    def _each(
        self, nodes: Iterable[cst.CSTNode], calls: tuple[CallSite, ...], *, adds: bool
    ) -> None:
        for one in nodes:
            if isinstance(one, cst.BaseExpression):
                self.ask(one, calls, (), adds=adds)
            else:  # an element, an argument, a part of a text
                self._each(children(one), calls, adds=adds)

    def _place(
        self, node: cst.Subscript, calls: tuple[CallSite, ...], part: Part, *, adds: bool
    ) -> None:
        """``scores["loss"]``; one row of several is a sample and no metric."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Slice):
            return
        if isinstance(index, cst.Index):
            number = self._model.literal(index.value)
            key = text_of(index.value) or (number if isinstance(number, int) else _ANY)
            part = (key, *part)
        if len(part) <= _DEEPEST:  # ``x = x[0]`` in a loop asks for one more in each turn
            self.ask(node.value, calls, part, adds=adds)

    def _held(
        self,
        node: cst.Name | cst.Attribute,
        calls: tuple[CallSite, ...],
        part: Part,
        *,
        adds: bool,
    ) -> None:
        """What a name holds, an attribute of the object, or a part of either (``meter.avg``)."""
        if isinstance(node, cst.Attribute) and node.attr.value in _SIZES:
            return
        if self._may_be_brought(node):
            self.unsure = True
            return
        given = self._shards.names.to(node)
        if given is None and (given := self._shards.names.kept(node)) is not None:
            calls = ()
        elif given is None and isinstance(node, cst.Attribute):
            self._of_library(node)
            self.ask(node.value, calls, (), adds=adds)
        elif given is None and isinstance(node, cst.Name):
            self._parameter(node, calls, part, adds=adds)
        for one in given or ():
            self._given(one, calls, part, adds=adds)

    def _may_be_brought(self, node: cst.Name | cst.Attribute) -> bool:
        """Whether the function around a name may bring together, in place, what it holds."""
        home = self._model.file_with(node)
        names = self._shards.together.names(self._model.function_of(node), home)
        first = (dotted_text(node) or "").partition(".")[0]
        return names is not None and first in names

    def _given(
        self,
        given: Given,
        calls: tuple[CallSite, ...],
        part: Part,
        *,
        adds: bool,
    ) -> None:
        call = brought(self._model, given)
        if call is not None:
            self._put(call, calls, adds=adds or not (part and isinstance(part[0], int)))
            return
        if given.is_loop and self._loop(given, calls, adds=adds):
            return
        part = () if given.is_loop else (*given.places, *part)
        self.ask(given.value, calls, part, adds=adds or given.adds)

    def _put(self, call: CallSite, calls: tuple[CallSite, ...], *, adds: bool) -> None:
        """``losses.append(loss)``, ``meter.update(loss)`` of a class that the program has."""
        assert call.receiver is not None
        value = self._model.value(call.receiver)
        own = [value.instance.cls] if value.instance is not None else [*value.classes]
        known = value.kind is Kind.CONTAINER or bool(own) or self._is_plain(call.receiver)
        if self._comes_to((x.value for x in call.node.args), calls, adds=adds) and not known:
            self.unsure = True  # an object that nobody has read
        for owner in own:
            inside = (
                one for part in owner.methods.values() for one in self._model.reached(part.node)
            )
            if any(brings_together(self._model, one) for one in inside):
                self.unsure = True

    def _is_plain(self, node: cst.BaseExpression) -> bool:
        """Whether a name holds lists and the like, or a metric of one process."""
        while isinstance(node, cst.Subscript):
            node = node.value
        if not isinstance(node, cst.Name | cst.Attribute):
            return False
        given = self._shards.names.to(node) or self._shards.names.kept(node) or ()
        made = [one.value for one in given if one.anew]
        return bool(made) and all(
            isinstance(one, cst.List | cst.Dict | cst.Set | cst.BaseComp)
            or (isinstance(one, cst.Call) and self._keeps(self._model.call(one)))
            for one in made
        )

    def _keeps(self, call: CallSite) -> bool:
        if call.name in _METRICS:
            return call.keywords.keys().isdisjoint(_PROCESSES) and not call.has_star
        return (call.name or "").startswith(("collections.", "builtins."))

    def _of_library(self, node: cst.Attribute) -> None:
        """Metrics of torchmetrics bring themselves together."""
        value = self._model.value(node.value)
        if (value.type_name or "").startswith(("torchmetrics.", "ignite.")):
            self.unsure = True

    def _parameter(
        self,
        node: cst.Name,
        calls: tuple[CallSite, ...],
        part: Part,
        *,
        adds: bool,
    ) -> None:
        function = self._model.with_parameter(node)
        if function is None or function.place(node.value) == -1:
            return
        if calls and calls[-1].target is function:
            self.ask(calls[-1].given_to(function, node.value), calls[:-1], part, adds=adds)
            return
        for call in self._model.callers(function):
            self.ask(call.given_to(function, node.value), (), part, adds=adds)

    def _loop(self, given: Given, calls: tuple[CallSite, ...], *, adds: bool) -> bool:
        """Whether a loop goes over batches; over a shard it is what was looked for."""
        loop = self._shards.loops.get(given.line)
        if loop is None:
            return False
        shared = self._shards.loaders.is_shared(loop, calls)
        if not shared and not loop.iterates.is_loader:
            return False
        trains = loop.kind is LoopKind.STEP and not self._shards.loaders.says_evaluation(
            loop, calls
        )
        if trains or (shared and self._may_join(loop)):
            self.unsure = True
        elif (
            shared
            and (adds or isinstance(loop.node, cst.CompFor))
            and self._model.master_only(loop.node) is None
        ):
            self.found = loop
        return True

    def _may_join(self, loop: Loop) -> bool:
        """Whether a loop brings something together, or its function something unknown."""
        home = self._model.file_with(loop.node)
        if self._shards.together.names(loop.function, home) is None:
            return True
        return any(self._shards.together.joins(call) for call in home.calls_in(loop.node))

    def _call(
        self,
        call: CallSite,
        calls: tuple[CallSite, ...],
        part: Part,
        *,
        adds: bool,
    ) -> None:
        model = self._model
        if call.name in _COUNTS or (call.name is None and call.method in _SIZES):
            return
        if brings_together(model, call):
            self.unsure = True
            return
        if self._loaders_call(call):
            return
        target = call.target
        if isinstance(target, Function) and model.value(call.node.func).kind not in _RUNS:
            if self._shards.together.meets(target):
                self.unsure = True
            elif len(calls) < 4:
                for one in returned(target):
                    self.ask(one, (*calls, call), part, adds=adds)
            return
        self._unread(call, target, calls, adds=adds)

    def _loaders_call(self, call: CallSite) -> bool:
        return call.method in {"prepare", "prepare_data_loader", "unwrap_model"} and is_accelerator(
            self._model, call
        )

    def _unread(
        self,
        call: CallSite,
        target: Function | Class | None,
        calls: tuple[CallSite, ...],
        *,
        adds: bool,
    ) -> None:
        """A call of what the program does not have: of a library, a model, a tensor's method."""
        model = self._model
        if call.name in _METRICS:
            return
        known = self._computes(call, target)
        receiver = call.receiver if call.name is None else None
        if receiver is not None and model.value(receiver).kind not in _RUNS:
            known |= self._comes_to([receiver], calls, adds=adds)
        given = [item.value for item in call.node.args]
        if self._comes_to(given, calls, adds=adds) and not known:
            self.unsure = True  # what it does with that, nobody has read

    def _computes(self, call: CallSite, target: Function | Class | None) -> bool:
        """Whether a call computes with what it is given, and asks no other core."""
        model, func = self._model, call.node.func
        if words(call.last) & _TOGETHER and not picks(model, call):
            return False
        if call.name is not None:
            return call.name.startswith(_COMPUTE) or bool(words(call.last) & _SCORES)
        if isinstance(target, Class) or model.value(func).kind in _RUNS:
            return True
        if isinstance(func, cst.Name):  # ``criterion(out, y)``, which somebody gives
            return model.is_parameter(func) or bool(model.assigned_to(func))
        if not isinstance(func, cst.Attribute) or call.receiver is None:
            return False
        if isinstance(call.receiver, _TEXTS):  # ``" ".join(told)``, ``"{:.3f}".format(loss)``
            return True
        self._of_library(func)
        kind = model.value(call.receiver).kind
        return (
            kind in _RUNS
            or kind in _HOLDS
            or func.attr.value in _HANDS_ON
            or bool(model.kept_in(func))
            or bool(know.TOKENIZER_NAME.search(last_name(call.receiver)))
        )

    def _comes_to(
        self, nodes: Iterable[cst.BaseExpression], calls: tuple[CallSite, ...], *, adds: bool
    ) -> bool:
        """Whether any of some expressions was computed of a shard, after a look at all of them."""
        before, self.found = self.found, None
        self._each(nodes, calls, adds=adds)
        come = self.found is not None
        self.found = self.found or before
        return come


def _parts(node: cst.Dict | cst.Tuple | cst.List, part: str | int) -> Sequence[cst.BaseExpression]:
    """What stands at a place or under a key; all, where that is not to be seen."""
    if isinstance(node, cst.Dict):
        pairs = [one for one in node.elements if isinstance(one, cst.DictElement)]
        found = [one.value for one in pairs if text_of(one.key) == part]
        return found or [one.value for one in node.elements]
    if isinstance(part, int) and -len(node.elements) <= part < len(node.elements):
        return [node.elements[part].value]
    return [one.value for one in node.elements]
