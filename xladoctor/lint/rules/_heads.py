"""Models that come with their weights but for the last layer, which is drawn anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor import patterns
from xladoctor.lint.model import walk
from xladoctor.lint.rules._constants import constant
from xladoctor.lint.rules._settled import settled
from xladoctor.lint.rules._sources import sources, the_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Classes of transformers whose last layer belongs to a task.
_TASK = patterns.lazy(
    r"For(Sequence|Token|Image|Audio|Video|AudioFrame)Classification$|ForMultipleChoice$"
    r"|ForQuestionAnswering$|ForSemanticSegmentation$|ForObjectDetection$"
)
#: Checkpoints that were trained for no task, by how they are called on the hub.
_BASE = patterns.lazy(
    r"^([\w.-]+/)?(distil|mobile|squeeze|clinical|bio|sci|fin|legal|kc|ko|ru)?-?(bert|roberta|albert"
    r"|electra|deberta|xlm-roberta|xlm-mlm|xlnet|mpnet|camembert|longformer|big-?bird|funnel|gpt2"
    r"|layoutlm|wav2vec2|hubert|wavlm)([-_v]|$)|in2[12]k$|-(mae|msn|dino)\w*-|dinov2"
)
#: A word in the name of one that was trained for a task: its last layer may come with it.
_TRAINED = patterns.lazy(
    r"fine-?tun|(^|[-_/])(ft|sst\d?|mnli|x?nli|squad\d?|ner|conll\d*|cola|qqp|mrpc|imdb|emotions?"
    r"|sentiment|toxic|superb|\d+h|asr|ade|classif\w*|qa|pos|race|swag)([-_]|$)"
)
#: Layers with weights of their own, by name.
_WEIGHTED = patterns.lazy(
    r"^torch\.nn\.(?!functional\.|init\.|utils\.|parallel\.)(\w+\.)*(Linear|Bilinear|LazyLinear"
    r"|Conv|LazyConv|Embedding|LSTM|GRU|RNN|Transformer|MultiheadAttention|Parameter)"
)
_CREATE = frozenset(
    {"timm.create_model", "timm.models.create_model", "timm.models.factory.create_model"}
)
#: Models whose encoder alone can come with weights; the decoder is drawn anew.
#: segmentation_models_pytorch 0.5, decoders/*/model.py
_ENCODER_ALONE = patterns.lazy(
    r"^segmentation_models_pytorch\.(decoders\.\w+\.|(\w+\.)?)"
    r"(Unet\w*|FPN|Linknet|MAnet|PSPNet|PAN|DeepLabV3\w*|UPerNet|Segformer|DPT|create_model)$"
)
#: peft 0.17: LoRA draws ``lora_A`` unless ``init_lora_weights`` says how else; others draw too.
ADAPTERS = frozenset(
    {"peft.get_peft_model", "peft.mapping.get_peft_model", "peft.mapping_func.get_peft_model"}
)
#: Those whose ``from_pretrained`` draws the last layer for another number of classes.
_OTHER_CLASSES = patterns.lazy(r"^efficientnet_pytorch\.(model\.)?EfficientNet\.from_pretrained$")
#: Heads of torchvision that take another one's place.
_HEADS = patterns.lazy(r"^torchvision\.models\.\w+(\.\w+)*\.\w*(Predictor|Head)$")
#: Classes of the data sets that checkpoints of images come with.
_CLASSES = frozenset({0, None, 1000, 21841, 21843, NotImplemented})


def is_weighted(name: str | None) -> bool:
    """Whether a call of this name makes a layer with random weights."""
    return name is not None and _WEIGHTED.search(name) is not None


def new_head(model: FileModel, call: CallSite) -> cst.CSTNode | None:
    """What draws a last layer with random weights for the pretrained model that a call makes.

    ``AutoModelForSequenceClassification.from_pretrained("bert-base-cased")``,
    ``timm.create_model("resnet50", pretrained=True, num_classes=5)``, ``smp.Unet("resnet34")``
    (its decoder), ``get_peft_model(net, LoraConfig())`` (its adapters), and
    ``net.fc = nn.Linear(...)`` or ``net.reset_classifier(5)`` behind what makes ``net``.
    """
    name = call.name or ""
    if _ENCODER_ALONE.search(name) or draws_adapters(call):
        return call.node
    if call.method == "from_pretrained" and _draws_task(model, call):
        return call.node
    if call.name in _CREATE or _OTHER_CLASSES.search(name):
        classes = call.keywords.get("num_classes")
        if classes is not None and _of_task(model, classes):
            return call.node
    return next(_replaced(model, call), None)


def _of_task(model: FileModel, classes: cst.BaseExpression) -> bool:
    """Whether a number of classes is no checkpoint's: ``37``, ``len(names)``."""
    if model.literal(classes) not in _CLASSES:
        return True
    made = sources(model, classes) or ()
    return bool(made) and all(
        isinstance(one, cst.Call) and model.name(one.func) == "builtins.len" for one in made
    )


