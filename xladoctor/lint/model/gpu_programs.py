"""Which files are programs for GPUs: scripts beside those for XLA devices, and their own helpers.

Both import the same helpers, so they are linted together. What a script for GPUs runs never meets
an XLA device, nor does what only such scripts import.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.calls import given
from xladoctor.lint.model.dotted import dotted_text, imported, last_name, text_of
from xladoctor.lint.model.needed import is_top
from xladoctor.lint.model.patched import patched
from xladoctor.lint.model.syntax import Function, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

#: What raises on a machine without a GPU.
_NEEDS_GPU = frozenset(
    f"torch.cuda.{name}" for name in ("set_device", "synchronize", "current_device", "ipc_collect")
)
_ASKED = frozenset(name.rpartition(".")[2] for name in _NEEDS_GPU)
#: What trains where its ``accelerator=`` says, and what it calls GPUs of NVIDIA.
_FRAMEWORKS = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_RUNNERS = frozenset({"Fabric", "Trainer"})
_GPUS = frozenset({"gpu", "cuda"})
#: Methods that train what they are called on, by the programs' own names.
_TRAIN = frozenset({"fit", "train_model", "run_training"})
#: Their strategies that divide a model among GPUs, by class and by name.
_OVER_GPUS = frozenset(
    {"FSDPStrategy", "ModelParallelStrategy", "DeepSpeedStrategy", "DDPShardedStrategy",
     "DDPFullyShardedStrategy", "DDPFullyShardedNativeStrategy"}
)  # fmt: skip
_NAMED_OVER_GPUS = ("fsdp", "deepspeed", "ddp_sharded", "ddp_fully_sharded", "fsdp_native")
#: Packages that are built on CUDA's libraries: without these the import itself fails.
_BUILT_ON_CUDA = frozenset(
    {"causal_conv1d", "dropout_layer_norm", "flash_attn", "flash_attn_2_cuda", "fused_dense_lib",
     "mamba_ssm", "rotary_emb", "selective_scan_cuda", "transformer_engine", "xentropy_cuda_lib"}
)  # fmt: skip
#: Packages that are no use without GPUs of NVIDIA.
_PACKAGES = frozenset(
    {
        *("apex", "bitsandbytes", "cupy", "deepspeed", "megatron", "pynvml", "smdistributed"),
        *_BUILT_ON_CUDA,
    }
)
#: What Accelerate has for DeepSpeed and Megatron alone.
_OF_ACCELERATE = frozenset(
    f"accelerate.{module}{name}"
    for module in ("", "utils.")
    for name in ("DummyOptim", "DummyScheduler", "MegatronLMDummyScheduler", "MegatronLMPlugin")
)

_ACCELERATORS = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
_PLUGINS = ("deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")


def moves_to_gpu(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Call]:
    """The calls of the method ``cuda()`` of tensors and modules."""
    for call in tree.calls:
        if (
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value == "cuda"
            and not isinstance(names.definition(call.func), Function)
            and not any(argument.star for argument in call.args)
        ):
            yield call


def needs_gpu(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Call]:
    """The other calls that name a GPU as the device: ``x.to("cuda")``, ``set_device(rank)``.

    Also ``from_pretrained(name, device_map="cuda")``.
    """
    # Found once some line calls one of these: few programs do.
    raising = functools.cache(lambda: _NEEDS_GPU - patched(tree, names))
    for call in tree.calls:
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        named = any(
            _is_gpu(argument.value) or _is_bound_to_gpu(tree, argument.value)
            for number, argument in enumerate(call.args)
            if (number == 0 and argument.keyword is None)
            or (argument.keyword is not None and argument.keyword.value == "device")
        )
        asked = method == "to" or method in _ASKED or named
        name = names.resolve(call.func) or "" if asked else ""
        takes = (method == "to" and not name) or name.startswith("torch.")
        needed = (
            (name in _NEEDS_GPU and name in raising())
            or (named and takes)
            or _trains_on_gpus(call, names)
        )
        needed = needed or (text_of(given(call, None, "device_map")) or "").startswith("cuda")
        if needed and not _is_default(tree, call):
            yield call


def uses_gpu(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Call]:
    """All of these: what moves something to a GPU, and what names one as the device."""
    yield from moves_to_gpu(tree, names)
    yield from needs_gpu(tree, names)


def _trains_on_gpus(call: cst.Call, names: Names | LinkedNames) -> bool:
    """``Fabric(accelerator="cuda")`` and ``Trainer(accelerator="gpu")`` of Lightning."""
    asked = text_of(given(call, None, "accelerator"))
    return asked in _GPUS and _is_runner(call, names)


def _is_runner(call: cst.Call, names: Names | LinkedNames) -> bool:
    """``Fabric(...)`` and ``Trainer(...)`` of Lightning."""
    package, _, rest = (names.resolve(call.func) or "").partition(".")
    return package in _FRAMEWORKS and rest.rpartition(".")[2] in _RUNNERS


def divides_over_gpus(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Module]:
    """The files that train by strategies and plugins for GPUs alone, however often they ask.

    ``Fabric(strategy=FSDPStrategy(...))`` of Lightning and Accelerate's
    ``Accelerator(deepspeed_plugin=...)`` raise without GPUs: a question for XLA below is left over
    from the program that was copied.
    """
    found: dict[cst.Module, bool] = {}
    for call in tree.calls:
        if _has_plugin(tree, call, names):
            yield tree.module_of(call)
        if not _is_runner(call, names):
            continue
        strategy = given(call, None, "strategy")
        said = {text_of(x) for x in _sides(given(call, None, "accelerator"))}
        known = said <= {None, *_GPUS, "auto"}
        over = known and all(_is_over_gpus(x, names) for x in _written(tree, strategy))
        module = tree.module_of(call)
        found[module] = found.get(module, True) and over
    yield from (module for module, over in found.items() if over)


def _sides(node: cst.BaseExpression | None) -> list[cst.BaseExpression | None]:
    """An expression, or both sides of ``"tpu" if args.tpu else "auto"``."""
    return [node.body, node.orelse] if isinstance(node, cst.IfExp) else [node]


def _has_plugin(tree: Tree, call: cst.Call, names: Names | LinkedNames) -> bool:
    """``Accelerator(deepspeed_plugin=plugin)``, where a plugin is always made."""
    plugins = [given(call, None, name) for name in _PLUGINS]
    if not any(plugins) or names.resolve(call.func) not in _ACCELERATORS:
        return False
    written = (node for one in plugins if one is not None for node in _written(tree, one))
    return all(isinstance(node, cst.Call | cst.Dict | cst.List) for node in written)


def _written(tree: Tree, node: cst.BaseExpression | None) -> list[cst.CSTNode | None]:
    """An expression, or all that its name may be; None for what is not written."""
    bindings = tree.bindings(node) if isinstance(node, cst.Name) else ()
    return [item.node if item.kind == "assign" else None for item in bindings] or [node]


def _is_over_gpus(node: cst.CSTNode | None, names: Names | LinkedNames) -> bool:
    if (text := text_of(node)) is not None:
        return text.startswith(_NAMED_OVER_GPUS)
    made = names.resolve(node.func) if isinstance(node, cst.Call) else None
    return (made or "").rpartition(".")[2] in _OVER_GPUS


def trains_elsewhere(tree: Tree) -> Iterator[cst.Module]:
    """The files that name another device wherever they train: ``model.fit(x, device="cpu")``."""
    found: dict[cst.Module, bool] = {}
    for call in tree.calls:
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _TRAIN:
            device = given(call, None, "device")
            kind = (text_of(device) or "").partition(":")[0]
            module = tree.module_of(call)
            found[module] = found.get(module, True) and kind in {"cpu", *_GPUS}
    yield from (module for module, other in found.items() if other)


def needs_package(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.Module]:
    """The files that import a package for GPUs of NVIDIA as they are read, whatever happens."""
    for node in tree.imports:
        packages = _packages(node, names)
        needed = packages & _PACKAGES or _OF_ACCELERATE.intersection(imported(node))
        if packages and needed and is_top(tree, node):
            yield tree.module_of(node)


def _packages(node: cst.Import | cst.ImportFrom, names: Names | LinkedNames) -> frozenset[str]:
    """The packages that an import takes; none of ``from .deepspeed import is_enabled``.

    Nor one of which the project has files of its own, where it takes these.
    """
    if isinstance(node, cst.ImportFrom) and node.relative:
        return frozenset()
    return frozenset(name.partition(".")[0] for name in names.foreign(node))


def _needs_cuda(node: cst.Import | cst.ImportFrom, names: Names | LinkedNames) -> bool:
    """Whether an import takes what is built on CUDA: it is known to be, or says so.

    ``from project.ops.fused_mlp_cuda import forward``, of which the project holds no Python.
    """
    modules = names.foreign(node)
    if modules and isinstance(node, cst.ImportFrom):
        modules = frozenset([dotted_text(node.module) or ""]) if node.module else frozenset()
    if any(part.endswith("_cuda") for module in modules for part in module.split(".")):
        return True
    return not _BUILT_ON_CUDA.isdisjoint(_packages(node, names))


def fails_without_cuda(
    tree: Tree, names: Names | LinkedNames, is_for_xla: Callable[[cst.Module], bool]
) -> frozenset[cst.Module]:
    """The files whose import fails without CUDA, with those that import them, also in turn.

    ``train.py`` takes its model from ``model.py``, whose first lines take ``flash_attn``. And what
    such files alone import.

    Args:
        tree: The files.
        names: What their names are bound to.
        is_for_xla: Whether a file is meant for XLA devices by its own words.
    """
    waiting = [
        tree.module_of(node)
        for node in tree.imports
        if _needs_cuda(node, names) and is_top(tree, node)
    ]
    if not waiting:
        return frozenset()
    needing = names.needed()
    found: set[cst.Module] = set()
    while waiting:
        module = waiting.pop()
        if module not in found and not is_for_xla(module):
            found.add(module)
            waiting.extend(needing.get(module, ()))
    return _with_imported(found, names.importers(), is_for_xla)


def _with_imported(
    known: AbstractSet[cst.Module],
    importers: Mapping[cst.Module, AbstractSet[cst.Module]],
    is_for_xla: Callable[[cst.Module], bool],
) -> frozenset[cst.Module]:
    """Some files, with all that they alone import, but for what is for XLA devices."""
    found = set(known)
    grew = True
    while grew:
        more = {
            module
            for module, by in importers.items()
            if module not in found and by and by <= found and not is_for_xla(module)
        }
        found |= more
        grew = bool(more)
    return frozenset(found)


def takes_package(tree: Tree, names: Names | LinkedNames) -> frozenset[cst.Module]:
    """The files that import a package for GPUs of NVIDIA wherever it is there."""
    return frozenset(
        tree.module_of(node) for node in tree.imports if _packages(node, names) & _PACKAGES
    )


def is_always(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether no condition stands around a node in its function, and nothing that fails softly."""
    for around in tree.ancestors(node):
        if isinstance(around, cst.FunctionDef):
            return True
        if isinstance(around, cst.If | cst.IfExp | cst.Try | cst.BooleanOperation):
            return False
    return True


