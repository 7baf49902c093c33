"""What rules about texts that a model writes share: ``model.generate`` of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import CallSite, FileModel

#: Arguments that only transformers' ``generate`` has (transformers 5.23, generation/utils.py and
#: configuration_utils.py).
_ITS_OWN = frozenset(
    {
        "max_new_tokens",
        "num_beams",
        "do_sample",
        "pad_token_id",
        "eos_token_id",
        "decoder_start_token_id",
    }
)


#: Packages whose models generate in a cache of full size.
_STATIC = frozenset({"optimum", "neuronx_distributed", "transformers_neuronx", "jetstream"})


def generations(model: FileModel) -> Iterator[CallSite]:
    """The calls of transformers' ``generate`` whose model or prompt is on the device."""
    if any(name.partition(".")[0] in _STATIC for name in model.names.imported()):
        return
    for call in model.methods("generate"):
        if call.receiver is None or call.target is not None:
            continue
        writer = model.value(call.receiver)
        known = (writer.type_name or "").startswith("transformers.")
        if not known and not (_ITS_OWN & set(call.keywords) and writer.type_name is None):
            continue
        given = [*call.positional, *call.keywords.values()]
        on_device = writer.kind is Kind.MODEL and writer.on_device
        if on_device or any(model.value(item).is_device_tensor for item in given):
            yield call