def draws_adapters(call: CallSite) -> bool:
    """``get_peft_model(net, LoraConfig())``: half of each adapter is drawn."""
    return call.name in ADAPTERS


def _draws_task(model: FileModel, call: CallSite) -> bool:
    """Whether a checkpoint without a task is read into a class for one."""
    if call.receiver is None or not _TASK.search(model.tree.text(call.receiver).strip()):
        return False
    anew = call.keywords.get("ignore_mismatched_sizes")
    if anew is not None and model.literal(anew) is True:
        return True
    read = call.argument(0, "pretrained_model_name_or_path")
    if read is not None and all(map(_is_base, settled(model, read))):
        return True  # also by the default of a parameter, where no call gives it
    name = constant(model, read) if read is not None else None
    if not isinstance(name, str):
        # Of the program's arguments or settings: what is trained for a task was trained for none.
        return isinstance(read, cst.Attribute | cst.Subscript) and name in (NotImplemented, None)
    return _is_base(name)


def _is_base(name: object) -> bool:
    """Whether a checkpoint is one that was trained for no task, by its name."""
    said = name.lower() if isinstance(name, str) else ""
    return bool(_BASE.search(said)) and not _TRAINED.search(said)


def _replaced(model: FileModel, call: CallSite) -> Iterator[cst.CSTNode]:
    """The new layers that lines behind ``net = ...`` give it: ``net.fc = nn.Linear(512, 10)``."""
    bound = model.parent(call.node)
    if not isinstance(bound, cst.Assign) or len(bound.targets) != 1:
        return
    model = model.file_with(call.node)
    kept = model.tree.text(bound.targets[0].target).strip()
    for line in model.nodes(cst.Assign):
        if model.function_of(line) is not call.function:
            continue
        into = {_holder(model, target.target) for target in line.targets}
        if kept in into:
            yield from (
                part
                for part in walk(the_source(model, line.value))
                if isinstance(part, cst.Call) and _is_head(model.call(part).name)
            )
    for reset in model.methods("reset_classifier"):
        if reset.receiver is not None and reset.function is call.function:
            classes = reset.argument(0, "num_classes")
            same = model.tree.text(reset.receiver).strip() == kept
            if same and classes is not None and _of_task(model, classes):
                yield reset.node


def _is_head(name: str | None) -> bool:
    return is_weighted(name) or _HEADS.search(name or "") is not None


def _holder(model: FileModel, node: cst.BaseExpression) -> str:
    """``net`` of ``net.classifier[1]``; "" for a name that is bound itself."""
    inner = node
    while isinstance(inner, cst.Attribute | cst.Subscript) and inner.value is not node:
        inner = inner.value
        if model.tree.text(inner).strip() == "self" or isinstance(inner, cst.Name):
            break
    return "" if inner is node else model.tree.text(inner).strip()