def chooses_gpu(tree: Tree, names: Names | LinkedNames) -> Iterator[cst.CSTNode]:
    """``"cuda" if torch.cuda.is_available() else "cpu"``: the devices that a program runs on.

    Also written as ``if torch.cuda.is_available(): device = "cuda"``.
    """
    asked = {x for x in tree.nodes(cst.Call) if names.resolve(x.func) == "torch.cuda.is_available"}
    for node in (*tree.by_type.get(cst.IfExp, ()), *tree.by_type.get(cst.If, ())) if asked else ():
        assert isinstance(node, cst.IfExp | cst.If)
        asks = not asked.isdisjoint(tree.within(node.test, cst.Call))
        if asks and any(_is_gpu(part) for part in _chosen(node)):
            yield node


def _chosen(node: cst.IfExp | cst.If) -> Iterator[cst.CSTNode]:
    """What is chosen where a condition holds: the expression, or what is assigned to a name."""
    if isinstance(node, cst.IfExp):
        yield from walk(node.body)
        return
    for part in walk(node.body, into_functions=False):
        if isinstance(part, cst.Assign):
            given = part.value
            made = isinstance(given, cst.Call) and given.args and given.args[0].value
            yield made or given


def with_helpers(
    found: set[cst.Module],
    bound: set[cst.Module],
    importers: dict[cst.Module, set[cst.Module]],
    serves_xla: Callable[[cst.Module], bool],
) -> frozenset[cst.Module]:
    """Programs for GPUs, with all that they alone import and that has no word of XLA itself.

    Args:
        found: The files that choose a GPU where there is one, without a word of XLA.
        bound: Those of them that need one: they are no programs for XLA devices, whoever imports
            them, unless such a program does.
        importers: Who imports a file.
        serves_xla: Whether a file is for XLA devices, or has a word of them.
    """
    known = {module for module in found if not importers.get(module)}
    known |= {one for one in bound if not any(map(serves_xla, _above(one, importers)))}
    return _with_imported(known, importers, serves_xla)


