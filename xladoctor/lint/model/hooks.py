"""What libraries call in a program, and with what: methods of models, hooks of Lightning, Trainers.

A class is a model by what it inherits from, also where the base is a library's own model
(transformers, timm, diffusers, torchvision). Of such a class the library calls more than
``forward``: any method that works on tensors may be a part of the step.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.contained import container, dictionary
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.loops import LoopKind
from xladoctor.lint.model.syntax import Class, walk
from xladoctor.lint.model.values import NUMBER, UNKNOWN, Kind, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.classes import Classes
    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Function, Tree

_DEEPEST = 5
#: Of so many classes a callback's module may be one.
_SEVERAL = 12
#: Packages of models, and how their model classes are called.
_MODEL_PACKAGES = {
    "torch": patterns.lazy(
        r"^torch\.(nn|ao\.nn|hub)\.(?!utils\.|functional\.|init\.|Parameter|Buffer)"
    ),
    "transformers": patterns.lazy(
        r"\.\w*(Model|For[A-Z]\w+|LMHead\w*|Attention|MLP|Layer|Block|Encoder|Decoder|Embeddings"
        r"|Backbone)$"
    ),
    "diffusers": patterns.lazy(
        r"\.(ModelMixin|UNet\w*|Autoencoder\w*|\w*Transformer\w*|\w*Attention|\w*Block|ControlNet\w*)$"
    ),
    "timm": patterns.lazy(r"^timm\.(models|layers)\."),
    "torchvision": patterns.lazy(r"^torchvision\.(models|ops)\."),
    "peft": patterns.lazy(r"\.Peft\w*$"),
    "torch_geometric": patterns.lazy(r"^torch_geometric\.nn\."),
    "segmentation_models_pytorch": patterns.lazy(r""),
    "efficientnet_pytorch": patterns.lazy(r""),
    "monai": patterns.lazy(r"^monai\.(networks|losses)\."),
    "fairseq": patterns.lazy(r"^fairseq\.(models|modules|criterions)\."),
}
#: Hooks that Lightning had before 2.0, and gave what the steps of the epoch gave back.
_EPOCH_ENDS = frozenset({"training_epoch_end", "validation_epoch_end", "test_epoch_end"})
#: Hooks of modules that are given a batch first, which is on the device.
_GIVEN_BATCHES = frozenset(
    {
        "on_train_batch_start", "on_validation_batch_start", "on_test_batch_start",
        "on_after_batch_transfer",
    }
)  # fmt: skip
#: What Lightning calls of callbacks while it trains or evaluates, also what it once called.
_HEARD = patterns.lazy(
    r"^on_(train|validation|test|predict|sanity_check|batch|epoch|before|after|exception)"
)
_NOT_OPTIMIZERS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")
_OPTIMIZER_STEPS = frozenset({"step", "first_step", "second_step"})
_NOT_MODULES = frozenset({"torch.autograd.Function", "builtins.object"})
#: Methods of models that are no part of a step.
_ASIDE = patterns.lazy(
    r"^__|init|load|save|config|pretrained|weights|reset|resize|register|freeze|checkpoint|tie_"
    r"|get_(in|out)put_embeddings|^set_|^add_|^print|parameters|optimizers|state_dict|flops|^from_"
    r"|callback|dataloader|^setup|^prepare_data|epoch|^generate$|^beam|prepare_inputs_for_generation"
)
_OF_TENSORS = frozenset(
    {"shape", "device", "dtype", "ndim", "size", "dim", "to", "view", "reshape", "unsqueeze",
     "squeeze", "transpose", "permute", "contiguous", "float", "masked_fill", "new_zeros",
     "new_ones", "repeat", "expand", "detach", "sum", "mean", "cumsum", "argmax", "nonzero"}
)  # fmt: skip
#: Optional arguments that are tensors by their names.
_TENSOR_NAME = patterns.lazy(
    r"^(x|y|z|h)$|(^|_)(ids|masks?|labels?|targets?|embeds?|embeddings?|features?|states?|hidden"
    r"|logits|pixel_values|images?|queries|keys)$"
)
#: Annotations of what is no tensor.
_HOST = patterns.lazy(
    r"\b(int|bool|str|float|[dD]ict|[cC]allable|\w*Config|dtype|\w*[Cc]ache\w*)\b"
)


class Hooks:
    """Answers for classes, functions and their parameters.

    Args:
        tree: The syntax of the file or files.
        names: What their names are bound to.
        classes: What is known of their classes.
    """

    def __init__(self, tree: Tree, names: Names | LinkedNames, classes: Classes) -> None:
        self._tree = tree
        self._names = names
        self._classes = classes
        self._bases: dict[Class, tuple[str, ...]] = {}
        self._used: dict[Function, frozenset[str]] = {}
        self._trainers: dict[Class, bool] = {}

    def bases(self, cls: Class) -> tuple[str, ...]:
        """The dotted names of all bases of a class, through classes of the program too.

        A base that nobody knows is "".
        """
        if cls not in self._bases:
            self._bases[cls] = ()  # a class that inherits from itself
            self._bases[cls] = tuple(self._find_bases(cls, _DEEPEST))
        return self._bases[cls]

    def _find_bases(self, cls: Class, depth: int) -> Iterator[str]:
        for base in cls.bases:
            outer = self._names.definition(base)
            if isinstance(outer, Class):
                if depth and outer is not cls:
                    yield from self._find_bases(outer, depth - 1)
            else:
                yield self._names.resolve(base) or ""

    def inherits(self, cls: Class, names: frozenset[str]) -> bool:
        """Whether a class has one of these bases."""
        return not names.isdisjoint(self.bases(cls))

    def is_trainer(self, cls: Class) -> bool:
        """Whether it is built on the Trainer of transformers, or is a copy of it."""
        if cls not in self._trainers:  # asked of every call of a method
            own = (one.methods for one in (cls, *self._classes.above(cls)))
            copy = frameworks.OF_TRAINERS.issubset(itertools.chain.from_iterable(own))
            known = copy or self.inherits(cls, frameworks.TRAINERS)
            self._trainers[cls] = known or self._extends_unread_trainer(cls)
        return self._trainers[cls]

    def _extends_unread_trainer(self, cls: Class) -> bool:
        """``class ShortTrainer(BaseTrainer)`` of a file nobody has read, by its ``compute_loss``.

        That takes what the Trainer of transformers gives it: the model, and then the batch.
        """
        method = cls.methods.get("compute_loss")
        return (
            method is not None
            and tuple(method.parameters[1:3]) == frameworks.GIVEN_TO_LOSS
            and any(base.endswith("Trainer") for base in self.bases(cls))
        )

    def is_module(self, cls: Class) -> bool:
        """Whether its objects are models."""
        return any(
            base in know.MODULES or base in frameworks.LIGHTNING_MODULES or is_library_model(base)
            for base in self.bases(cls)
        )

    def is_of_library(self, cls: Class) -> bool:
        """Whether it is a library's own model with some methods replaced."""
        return any(
            is_library_model(base) and not base.startswith("torch.") for base in self.bases(cls)
        )

    # What is called for every batch

    def hook(self, function: Function) -> LoopKind | None:
        """What a method is for that Lightning or a Trainer calls for every batch."""
        owner = function.owner
        if owner is None:
            return None
        for bases, steps, evals in frameworks.HOOKS:
            of_trainer = bases is frameworks.TRAINERS
            if function.name in steps | evals and (
                self.is_trainer(owner) if of_trainer else self.inherits(owner, bases)
            ):
                return LoopKind.STEP if function.name in steps else LoopKind.EVAL
        return LoopKind.EVAL if self._counts_batches(function, owner) else None

    def _counts_batches(self, function: Function, owner: Class) -> bool:
        """``update`` of a metric that a table or Hydra makes: nothing in sight calls it."""
        return (
            function.name == frameworks.METRIC_UPDATE
            and self.inherits(owner, frameworks.METRICS)
            and bool(self._lightning)
            and owner not in self._made_by_name
        )

    @functools.cached_property
    def _made_by_name(self) -> frozenset[Class]:
        """The classes of the program that it makes objects of by their names."""
        made = (self._names.definition(call.func) for call in self._tree.calls)
        return frozenset(cls for cls in made if isinstance(cls, Class))

    def is_of_optimizer(self, function: Function | None) -> bool:
        """Whether a method is of an optimizer of the program: it works on gradients."""
        owner = function.owner if function is not None else None
        return owner is not None and self.is_optimizer(owner)

    def is_optimizer(self, cls: Class) -> bool:
        """Whether its objects are optimizers: ``class SharedAdam(optim.Adam)``."""
        return any(
            base.startswith("torch.optim.") and not base.startswith(_NOT_OPTIMIZERS)
            for base in self.bases(cls)
        )

    def is_step(self, function: Function) -> bool:
        """Whether a method is the step of an optimizer, also one that takes two (SAM)."""
        return function.name in _OPTIMIZER_STEPS and self.is_of_optimizer(function)

    def is_of_model(self, function: Function) -> bool:
        """Whether a method is a part of a model's forward pass, called by a library."""
        owner = function.owner
        if owner is None or function.is_static:
            return False
        if function.name == "forward":
            return self.is_module(owner)
        if not self.is_of_library(owner) or _ASIDE.search(function.name):
            return False
        forward = function.name.lstrip("_").startswith("forward")
        return forward or bool(self._as_tensors(function))

    # What it is called with

    def given(self, function: Function, index: int, param: cst.Param) -> Value | None:
        """What a library passes to a parameter of a method; None if it may be anything."""
        owner = function.owner
        if owner is None or index == 0:
            return None
        if function.name in _EPOCH_ENDS and self.inherits(owner, frameworks.LIGHTNING_MODULES):
            # What the steps have given back, of this core's batches: tensors, numbers, arrays.
            return container(container(Value(local=True))) if index == 1 else None
        if index == 2 and self._hears_of_training(function, owner):
            return _one_of(self._lightning)
        name = param.name.value
        if self.hook(function) is None and not self.is_of_model(function):
            hears = function.name.startswith("on_") and self.inherits(
                owner, frameworks.TRAINER_CALLBACKS
            )
            return self._trained_model() if hears and name == "model" else None
        if self.is_trainer(owner):
            return _of_trainer(name)
        if self.inherits(owner, frameworks.CALLBACKS):
            return self._of_callback(name, function)
        steps = frameworks.LIGHTNING_STEPS | frameworks.LIGHTNING_EVALS
        if function.name in steps and self.inherits(owner, frameworks.LIGHTNING_MODULES):
            passed = self._of_lightning(function, index)
            # ``batch: dict[str, Any]``: the framework has moved what stands in it.
            dictionary = passed is not None and index == 1 and self._is_host(param)
            return container(passed) if dictionary else passed
        return _on_device(function) if self.takes_tensor(function, param) else None

    def passed_beside(self, function: Function) -> Value | None:
        """What ``**kwargs`` of a callback of a Trainer holds: the model, among others."""
        owner = function.owner
        if owner is None or not self.inherits(owner, frameworks.TRAINER_CALLBACKS):
            return None
        return dictionary([("model", self._trained_model()), (None, UNKNOWN)])

    def takes_tensor(self, function: Function, param: cst.Param) -> bool:
        """Whether a parameter of a function of a model is a tensor, or None where none is given."""
        name = param.name.value
        if self._is_host(param) or know.NUMBER_NAME.search(name) or not _is_none(param.default):
            return False
        always = function.name.lstrip("_").startswith("forward") and param.default is None
        if function.name == frameworks.METRIC_UPDATE:
            said = function.annotation(name)
            always = said is not None and "Tensor" in self._tree.text(said)
        # ``labels=None``: a tensor where it is given.
        return always or bool(_TENSOR_NAME.search(name)) or name in self._as_tensors(function)

    def _is_host(self, param: cst.Param) -> bool:
        """Whether an annotation says that a parameter is no tensor."""
        annotation = param.annotation.annotation if param.annotation else None
        if annotation is None:
            return False
        text = self._tree.text(annotation)
        return "Tensor" not in text and bool(_HOST.search(text))

    def _of_lightning(self, function: Function, index: int) -> Value | None:
        if function.name in _GIVEN_BATCHES:
            return NUMBER if index > 1 else _on_device(function)
        if function.name.endswith("_step") and function.name != "optimizer_step":
            if index > 1:
                return NUMBER
        elif not function.name.endswith(("_end", "_backward")) or index > 2:
            return None
        return _on_device(function)

    def _of_callback(self, name: str, function: Function) -> Value | None:
        """What a callback is passed: the model, the batch, and what the step has given back."""
        if name == "model":
            return self._trained_model()
        return _on_device(function) if name in {"outputs", "batch"} else None

    def _hears_of_training(self, function: Function, owner: Class) -> bool:
        """``on_train_epoch_end(self, trainer, net)`` of a callback: its module is on the device."""
        heard = _HEARD.match(function.name) is not None
        return heard and self.inherits(owner, frameworks.LIGHTNING_CALLBACKS)

    @functools.cached_property
    def _lightning(self) -> frozenset[Class]:
        """The modules of Lightning that the program has."""
        every = self._tree.classes.values()
        return frozenset(cls for cls in every if self.inherits(cls, frameworks.LIGHTNING_MODULES))

    def _trained_model(self) -> Value:
        """What a Trainer gives its callbacks: one of the models that the program makes."""
        return _one_of(self._made_models)

    @functools.cached_property
    def _made_models(self) -> frozenset[Class]:
        """The models that are made or loaded outside of other models."""
        found = set()
        for call in self._tree.calls:
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value in know.LOADS_MODEL:
                func = func.value
            cls = self._names.definition(func)
            inside = self._tree.function_of(call) if isinstance(cls, Class) else None
            of_model = inside and inside.owner and self.is_module(inside.owner)
            if isinstance(cls, Class) and self.is_module(cls) and not of_model:
                found.add(cls)
        return frozenset(found)

    def _as_tensors(self, function: Function) -> frozenset[str]:
        """The parameters that a function works on as on tensors."""
        if function not in self._used:
            self._used[function] = frozenset()  # a method that calls itself
            self._used[function] = frozenset(self._find_used(function))
        return self._used[function]

    def _given_to_method(self, call: cst.Call, function: Function) -> Iterator[str]:
        """``starts`` of ``self.pool(hidden, starts)``, whose method works on it as on a tensor."""
        func, owner = call.func, function.owner
        if not isinstance(func, cst.Attribute) or owner is None or not function.parameters:
            return
        inner = owner.methods.get(func.attr.value)
        if inner is None or inner.is_static or not is_name(func.value, function.parameters[0]):
            return
        used = self._as_tensors(inner)
        for place, given in enumerate(call.args, 1):
            taken = given.keyword.value if given.keyword is not None else None
            if given.star:
                return
            if taken is None and place < len(inner.parameters):
                taken = inner.parameters[place]
            if taken in used and isinstance(given.value, cst.Name):
                yield given.value.value

    def _find_used(self, function: Function) -> Iterator[str]:
        wanted = set(function.parameters[1:])
        for node in walk(function.node.body):
            if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
                if node.attr.value in _OF_TENSORS and node.value.value in wanted:
                    yield node.value.value
            elif isinstance(node, cst.Call) and (self._names.resolve(node.func) or "").startswith(
                ("torch.", "einops.")
            ):
                given = (argument.value for argument in node.args)
                yield from (x.value for x in given if isinstance(x, cst.Name) and x.value in wanted)
            elif isinstance(node, cst.Call):
                yield from {_given_to_layer(node, function)} & wanted
                yield from wanted.intersection(self._given_to_method(node, function))
            elif (
                isinstance(node, cst.Subscript)
                and isinstance(node.value, cst.Name)
                and node.value.value in wanted
                and _slices(node)
            ):
                yield node.value.value


