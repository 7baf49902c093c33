"""What a file is for: XLA devices or not, which framework runs its loop, one program or many."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint import family
from xladoctor.lint.model import ignite
from xladoctor.lint.model.asked_cores import CORES, asks_for_cores, asks_for_others
from xladoctor.lint.model.dotted import string, text_of
from xladoctor.lint.model.frameworks import HELD_TRAINERS, LIGHTNING_FOR_XLA
from xladoctor.lint.model.knowledge import DEVICE_NAME
from xladoctor.lint.model.wrappers import meant
from xladoctor.lint.words import names_settings, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_FRAMEWORKS = {
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "accelerate": "accelerate",
    "transformers": "transformers",
}
#: Packages whose Trainers are that of transformers, or built on it.
TRAINER_PACKAGES = frozenset(
    {"transformers", "trl", "optimum", "adapters", "sentence_transformers", "peft", "setfit"}
)
#: Their classes that run the loop, move what they are given or step.
_RUNS = {
    "lightning": ("Trainer", "Fabric"),
    "accelerate": ("Accelerator",),
    "transformers": ("Trainer", "Seq2SeqTrainer"),
}
#: Without one of these, a program beside JAX trains models of JAX (``FlaxAutoModel``).
TRAIN_TORCH = frozenset({"torch", "torch_xla", "lightning", "pytorch_lightning", "accelerate"})
#: Packages that have TPUs without torch_xla.
ELSEWHERE = frozenset({"tensorflow", "jax", "flax", "optax", "haiku", "keras"})
#: Packages that only run on XLA devices, through torch_xla.
_PACKAGES_ON_XLA = ("optimum.tpu", "neuronx_distributed", "optimum.neuron")
#: What of them trains, by its own name: nothing else need be imported.
_TRAIN_ON_XLA = re.compile(r"optimum\.(neuron|tpu)\.(\w+\.)*\w*(Train|SFT|ORPO)\w*$")
#: What Lightning's Trainer once told of them.
_ASKED = frozenset({"use_tpu", "on_tpu"})
#: What programs take of Accelerate that train with it.
_OF_ACCELERATE = frozenset({"Accelerator", "notebook_launcher", "PartialState"})
#: Texts that a program for TPUs has. The three that speak of BF16 are read on XLA devices alone, by
#: torch_xla and by Accelerate (``accelerate/state.py``); machines with TPUs have the last two.
_SAID = frozenset(
    {"tpu", "xla", "PJRT_DEVICE", "XRT_TPU_CONFIG"}
    | {"XLA_USE_BF16", "XLA_DOWNCAST_BF16", "ACCELERATE_DOWNCAST_BF16"}
    | {"TPU_NAME", "COLAB_TPU_ADDR"}
)
#: How a docstring says that a program is started: ``python -m torch_xla... train.py``,
#: ``python xla_spawn.py --num_cores 8 train.py``, ``accelerate launch --tpu train.py``.
_TPU_LAUNCH = re.compile(
    r"python\d? +-m +torch_xla\.|\bxla_spawn\.py\b|\baccelerate +launch\b.* --tpu\b"
    r"|\bPJRT_DEVICE=(TPU|NEURON)\b"
)
#: What programs compare with what they run on.
_KINDS = frozenset({"TPU", "XLA", "NEURON"})
#: What the launchers for TPUs of transformers' examples (``xla_spawn.py``) call on each core.
STARTED = "_mp_fn"
#: What a Trainer does on TPUs alone.
_OF_TPUS = frozenset({"get_tpu_sampler", "nested_xla_mesh_reduce", "tpu_spmd_dataloader"})
#: Words of settings that choose one program over all devices.
_WAYS = frozenset({"spmd", "fsdp", "sharded", "sharding"})
_XLA = re.compile(r"""^["']xla(:\d+)?["']$""")
#: What takes a device, as text, first.
_TAKES_DEVICE = frozenset(
    {"torch.device", "torch.set_default_device", "torch.autocast", "torch.amp.autocast",
     "torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh"}
)  # fmt: skip


def found_members(
    tree: Tree, names: Names, target: str = "", *, meant_for_tpus: bool = False
) -> frozenset[str]:
    """The members of the family of XLA devices that a file is for, by imports and devices.

    Args:
        tree: The file.
        names: What its names are bound to.
        target: The member that the user says it is for: it replaces what a file that uses torch is
            found to be for.
        meant_for_tpus: Whether its name says that it is for TPUs, or the settings of its project.
    """
    imported = names.imported()
    roots = {name.partition(".")[0] for name in imported}
    if target:
        concerned = roots & {"torch", "torch_xla", *_FRAMEWORKS}
        return frozenset({target} if concerned else ())
    found = set(family.of_imports(imported))
    if family.TORCH_XLA not in found and (
        frameworks_on_xla(tree, names, roots, said=not found)
        or (meant_for_tpus and _runs_where_started(tree, names, roots))
    ):
        found.add(family.TORCH_XLA)
    if ignite.PACKAGE in roots and any(string(one) == ignite.BACKEND for one in tree.strings):
        found.add(family.TORCH_XLA)
    if family.TORCH_XLA not in found and "torch" in roots and _wraps_xla(tree, names):
        found.add(family.TORCH_XLA)
    if "torch" in roots or roots & set(_FRAMEWORKS):
        found |= _devices_named(tree, names, strict=family.TORCH_XLA in found)
    if "torch" in roots and not found:
        found.update(filter(None, (_chosen(literal, tree) for literal in tree.strings)))
    return frozenset(found)


def names_xla(literal: cst.SimpleString) -> bool:
    """Whether a text is an XLA device by its name: ``device = "xla"``."""
    return _XLA.match(literal.value) is not None


def _wraps_xla(tree: Tree, names: Names) -> bool:
    """Whether a file gets its device or ends its steps by a module of the program's own."""
    return any(meant(names.resolve(call.func)) is not None for call in tree.calls)


def _chosen(literal: cst.SimpleString, tree: Tree) -> str | None:
    """The member whose device is what ``device = "tpu" if ... else "cpu"`` may choose."""
    member = family.of_device(str(string(literal)))
    if member is None or member == family.TORCH_XLA:
        return None
    above = iter(tree.ancestors(literal))
    node = next(
        (one for one in above if not isinstance(one, cst.IfExp | cst.BooleanOperation)), None
    )
    if isinstance(node, cst.Arg):  # parser.add_argument("--device", default="tpu")
        call = next(iter(above), None)
        option = call.args[0].value if isinstance(call, cst.Call) and call.args else None
        named = isinstance(option, cst.SimpleString) and "device" in str(string(option))
        given = node.keyword is not None and node.keyword.value == "default"
        return member if given and named else None
    targets: list[cst.BaseExpression] = []
    if isinstance(node, cst.Assign):
        targets = [each.target for each in node.targets]
    elif isinstance(node, cst.AnnAssign):
        targets = [node.target]
    names = (target.value for target in targets if isinstance(target, cst.Name))
    return member if any(DEVICE_NAME.match(name.lower()) for name in names) else None


def _devices_named(tree: Tree, names: Names, *, strict: bool) -> set[str]:
    """The members whose devices, backends or own names a file that uses torch speaks of.

    Beside torch_xla (``strict``) a function of the project's own may mean torch_xla's TPU by "tpu".
    """
    found = {_named(call, names, strict=strict) for call in tree.calls if call.args}
    for node in tree.by_type.get(cst.Attribute, ()):
        assert isinstance(node, cst.Attribute)
        if isinstance(node.value, cst.Name) and node.attr.value in family.namespaces():
            dotted = names.resolve(node) or ""
            found |= {each.name for each in family.members().values() if each.speaks_of(dotted)}
    return {name for name in found if name is not None}


def _named(call: cst.Call, names: Names, *, strict: bool) -> str | None:
    """The member that a call is given as a device (``x.to("tpu")``) or as a backend."""
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    called: str | None = None
    for argument in call.args:
        value = argument.value
        if not isinstance(value, cst.SimpleString):
            continue
        text = str(string(value))
        keyword = argument.keyword.value if argument.keyword is not None else None
        called = names.resolve(call.func) or "" if called is None else called
        first = keyword is None and argument is call.args[0]
        member = None
        if (keyword == "device" and (called.startswith("torch.") or not strict)) or (
            first and (called in _TAKES_DEVICE or (method == "to" and not called))
        ):
            member = family.of_device(text)
        elif called == "torch.distributed.init_process_group" and (first or keyword == "backend"):
            member = family.of_backend(text)
        elif called == "torch.compile" and keyword == "backend":
            member = family.of_compiler(text)
        # Strings alone never make a program of torch_xla: that has to be imported.
        if member is not None and member != family.TORCH_XLA:
            return member
    return None


def _runs_where_started(tree: Tree, names: Names, roots: set[str]) -> bool:
    """Whether a framework runs a file, and the file itself asks for no other devices.

    Such a program needs no word of its own for the devices that it is started on.
    """
    if roots & ELSEWHERE or asks_for_others(tree):
        return False
    return bool(roots & TRAIN_TORCH and used_frameworks(tree, names))


def frameworks_on_xla(
    tree: Tree, names: Names, roots: set[str], *, counted: bool = True, said: bool = True
) -> bool:
    """Whether a file imports a framework and asks it for TPU cores, which means torch_xla.

    Also if it asks how many its Trainer has (``counted``), or has words for TPUs (``said``): beside
    torchax or torch_tpu these are its words.
    """
    if any(_TRAIN_ON_XLA.match(name) for name in names.imported()):
        return True
    if not roots & set(_FRAMEWORKS) or ("jax" in roots and not roots & TRAIN_TORCH):
        return False
    if any(
        f"{name}.".startswith(f"{one}.") for name in names.imported() for one in _PACKAGES_ON_XLA
    ):
        return True
    if any(
        isinstance(node, cst.FunctionDef)
        and node.name.value == STARTED
        and node.params.params
        and tree.function_of(node) is None
        for node in tree.by_type.get(cst.FunctionDef, ())
    ):
        return True
    imported = {name.rpartition(".")[2] for name in names.imported()}
    if "transformers" in roots and any(_is_of_tpus(names, call) for call in tree.calls):
        return True
    if imported & LIGHTNING_FOR_XLA or (
        "DistributedType" in imported and _asks_for_xla(tree, names)
    ):
        return True
    attributes = tree.by_type.get(cst.Attribute, ())
    if any(_is_of_lightning(one) and (counted or not counts_cores(one)) for one in attributes):
        return True
    if any(_TPU_LAUNCH.search(text) for text in _usage(tree)):
        return True
    words = (one for one in tree.strings if string(one) in _SAID or _is_compared(one, tree))
    if said and any(not _is_told_to_others(one, tree, names) for one in words):
        return True
    return asks_for_cores(tree, lightning=bool(roots & {"lightning", "pytorch_lightning"}))


def _is_told_to_others(literal: cst.SimpleString, tree: Tree, names: Names) -> bool:
    """``jax.devices("tpu")``: what a package that has TPUs without torch_xla is told."""
    above = tree.parents.get(literal)
    call = tree.parents.get(above) if isinstance(above, cst.Arg) else None
    named = names.resolve(call.func) if isinstance(call, cst.Call) else None
    return (named or "").partition(".")[0] in ELSEWHERE


def _is_compared(literal: cst.SimpleString, tree: Tree) -> bool:
    """``os.environ.get("ACCELERATE_DISTRIBUTED_TYPE") != "TPU"``: the program runs on both."""
    if string(literal) not in _KINDS:
        return False
    return isinstance(tree.parents.get(literal), cst.Comparison | cst.ComparisonTarget)


def _is_of_tpus(names: Names, call: cst.Call) -> bool:
    """``get_tpu_sampler(dataset)``: what transformers has for TPUs and for nothing else.

    Also ``transformers.trainer.xm.mark_step()``, of the module that it imports itself.
    """
    package, *rest = (names.resolve(call.func) or "").split(".")
    own = bool(rest) and (rest[-1] in _OF_TPUS or "xm" in rest[:-1])
    return own and package == "transformers"


def _is_of_lightning(node: cst.CSTNode) -> bool:
    """``strategies.XLAStrategy``, and what modules ask their Trainer: ``self.trainer.use_tpu``."""
    if not isinstance(node, cst.Attribute):
        return False
    held = node.value.attr if isinstance(node.value, cst.Attribute) else node.value
    return node.attr.value in LIGHTNING_FOR_XLA or (
        node.attr.value in {*CORES, *_ASKED}
        and isinstance(held, cst.Name)
        and (held.value in HELD_TRAINERS or names_settings(held.value))
    )


def counts_cores(node: cst.CSTNode) -> bool:
    """``self.trainer.tpu_cores``, beside ``num_gpus`` and ``num_processes``."""
    if not isinstance(node, cst.Attribute) or node.attr.value != "tpu_cores":
        return False
    held = node.value.attr if isinstance(node.value, cst.Attribute) else node.value
    return isinstance(held, cst.Name) and held.value in HELD_TRAINERS


def _usage(tree: Tree) -> Iterator[str]:
    """What a file says of itself, if it does: how it is started."""
    for module in tree.modules:
        first = module.body[0] if module.body else None
        line = first.body[0] if isinstance(first, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Expr) and isinstance(line.value, cst.SimpleString):
            yield str(string(line.value))


def _asks_for_xla(tree: Tree, names: Names) -> bool:
    """Whether Accelerate's ``DistributedType.XLA`` (once ``TPU``) is compared with anything."""
    found = (
        node for node in tree.by_type.get(cst.Attribute, ()) if isinstance(node, cst.Attribute)
    )
    return any(
        node.attr.value in {"XLA", "TPU"}
        and (names.resolve(node.value) or "").endswith(".DistributedType")
        for node in found
    )


def used_frameworks(tree: Tree, names: Names) -> frozenset[str]:
    """Which of "lightning", "accelerate" and "transformers" a file trains with.

    Models, tokenizers and schedulers of transformers do not make its Trainer run the loop.
    """
    imported = names.imported()
    roots = {name.partition(".")[0] for name in imported}
    found = {_FRAMEWORKS[root] for root in roots if root in _FRAMEWORKS}
    called = {name.rpartition(".")[2] for name in imported}
    called |= {call.func.attr.value for call in tree.calls if isinstance(call.func, cst.Attribute)}
    if not any(_is_of_trainer(word) for word in called):
        found.discard("transformers")
    if not called & _OF_ACCELERATE and not _names_accelerator(tree):
        found.discard("accelerate")
    return frozenset(found)


def _names_accelerator(tree: Tree) -> bool:
    """``accelerator: accelerate.Accelerator = build(config)``, which nobody calls here."""
    return any(
        isinstance(node, cst.Attribute) and node.attr.value == "Accelerator"
        for node in tree.by_type.get(cst.Attribute, ())
    )


def own_trainers(tree: Tree, names: Names) -> frozenset[str]:
    """The Trainers that a file imports of other files: classes that may be of any framework.

    None if it names one that is the Trainer of transformers, or is built on that, for sure.
    """
    named = {name for name in names.imported() if _is_of_trainer(name.rpartition(".")[2])}
    called = (call.func for call in tree.calls if isinstance(call.func, cst.Attribute))
    named |= {names.resolve(func) or "" for func in called if _is_of_trainer(func.attr.value)}
    if any(name.partition(".")[0] in {"", *TRAINER_PACKAGES} for name in named):
        return frozenset()
    return frozenset(name.rpartition(".")[2] for name in named)


def _is_of_trainer(word: str) -> bool:
    return "Trainer" in word or word.endswith("TrainingArguments")


def derived_frameworks(tree: Tree, names: Names) -> dict[str, str]:
    """The classes of a file that are built on a framework's own: the name to the framework.

    ``class Engine(Accelerator)`` prepares as Accelerate does, wherever it is used.
    """
    found: dict[str, str] = {}
    for node in tree.by_type.get(cst.ClassDef, ()):  # a class stands behind those it is built on
        assert isinstance(node, cst.ClassDef)
        for base in node.bases:
            dotted = names.resolve(base.value) or ""
            named = base.value.value if isinstance(base.value, cst.Name) else ""
            framework = found.get(named) or _of_framework(dotted)
            if framework is not None:
                found[node.name.value] = framework
    return found


def _of_framework(dotted: str) -> str | None:
    """The framework whose loop a class of this name runs."""
    root, _, rest = dotted.partition(".")
    framework = _FRAMEWORKS.get(root)
    return framework if rest.rpartition(".")[2] in _RUNS.get(framework or "", ()) else None


def spmd_is_on(tree: Tree, names: Names) -> bool:
    """Whether a file makes its program one over all devices, not as one of several ways."""
    return any(
        name.endswith((".use_spmd", ".mark_sharding", ".xla_sharding.Mesh", ".spmd.Mesh"))
        and name.startswith("torch_xla")
        and not _is_one_way(tree, call)
        for call in tree.calls
        for name in (names.resolve(call.func) or "",)
    ) or any(string(literal) == "XLA_USE_SPMD" for literal in tree.strings)


def _is_one_way(tree: Tree, call: cst.Call) -> bool:
    """``if settings.distribution == "spmd":``: the program has others beside it."""
    tests = (one.test for one in tree.ancestors(call) if isinstance(one, cst.If))
    return any(
        isinstance(test, cst.Comparison)
        and isinstance(test.comparisons[0].operator, cst.Equal)
        and bool(words(text_of(test.comparisons[0].comparator) or "") & _WAYS)
        for test in tests
    )