def _above(module: cst.Module, importers: dict[cst.Module, set[cst.Module]]) -> set[cst.Module]:
    """The files that import a file, also in turn."""
    found: set[cst.Module] = set()
    waiting = [module]
    while waiting:
        more = importers.get(waiting.pop(), set()) - found
        found |= more
        waiting.extend(more)
    return found


def is_gpu_device(node: cst.CSTNode) -> bool:
    """``torch.device("cuda")``, or the text alone."""
    first = node.args[0].value if isinstance(node, cst.Call) and node.args else node
    made = not isinstance(node, cst.Call) or last_name(node.func) == "device"
    return made and _is_gpu(first)


def _is_gpu(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.BinaryOperation):  # "cuda:%d" % rank
        node = node.left
    if isinstance(node, cst.FormattedString):
        first = node.parts[0] if node.parts else None
        return isinstance(first, cst.FormattedStringText) and first.value.startswith("cuda")
    return (text_of(node) or "").startswith("cuda")


def _is_bound_to_gpu(tree: Tree, node: cst.BaseExpression) -> bool:
    """``device`` of a file whose top says ``device = "cuda"``, and nothing else of it."""
    if not isinstance(node, cst.Name):
        return False
    bound = tree.bindings(node)
    return bool(bound) and all(
        item.kind == "assign"
        and is_gpu_device(item.node)
        and tree.function_of(item.node) is None
        and is_always(tree, item.node)
        for item in bound
    )


def _is_default(tree: Tree, node: cst.CSTNode) -> bool:
    """Whether it is only what a parameter is if nobody gives anything, or one of two choices."""
    return any(isinstance(each, cst.Param | cst.IfExp) for each in tree.ancestors(node))
