"""XLA445: outputs of layers that are not sharded as what the layers are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model import Class, walk
from xladoctor.lint.model.dotted import is_name
from xladoctor.lint.model.knowledge import GIVE_ITSELF
from xladoctor.lint.rules import rule
from xladoctor.lint.rules._exact import given_last
from xladoctor.lint.rules._sources import made_in, the_call, the_source
from xladoctor.lint.rules._spmd import FSDP, MARK, MESH, SPEC, axes_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel, Problem

_PATCHES = frozenset({"apply_xla_patch_to_nn_linear", "XLAPatchedLinear", "einsum"})
_LAYERS = "transformer_layer_cls"
#: What makes models of transformers.
_MAKES = (".from_pretrained", ".from_config")
#: Dimensions of what ``nn.Linear`` flattens: batch, sequence, features.
_FLATTENED = 3


@rule("XLA445")
def inner_output_sharding(model: FileModel) -> Iterator[Problem]:
    """Find FSDPv2 whose layers shard too little of what they return, and ``nn.Linear``."""
    for call in model.calls(*FSDP):
        if call.has_star or {"shard_output", "auto_wrapper_callable"} & call.keywords.keys():
            continue
        yield from _other_axis(model, call)
        for owner in _wrapped(model, call):
            yield from _several_outputs(model, call, owner)
        yield from _output_of_transformers(model, call)
    yield from _flattened(model)


def _other_axis(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``extra_data_axis`` together with ``auto_wrap_policy``."""
    given = {name: model.literal(value) for name, value in call.keywords.items()}
    axis = given.get("extra_data_axis")
    if "auto_wrap_policy" not in given or not isinstance(axis, str):
        return
    yield model.problem(
        call.keywords["extra_data_axis"],
        f"the layers that auto_wrap_policy wraps do not know of '{axis}': their outputs are "
        "sharded over 'fsdp' alone, and the same work is done along the other axis",
        suggestion="shard_output=: a function that marks the output over "
        f"(('{axis}', 'fsdp'), None, ...) on every layer",
    )


def _wrapped(model: FileModel, call: CallSite) -> Iterator[Class]:
    """The classes of the program that FSDPv2 wraps: its module's, and those of its policy."""
    module = call.argument(0, "module")
    owner = None if module is None else _class_of(model, module)
    if owner is not None:
        yield owner
    policy = call.keywords.get("auto_wrap_policy")
    made = None if policy is None else made_in(model, policy, ("functools.partial",))
    layers = None if made is None else made.keywords.get(_LAYERS)
    if isinstance(layers, cst.Set):
        names = {model.tree.text(element.value).strip() for element in layers.elements}
        yield from (each for each in model.classes if each.name in names and each is not owner)


def _class_of(model: FileModel, node: cst.BaseExpression) -> Class | None:
    """The class of the program whose instance this is, moved to a device or not."""
    call = the_call(model, node)
    if call is None:
        return None
    if call.method == "to" and call.receiver is not None:
        return _class_of(model, call.receiver)
    return call.target if isinstance(call.target, Class) else None


def _several_outputs(model: FileModel, call: CallSite, owner: Class) -> Iterator[Problem]:
    forward = owner.methods.get("forward")
    if forward is None:
        return
    for line in walk(forward.node):
        if not isinstance(line, cst.Return) or model.function_of(line) is not forward:
            continue
        related = [model.place(line, "what it returns")]
        if isinstance(line.value, cst.Dict):
            yield model.problem(
                call.node,
                f"{owner.name}.forward returns a dict: FSDPv2 raises RuntimeError at its first "
                "call (The output type is not supported)",
                suggestion="shard_output=: a function that marks what is in it",
                related=related,
            )
            return
        given = line.value.elements if isinstance(line.value, cst.Tuple) else ()
        tensors = sum(not is_name(one.value, "None") for one in given)
        if tensors > 1:
            yield model.problem(
                call.node,
                f"of the {tensors} tensors that {owner.name}.forward returns "
                "FSDPv2 shards the first alone",
                suggestion="shard_output=: a function that marks each of them",
                related=related,
            )
            return


def _output_of_transformers(model: FileModel, call: CallSite) -> Iterator[Problem]:
    """``FSDPv2(AutoModel.from_pretrained(name))``: its output is an object of transformers."""
    given = call.argument(0, "module")
    made = given_last(model, given) if isinstance(given, cst.Name) else given
    while isinstance(made, cst.Call) and model.call(made).method in GIVE_ITSELF:
        made = model.call(made).receiver
    maker = model.call(made) if isinstance(made, cst.Call) else None
    name = (maker.name or "") if maker is not None else ""
    if maker is None or not name.startswith("transformers.") or not name.endswith(_MAKES):
        return
    if "return_dict" not in maker.keywords:
        yield model.problem(
            call.node,
            "models of transformers give an object that is neither a tensor nor a tuple: FSDPv2 "
            "raises RuntimeError at its first call (The output type is not supported)",
            suggestion="shard_output=lambda output, mesh: xs.mark_sharding(output.logits, mesh, "
            "axes)",
            related=[model.place(maker.node, "made here")],
        )


def _flattened(model: FileModel) -> Iterator[Problem]:
    """Activations over batch and sequence that ``nn.Linear`` flattens into one dimension."""
    parts = (model, *model.linked)
    if any(call.last in _PATCHES for part in parts for call in part.calls()):
        return
    linear = next(iter(model.calls("torch.nn.Linear")), None)
    if linear is None or any(model.calls("torch.nn.Conv1d")):
        return  # three dimensions may be a signal's: batch, channels, time
    for call in model.calls(*MARK, *SPEC):
        place = 1 if call.name in MARK else 0
        spec, mesh = call.argument(place + 1, "partition_spec"), call.argument(place, "mesh")
        spec = the_source(model, spec) if spec is not None else None
        if call.has_star or mesh is None or not isinstance(spec, cst.Tuple):
            continue
        if len(spec.elements) != _FLATTENED:
            continue
        both = [_several_places(model, mesh, one.value) for one in spec.elements[:2]]
        if not all(both):
            continue
        yield model.problem(
            spec,
            "nn.Linear flattens batch and sequence into one dimension, and the sharding of the "
            "sequence is lost: all devices along its axis compute the same",
            suggestion="model = apply_xla_patch_to_nn_linear(model) "
            "(torch_xla.distributed.spmd.xla_sharding)",
            related=[model.place(linear.node, "the layer")],
        )
        return


def _several_places(
    model: FileModel, mesh: cst.BaseExpression, element: cst.BaseExpression
) -> bool:
    """Whether a dimension is divided: its axis is known to have more than one place."""
    axes, made = axes_of(model, mesh), made_in(model, mesh, MESH)
    shape = None if made is None else shape_of(model, made)
    at = model.literal(element)
    if isinstance(at, str) and axes is not None and at in axes:
        at = axes.index(at)
    if shape is None or not isinstance(at, int) or isinstance(at, bool):
        return False
    if not 0 <= at < len(shape[1]):
        return False
    count = shape[1][at]
    return count is None or count.factor > 1 or bool(count.unknown)