def _given_to_layer(call: cst.Call, method: Function) -> str:
    """``x`` of ``self.head(x)``, of what is no method of the class: a module that it holds."""
    func, owner = call.func, method.owner
    first = call.args[0] if call.args else None
    inner = (
        isinstance(func, cst.Attribute)
        and owner is not None
        and is_name(func.value, method.parameters[0])
        and func.attr.value not in owner.methods
    )
    if not inner or first is None or first.keyword is not None:
        return ""
    return first.value.value if isinstance(first.value, cst.Name) else ""


def _one_of(classes: frozenset[Class]) -> Value:
    """A model on the device, of one of these classes; of any if they are very many."""
    known = classes if len(classes) <= _SEVERAL else frozenset[Class]()
    return Value(Kind.MODEL, on_device=True, classes=known)


def _on_device(function: Function) -> Value:
    """A batch, or what a step made of one: each core has its own."""
    return Value(Kind.DEVICE_TENSOR, origin=function.node, local=True)


def is_library_model(dotted: str) -> bool:
    """Whether a dotted name is a model class of a library."""
    pattern = _MODEL_PACKAGES.get(dotted.partition(".")[0])
    if pattern is None or dotted in _NOT_MODULES or know.NOT_MODELS.search(dotted):
        return False
    return dotted.rpartition(".")[2][:1].isupper() and bool(pattern.search(dotted))


def _of_trainer(name: str) -> Value | None:
    """What a Trainer passes: its model, and the batch as a dictionary."""
    if name == "model":
        return Value(Kind.MODEL, on_device=True)
    if name in {"inputs", "batch"}:
        return container(Value(Kind.DEVICE_TENSOR, local=True))
    if name in {"tr_loss", "grad_norm"}:  # of ``_maybe_log_save_evaluate``, behind each step
        return Value(Kind.DEVICE_TENSOR, local=True)
    return None


def _slices(node: cst.Subscript) -> bool:
    """``x[:, -1]`` and ``x[..., None]``, which lists do not have."""
    return len(node.slice) > 1 or any(
        isinstance(element.slice, cst.Index) and isinstance(element.slice.value, cst.Ellipsis)
        for element in node.slice
    )


def _is_none(default: cst.BaseExpression | None) -> bool:
    return default is None or is_name(default, "None")
