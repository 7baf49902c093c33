"""Running statements: what names hold after each, through branches, loops and handlers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.apart import (
    as_tried,
    behind_return,
    of_one_core,
    of_some_cores,
    read_of_file,
    returned_by_one_core,
)
from xladoctor.lint.model.contained import (
    container,
    element_of,
    under,
    unpack,
    with_attribute,
    with_entry,
)
from xladoctor.lint.model.dotted import dotted_text, is_name, string, text_of
from xladoctor.lint.model.frames import Env, Frame, join_env
from xladoctor.lint.model.indexed import put
from xladoctor.lint.model.iterators import is_manager, iterated
from xladoctor.lint.model.memory import ANY
from xladoctor.lint.model.narrowing import Narrowing
from xladoctor.lint.model.parts import index_of
from xladoctor.lint.model.records import HOLDERS
from xladoctor.lint.model.replaced import after, replaced
from xladoctor.lint.model.unreached import truth
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Instance, Kind, Value, defined, join

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.flow import Flow

#: Kinds of what a program says itself that it is a device loader.
_MAY_BE_LOADER = frozenset({Kind.UNKNOWN, Kind.LOADER, Kind.OBJECT})


class Statements:
    """Runs statements in a frame.

    Args:
        flow: The run that the frames belong to.
        evaluator: Evaluates the expressions in them.
    """

    def __init__(self, flow: Flow, evaluator: Evaluator) -> None:
        self._flow = flow
        self._evaluator = evaluator
        self.narrowing = Narrowing(flow.names, flow.tree)
        self._by_type: dict[type[cst.CSTNode], Callable[..., None]] = {
            cst.SimpleStatementLine: self._line,
            cst.SimpleStatementSuite: self._line,
            cst.Expr: self._expression,
            cst.Assign: self._assign,
            cst.AnnAssign: self._annotated,
            cst.AugAssign: self._augmented,
            cst.If: self._if,
            cst.For: self._for,
            cst.While: self._while,
            cst.With: self._with,
            cst.Try: self._try,
            cst.TryStar: self._try,
            cst.Match: self._match,
            cst.FunctionDef: self._definition,
            cst.ClassDef: self._definition,
            cst.Return: self._return,
            cst.Assert: self._assert,
            cst.Raise: self._raise,
            cst.Break: self._leap,
            cst.Continue: self._leap,
            cst.Del: self._delete,
        }

    def run(self, body: Sequence[cst.CSTNode], frame: Frame) -> None:
        """Run statements in order; ``frame.dead`` is set if the end is not reached."""
        dead = self._flow.tree.unreached
        for statement in body:
            if statement not in dead:
                self._statement(statement, frame)

    def _statement(self, node: cst.CSTNode, frame: Frame) -> None:
        handler = self._by_type.get(type(node))
        if handler is not None:
            handler(node, frame)

    def _line(self, node: cst.SimpleStatementLine | cst.SimpleStatementSuite, frame: Frame) -> None:
        for part in node.body:
            self._statement(part, frame)

    def _for(self, node: cst.For, frame: Frame) -> None:
        over = frame.over[node] = self._evaluator.evaluate(node.iter, frame)
        each = _element(node.target, iterated(self._flow, node.iter, over))
        self._loop(node, frame, lambda: self.assign(node.target, each, frame))
        self._replace_all(node, each, frame)

    def _replace_all(self, node: cst.For, each: Value, frame: Frame) -> None:
        """``for name, x in batch.items(): batch[name] = x.to(device)``: all of the batch is new."""
        found = replaced(node)
        if found is None or frame.dead:
            return
        holder, part = found
        self.assign(node.target, each, frame)
        now = after(self._evaluator.evaluate(holder, frame), self._evaluator.evaluate(part, frame))
        if now is not None:
            self.assign(holder, now, frame)

    def _while(self, node: cst.While, frame: Frame) -> None:
        self._loop(node, frame, lambda: self._evaluator.evaluate(node.test, frame))

    def _with(self, node: cst.With, frame: Frame) -> None:
        for item in node.items:
            value = self._evaluator.evaluate(item.item, frame)
            entered = self._entered(item.item, value)
            if item.asname is not None:
                self.assign(item.asname.name, entered, frame)
        self.run(node.body.body, frame)

    def _entered(self, node: cst.BaseExpression, value: Value) -> Value:
        """What ``with ... as x`` binds: what ``__enter__`` gives, or what ``contextmanager`` does.

        What is not read gives itself.
        """
        flow = self._flow
        if value.kind is Kind.OBJECT and value.instance is not None:
            method = flow.classes.method(value.instance.cls, "__enter__")
            given = UNKNOWN if method is None else flow.enter(None, method, value.instance, {})
            return value if given.kind is Kind.UNKNOWN else given
        if value.kind is not Kind.CONTAINER or not isinstance(node, cst.Call):
            return value
        managers = [one for one in flow.targets(node) if is_manager(flow.names, one)]
        return element_of(value) if managers else value

    def _definition(self, node: cst.FunctionDef | cst.ClassDef, frame: Frame) -> None:
        for decorator in node.decorators:
            self._evaluator.evaluate(decorator.decorator, frame)
        if isinstance(node, cst.FunctionDef):
            function = self._flow.tree.functions[node]
            frame.env[function.name] = defined(function).but(instance=frame.instance)
            for decorator in reversed(node.decorators):
                self._evaluator.decorated(decorator.decorator, function, frame)
            return
        inner = Frame(frame.function, None)
        inner.env = dict(frame.env)
        self.run(node.body.body, inner)
        cls = self._flow.tree.classes[node]
        for name, value in inner.env.items():
            if value is not frame.env.get(name) and name not in cls.methods:
                self._flow.memory.store(Instance(cls, None), name, value, anew=True)
        for decorator in reversed(node.decorators):
            self._evaluator.decorated(decorator.decorator, cls, frame)
        self._evaluator.inherited_by(cls)

    def _expression(self, node: cst.Expr, frame: Frame) -> None:
        self._evaluator.evaluate(node.value, frame)

    def _return(self, node: cst.Return, frame: Frame) -> None:
        value = NUMBER
        if node.value is not None:
            value = self._evaluator.evaluate(node.value, frame)
            if frame.apart and not is_name(node.value, "None"):
                value = of_some_cores(value)
        frame.result = value if frame.result is None else join(frame.result, value)
        frame.left = join_env(frame.left, frame.env)
        frame.dead = True

    def _assert(self, node: cst.Assert, frame: Frame) -> None:
        self._evaluator.evaluate(node.test, frame)
        said = self.narrowing.said_loader(node.test)
        if said is not None and self._evaluator.evaluate(said, frame).kind in _MAY_BE_LOADER:
            self.assign(said, Value(Kind.DEVICE_LOADER), frame)

    def _raise(self, node: cst.Raise, frame: Frame) -> None:
        self._evaluator.inside(node, frame)
        frame.dead = True

    def _leap(self, node: cst.Break | cst.Continue, frame: Frame) -> None:
        del node
        frame.leaps = join_env(frame.leaps, frame.env)
        frame.dead = True

    def _delete(self, node: cst.Del, frame: Frame) -> None:
        if isinstance(node.target, cst.Name):
            frame.env.pop(node.target.value, None)

    def _assign(self, node: cst.Assign, frame: Frame) -> None:
        value = self._evaluator.evaluate(node.value, frame)
        for target in node.targets:
            placed = self._evaluator.spread(node.value, target.target, frame)
            self.assign(target.target, value if placed is None else placed, frame, node.value)
        for one in read_of_file(self._flow.tree, node) if frame.apart else ():
            self.assign(one, NUMBER, frame)

    def _augmented(self, node: cst.AugAssign, frame: Frame) -> None:
        before = self._evaluator.evaluate(node.target, frame)
        value = self._evaluator.operators.augmented(node, before, frame)
        held = isinstance(node.target, cst.Attribute)
        if held and before.kind is value.kind is Kind.DEVICE_TENSOR:
            return  # in place: a buffer stays what it is, and moves with its module
        self.assign(node.target, value, frame)

    def _annotated(self, node: cst.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            value = self._evaluator.evaluate(node.value, frame)
            self.assign(node.target, value, frame, node.value)

    def _branch(
        self, body: Sequence[cst.CSTNode], frame: Frame, start: Env, ends: list[Env]
    ) -> None:
        frame.env, frame.dead = dict(start), False
        self.run(body, frame)
        if not frame.dead:
            ends.append(frame.env)

    def _merge(self, frame: Frame, ends: list[Env], fallback: Env) -> None:
        frame.dead = not ends
        frame.env = functools.reduce(join_env, ends) if ends else fallback

    def _if(self, node: cst.If, frame: Frame) -> None:
        apart = int(self._evaluator.evaluate(node.test, frame).local)
        frame.apart += apart
        start = frame.env
        ends: list[Env] = []
        dead = self._flow.tree.unreached
        if node.body not in dead and not self._evaluator.for_cuda(node.test, frame):
            known = self.narrowing.narrowed(node.test, start, when=True)
            known = returned_by_one_core(node.test, node.body, known)
            self._branch(node.body.body, frame, known, ends)
        other = self.narrowing.narrowed(node.test, start, when=False)
        if isinstance(node.orelse, cst.If) and node.orelse not in dead:
            self._branch([node.orelse], frame, other, ends)
        elif node.orelse is None and truth(node.test) is not True:
            ends.append(behind_return(node, of_one_core(node.test, other, ends)))
        elif isinstance(node.orelse, cst.Else) and node.orelse not in dead:
            self._branch(node.orelse.body.body, frame, other, ends)
        self._merge(frame, ends, start)
        frame.apart -= apart

    def _loop(self, node: cst.For | cst.While, frame: Frame, head: object) -> None:
        """Run a body until what holds at its beginning says nothing new: values only go up."""
        assert callable(head)
        start = dict(frame.env)
        around, frame.leaps = frame.leaps, {}
        while True:
            frame.env, frame.dead = dict(start), False
            head()
            self.run(node.body.body, frame)
            end = frame.leaps if frame.dead else join_env(frame.leaps, frame.env)
            joined = join_env(start, end)
            if joined == start:
                break
            start = joined
        frame.leaps = around
        frame.env, frame.dead = dict(start), False
        if node.orelse is not None:
            self.run(node.orelse.body.body, frame)

    def _try(self, node: cst.Try | cst.TryStar, frame: Frame) -> None:
        start = dict(frame.env)
        ends: list[Env] = []
        body = [*node.body.body, *(node.orelse.body.body if node.orelse else ())]
        self._branch(body, frame, start, ends)
        middle = join_env(start, frame.env)
        tried = ends[-1] if ends else {}
        for handler in node.handlers:
            self._branch(handler.body.body, frame, middle, ends)
            if tried and not frame.dead:
                ends[-1] = as_tried(ends[-1], tried)
        self._merge(frame, ends, middle)
        if node.finalbody is not None:
            self.run(node.finalbody.body.body, frame)

    def _match(self, node: cst.Match, frame: Frame) -> None:
        subject = self._evaluator.evaluate(node.subject, frame)
        start = frame.env
        ends = [start]
        for case in node.cases:
            frame.env = dict(start)
            self._captured(case.pattern, subject, frame)
            if case.guard is not None:
                self._evaluator.evaluate(case.guard, frame)
            self._branch(case.body.body, frame, frame.env, ends)
        self._merge(frame, ends, start)

    def _captured(self, pattern: cst.CSTNode, value: Value, frame: Frame) -> None:
        """``case (images, labels) as batch``: what a pattern binds of what is matched."""
        if isinstance(pattern, cst.MatchAs):
            if pattern.name is not None:
                self.assign(pattern.name, value, frame)
            if pattern.pattern is not None:
                self._captured(pattern.pattern, value, frame)
        elif isinstance(pattern, cst.MatchSequence):
            parts = unpack(value, len(pattern.patterns))
            for one, part in zip(pattern.patterns, parts, strict=True):
                if isinstance(one, cst.MatchSequenceElement):
                    self._captured(one.value, part, frame)
        elif isinstance(pattern, cst.MatchMapping):
            for entry in pattern.elements:
                key = string(entry.key) if isinstance(entry.key, cst.SimpleString) else None
                held = under(value, key if isinstance(key, str) else None)
                self._captured(entry.pattern, held, frame)

    def _believed(
        self, text: str, value: Value, frame: Frame, made: cst.BaseExpression | None
    ) -> Value:
        """What a name holds, by what is done with it.

        ``net = build("resnet", device=device)`` of a function that nobody has read: a model that is
        made by what is told the device is there.
        """
        held = self._flow.belief.believed(text, value, frame)
        if held.kind is not Kind.MODEL or held.on_device or value.kind is Kind.MODEL:
            return held
        told = made.args if isinstance(made, cst.Call) else ()
        kinds = {self._evaluator.evaluate(one.value, frame).kind for one in told}
        return held.but(on_device=True) if Kind.DEVICE in kinds else held

    def assign(
        self,
        target: cst.CSTNode,
        value: Value,
        frame: Frame,
        made: cst.BaseExpression | None = None,
    ) -> None:
        """Bind a target (name, attribute, subscript or tuple of them) to a value.

        Args:
            target: What is bound.
            value: What it is bound to.
            frame: The call that runs.
            made: The expression whose value it is, where it is one.
        """
        if frame.apart:
            value = of_some_cores(value)
        if isinstance(target, cst.Name):
            value = self._believed(target.value, value, frame, made)
            self._bind(target.value, value, frame)
            if frame.function and target.value in self._flow.tree.scopes[target].globals:
                self._flow.memory.share(target.value, value)
            self._flow.record(target, value)
            return
        if isinstance(target, cst.Tuple | cst.List):
            parts = unpack(value, len(target.elements))
            for element, part in zip(target.elements, parts, strict=True):
                if isinstance(element, cst.StarredElement):
                    part = container(part)
                self.assign(element.value, part, frame)
            return
        if isinstance(target, cst.Subscript):
            self._evaluator.evaluate(target, frame)
            self.put_into(target.value, value, frame, key=_key(target))
        elif isinstance(target, cst.Attribute):
            holder = self._evaluator.evaluate(target.value, frame)
            text = dotted_text(target)
            if text is not None:
                value = self._believed(text, value, frame, made)
                frame.env[text] = value
            if holder.kind is Kind.CONTAINER and holder.type_name in HOLDERS:
                held = with_attribute(holder, target.attr.value, value)
                self.assign(target.value, held, frame)
            named = self._flow.classes.named(holder)
            for instance in (holder.instance,) if holder.instance is not None else named:
                anew = value.is_device_tensor and self._moves_itself(target)
                self._flow.memory.store(instance, target.attr.value, value, anew=anew)
            self._flow.record(target, value)

    def _moves_itself(self, target: cst.Attribute) -> bool:
        """``self.batch = self.batch.to(device)``: what it held on the host is there no more."""
        parents = self._flow.tree.parents
        line = parents.get(parents.get(target, target))
        made = line.value if isinstance(line, cst.Assign) else None
        func = made.func if isinstance(made, cst.Call) else None
        return isinstance(func, cst.Attribute) and dotted_text(func.value) == dotted_text(target)

    def _bind(self, name: str, value: Value, frame: Frame) -> None:
        """What is known of the attributes of what a name held before says nothing any more."""
        env, prefix = frame.env, name + "."
        env[name] = value
        for key in [key for key in env if key.startswith(prefix)]:
            del env[key]

    def put_into(
        self,
        holder: cst.BaseExpression,
        value: Value,
        frame: Frame,
        *,
        key: str | None = None,
    ) -> None:
        """``holder[...] = value`` or ``holder.append(value)``: the container's elements change."""
        if isinstance(holder, cst.Subscript):  # ``kept["loss"].append(loss)``
            self.put_into(holder.value, container(value), frame)
            return
        if isinstance(holder, cst.Call) and isinstance(holder.func, cst.Attribute):
            if holder.func.attr.value == "setdefault":  # ``kept.setdefault(name, []).append(loss)``
                self.put_into(holder.func.value, container(value), frame)
            return
        text = dotted_text(holder)
        if text is None:
            return
        if isinstance(holder, cst.Attribute) and holder.attr.value == "__dict__":
            owner = self._evaluator.evaluate(holder.value, frame)
            for instance in self._flow.classes.objects(owner):
                self._flow.memory.store(instance, ANY, value)
            return
        before = self._evaluator.evaluate(holder, frame)
        if before.kind is Kind.CONTAINER:
            self._put_above(holder, value, frame)
            after = with_entry(before, key, value)
            self.assign(holder, after, frame)
            if isinstance(holder, cst.Name) and self._is_shared(holder, frame):
                self._flow.memory.share(holder.value, after)
        else:
            put(self._evaluator, before, value)

    def _put_above(self, holder: cst.BaseExpression, value: Value, frame: Frame) -> None:
        """``cls.kinds[name] = cls`` of a table that a base class has: all classes share it."""
        if not isinstance(holder, cst.Attribute):
            return
        name = holder.attr.value
        for one in self._flow.classes.named(self._evaluator.evaluate(holder.value, frame)):
            for base in self._flow.classes.above(one.cls):
                table = Instance(base, None)
                if self._flow.memory.stored(table, name) is not None:
                    self._flow.memory.store(table, name, container(value))

    def _is_shared(self, name: cst.Name, frame: Frame) -> bool:
        """Whether a function puts something into what its file holds: ``KNOWN[x] = y``."""
        scope = self._flow.tree.scopes[name]
        bound = scope.lookup(name.value)
        return frame.function is not None and bound is scope.top.bindings.get(name.value, ())


def _key(target: cst.Subscript) -> str | None:
    """The text in ``settings["device"]``."""
    return text_of(index_of(target))


def _element(target: cst.BaseAssignTargetExpression, iterated: Value) -> Value:
    """What each turn of a loop gets, where a device loader may count its batches.

    The loaders of ``DataParallel`` did: ``for step, (x, y) in loader``. Elsewhere ``step`` as the
    first of two says that the loader is one of the user's own, or that ``enumerate`` was forgotten.
    """
    each = element_of(iterated)
    if iterated.kind is not Kind.DEVICE_LOADER or not isinstance(target, cst.Tuple):
        return each
    if len(target.elements) != 2:
        return each
    first, second = (element.value for element in target.elements)
    counted = isinstance(first, cst.Name) and know.COUNTER_NAME.search(first.value)
    nested = isinstance(second, cst.Tuple) and iterated.type_name == know.DATA_PARALLEL
    return container(None, (NUMBER, each)) if counted or nested else each
