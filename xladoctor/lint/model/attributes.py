"""The value of attributes: by what was stored, by where a module is, or by their names."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import attribute_of, container, dictionary
from xladoctor.lint.model.dotted import dotted_text, is_name, last_name
from xladoctor.lint.model.memory import ANY
from xladoctor.lint.model.records import HOLDERS
from xladoctor.lint.model.syntax import Class, Function
from xladoctor.lint.model.trainers import MODELS
from xladoctor.lint.model.values import (
    NUMBER,
    UNKNOWN,
    Instance,
    Kind,
    Value,
    defined,
    join,
    likely,
)

if TYPE_CHECKING:
    import libcst as cst

    from xladoctor.lint.model.evaluate import Evaluator
    from xladoctor.lint.model.frames import Frame

#: What attributes hold that are believed whatever their names are.
_KEPT_BY_ANY_NAME = frozenset({Kind.OBJECT, Kind.MODEL})
#: What an optimizer asks of a parameter.
_OF_PARAMETERS = frozenset({"grad", "data"})
#: What settings name, and do not hold.
_NAMED_IN_SETTINGS = frozenset({Kind.MODEL, Kind.OPTIMIZER, Kind.LOSS})

#: What transformers' arguments say of the first process alone; ``control.should_save`` of a
#: callback is equal on all cores (transformers 4.57, training_args.py).
_MASTER_ARGUMENTS = frozenset({"should_save", "should_log"})


class Attributes:
    """Evaluates attributes.

    Args:
        evaluator: Evaluates what they are attributes of.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._flow = evaluator.flow

    def evaluate(self, node: cst.Attribute, frame: Frame) -> Value:
        """What ``holder.name`` is."""
        name = self._flow.names.resolve(node)
        if name is not None:
            # ``config.device = xm.xla_device()``, of what another module holds
            set_here = self._flow.memory.lookup(dotted_text(node) or "", frame)
            return set_here or (NUMBER if name in know.CONSTANTS else UNKNOWN)
        imported = self._flow.memory.imported(node)
        if imported is not None:
            definition = self._flow.names.definition(node)
            return imported if definition is None else defined(definition)
        static = self._static(node)
        if static is not None:
            return Value(Kind.FUNCTION, certain=True, function=static)
        holder = self._evaluator.evaluate(node.value, frame)
        held = frame.env.get(dotted_text(node) or "")
        if held is None or held.kind is Kind.UNKNOWN:
            said = self._where_it_runs(node, holder, self._said_by(node, holder, frame), frame)
            if held is None:
                return self._flow.belief.as_device(dotted_text(node) or "", said, frame)
            if said.kind is not Kind.UNKNOWN:  # as for a plain name
                return said.but(local=True) if held.local else said
        return held

    def _static(self, node: cst.Attribute) -> Function | None:
        """``Texts.collate``: a static method by its class."""
        cls = self._flow.names.definition(node.value)
        method = self._flow.classes.method(cls, node.attr.value) if isinstance(cls, Class) else None
        return method if method is not None and method.is_static else None

    def _where_it_runs(
        self, node: cst.Attribute, holder: Value, part: Value, frame: Frame
    ) -> Value:
        """``self.net`` in a step of Lightning's: the module and all in it are on the device."""
        if part.kind is not Kind.MODEL or part.on_device or holder.instance is None:
            return part
        step = frame.function
        if step is None or step.owner is None or not self._flow.belief.believes():
            return part
        hooks = self._flow.hooks
        if node.attr.value in MODELS and (
            hooks.is_trainer(step.owner) or hooks.inherits(step.owner, frameworks.TRAINER_CALLBACKS)
        ):
            return part.but(on_device=True)  # ``self.model`` of a Trainer, or of its callback
        lightning = hooks.inherits(step.owner, frameworks.LIGHTNING_MODULES)
        return part.but(on_device=True) if lightning and hooks.hook(step) else part

    def _said_by(self, node: cst.Attribute, holder: Value, frame: Frame) -> Value:
        """What an attribute is by its object, or by its name."""
        name = node.attr.value
        if name == "__dict__":
            return self.all_of(holder)
        if holder.kind is Kind.CONTAINER and holder.type_name in HOLDERS:
            return attribute_of(holder, name)
        objects = self._flow.classes.objects(holder) or self._flow.classes.named(holder)
        held = [(one, self._stored(one, node)) for one in objects]
        taken = self._flow.backends.taken(objects)
        known = [value for one, value in held if value is not None and one in taken]
        if known:
            stored = self._placed(holder, functools.reduce(join, known), frame)
            if stored.kind is not Kind.UNKNOWN:
                return stored
            if stored is not None and stored.local:  # ``meter.auc``: of one core, whatever it is
                return self._named_so(node, holder, frame).but(local=True)
        return self._named_so(node, holder, frame)

    def all_of(self, holder: Value) -> Value:
        """``self.__dict__``, ``vars(self)``: all that is kept of an object."""
        kept = [self._flow.memory.all_stored(one) for one in self._flow.classes.objects(holder)]
        return container(functools.reduce(join, kept)) if kept else UNKNOWN

    def _named_so(self, node: cst.Attribute, holder: Value, frame: Frame) -> Value:
        """What an attribute is by its name, where its object does not tell."""
        name = node.attr.value
        known = name in know.MASTER_ATTRIBUTES or know.MASTER_NAME.match(name)
        if known or (name in _MASTER_ARGUMENTS and last_name(node.value).endswith("args")):
            return Value(Kind.IS_MASTER, certain=True, origin=node, local=True)
        if name in know.CORE_NUMBER_ATTRIBUTES:
            return Value(Kind.CORE_NUMBER, certain=True, origin=node, local=True)
        if holder.kind in {Kind.DEVICE_TENSOR, Kind.CPU_TENSOR}:
            return self._tensor_attribute(holder, name)
        if name in _OF_PARAMETERS and self._is_parameter(holder, frame):
            return Value(Kind.DEVICE_TENSOR, origin=node, local=name == "grad")
        owner = holder.instance.cls if holder.instance is not None else None
        if name == "param_groups" and self._has_parameters(holder):
            one = Value(Kind.DEVICE_TENSOR, origin=node, type_name=know.PARAMETER)
            params = container(one)
            return container(container(NUMBER).but(entries=(("params", params),)))
        if name == "state" and owner is not None and self._flow.hooks.is_optimizer(owner):
            return container(dictionary([]))  # of each parameter
        if holder.kind is Kind.MODEL and name in know.OF_LAYERS and holder.instance is None:
            # ``self.head.weight``
            moved = self._is_moved(holder, frame)
            return Value(Kind.DEVICE_TENSOR, origin=node) if moved else UNKNOWN
        whose = holder.instance.cls if name == "trainer" and holder.instance is not None else None
        if whose is not None and self._flow.hooks.inherits(whose, frameworks.WITH_TRAINER):
            return Value(Kind.OBJECT, certain=True, type_name=frameworks.LIGHTNING_TRAINER)
        if name in frameworks.TRAINER_METRICS and self._flow.belief.believes():
            return container(Value(Kind.DEVICE_TENSOR, origin=node, local=True))
        other = self._other_attribute(node, holder)
        return self._flow.belief.of_attribute(node, frame) if other == UNKNOWN else other

    def _placed(self, holder: Value, stored: Value, frame: Frame) -> Value:
        """``self.scale``, a parameter or buffer: in a module's methods it is where that is."""
        if stored.kind is Kind.MODEL and holder.kind is Kind.MODEL and holder.on_device:
            return stored.but(on_device=True)  # moved with what it is a part of
        owned = stored.kind is Kind.CPU_TENSOR and stored.type_name == know.PARAMETER
        if not owned or holder.kind is not Kind.MODEL:
            return stored
        if self._is_moved(holder, frame):
            return Value(Kind.DEVICE_TENSOR, origin=stored.origin, boolean=stored.boolean)
        return UNKNOWN if self._runs_in_module(frame) else stored

    def _is_moved(self, holder: Value, frame: Frame) -> bool:
        """Whether a module is on the device: it was moved, or runs one of its methods there."""
        runs = self._runs_in_module(frame)
        if holder.on_device or self._flow.belief.believes():
            return holder.on_device or runs
        # In a file that does not name XLA: where what it is given is.
        given = frame.function.parameters if runs and frame.function is not None else ()
        return any(frame.env[name].is_device_tensor for name in given if name in frame.env)

    def _runs_in_module(self, frame: Frame) -> bool:
        """Whether the code that runs is a method of a module, which may have been moved since."""
        method = frame.function
        return (
            method is not None
            and method.owner is not None
            and method.name != "__init__"
            and self._flow.hooks.is_module(method.owner)
        )

    def _has_parameters(self, holder: Value) -> bool:
        """An optimizer, also of a class of the program: what it steps is on the device."""
        own = holder.instance is not None and self._flow.hooks.is_optimizer(holder.instance.cls)
        return (own or holder.kind is Kind.OPTIMIZER) and self._flow.belief.believes()

    def _is_parameter(self, holder: Value, frame: Frame) -> bool:
        """``p`` in the step of the program's own optimizer: what else has a gradient there?"""
        unknown = holder.kind is Kind.UNKNOWN and self._flow.belief.believes()
        return unknown and self._flow.hooks.is_of_optimizer(frame.function)

    def _other_attribute(self, node: cst.Attribute, holder: Value) -> Value:
        name = node.attr.value
        if holder.is_loader:
            return UNKNOWN
        if holder.kind is Kind.OBJECT and holder.type_name == "accelerate.Accelerator":
            return Value(Kind.DEVICE, origin=node) if name == "device" else UNKNOWN
        if holder.made_of_device and name not in know.HOST_ATTRIBUTES:
            return holder
        if name in know.SHAPES:  # numbers, whatever has them
            return NUMBER
        if holder.kind is Kind.MODEL and know.INNER_MODELS.search(name):
            return Value(Kind.MODEL, origin=holder.origin, on_device=holder.on_device)
        guessed = self._evaluator.guess(name) if dotted_text(node) is not None else UNKNOWN
        if guessed.kind in _NAMED_IN_SETTINGS and know.SETTINGS_NAME.search(last_name(node.value)):
            return UNKNOWN  # ``args.model`` says which
        meter = holder.kind in {Kind.OBJECT, Kind.UNKNOWN}
        if meter and holder.local and guessed == UNKNOWN:
            return Value(local=True)  # ``meter.avg``
        if guessed == UNKNOWN and self._may_be_buffer(node, holder):
            return Value(made_of_device=True)
        return guessed

    def _may_be_buffer(self, node: cst.Attribute, holder: Value) -> bool:
        """``self.model.scores[i].item()`` of a model that nobody has read: who reads it knows."""
        own = is_name(node.value, "self") or holder.instance is not None or bool(holder.classes)
        settings = know.SETTINGS_NAME.search(node.attr.value)
        return (
            holder.kind is Kind.MODEL and not own and not settings and self._flow.belief.believes()
        )

    def _tensor_attribute(self, holder: Value, name: str) -> Value:
        if name in know.HOST_ATTRIBUTES:
            return NUMBER
        if name == "device":
            kind = Kind.DEVICE if holder.is_device_tensor else Kind.OTHER_DEVICE
            return likely(holder).but(kind=kind, local=False)
        if name in know.TENSOR_ATTRIBUTES:
            own = holder.type_name == know.PARAMETER and name == "grad"
            return holder.but(local=True) if own else holder
        if holder.type_name == know.PARAMETER:
            return UNKNOWN  # ``p.is_bias``, which the program has set
        # A model's output may be an object: ``outputs.loss``, ``outputs.logits``.
        return likely(holder)

    def _stored(self, instance: Instance, node: cst.Attribute) -> Value | None:
        value = self._flow.memory.stored(instance, node.attr.value)
        if value is not None:
            return value
        method = self._flow.classes.method(instance.cls, node.attr.value)
        if method is None:
            return self._by_any_name(instance, node)
        if any(last_name(one) in know.PROPERTIES for one in method.decorators):
            # ``print(meter.mean)``: the call around it runs the method.
            return self._flow.enter(self._evaluator.around(node), method, instance, {}, named=True)
        return Value(Kind.FUNCTION, certain=True, function=method, instance=instance)

    def _by_any_name(self, instance: Instance, node: cst.Attribute) -> Value | None:
        """``meters.loss`` that ``setattr(self, name, Meter())`` made, or ``__getattr__`` gives.

        Believed of objects and models alone: settings are read so too, and hold anything.
        """
        value = self._flow.memory.stored(instance, ANY)
        method = self._flow.classes.method(instance.cls, "__getattr__")
        if value is None and method is not None and len(method.parameters) == 2:
            given = {method.parameters[1]: NUMBER}
            call = self._evaluator.around(node)
            value = self._flow.enter(call, method, instance, given, named=True)
        return value if value is not None and value.kind in _KEPT_BY_ANY_NAME else None
