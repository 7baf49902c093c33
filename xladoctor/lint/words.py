"""The words that names are made of, and which kind of device they speak of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

XLA_WORDS = frozenset({"tpu", "tpus", "xla", "torchacc", "neuron", "neuronx"})
OTHER_WORDS = frozenset(
    [
        "cuda", "gpu", "gpus", "npu", "hpu", "xpu", "mps", "mlu", "musa", "ipu", "ipus", "rocm",
        "hip", "nccl", "sagemaker", "nvidia", "ipex", "deepspeed",
    ]
)  # fmt: skip
#: Those of them that are no kinds of devices: a program without them may run on any.
EXTENSIONS = frozenset({"deepspeed", "ipex"})
#: Words that make a flag of such a word: ``use_tpu``, ``is_torch_xla_available``, ``tpu_found``.
_FLAG = frozenset(
    [
        "use", "used", "using", "is", "has", "have", "on", "with", "torch", "available", "found",
        "enabled", "enable", "installed", "imported", "supported", "running", "flag", "mode", "mp",
        "dp", "want", "in", "env", "should", "detected", "active",
    ]
)  # fmt: skip
#: Words by which programs call their settings, which are equal on all cores.
SETTINGS_WORDS = frozenset(
    [
        "arg", "args", "cfg", "conf", "config", "flags", "hparams", "opt", "opts", "params",
        "settings",
    ]
)  # fmt: skip
_ASKS = frozenset({"is", "on", "has", "have"})
#: Words of a file's name that say what it is for, and words beside them that say that it may be for
#: others.
_NAMED = frozenset({"tpu", "tpus", "xla"})
_OR_ELSE = frozenset({"cpu", "cpus", "no", "non", "not", "without", "or", "vs"})
_REFUSES = frozenset({"no", "not", "non", "without", "disable", "disabled"})
_WORD = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")  # TPUs


def words(text: str) -> frozenset[str]:
    """The words that a name is made of, in small letters ("isTPUAvailable": is, tpu, available)."""
    text = text.replace("SageMaker", "Sagemaker")  # one word, however it is written
    return frozenset(word.lower() for word in _WORD.findall(text))


def called_for_tpus(filename: str) -> bool:
    """Whether a file is called so: ``classification-accelerate-tpu.py``, ``train_tpu.py``."""
    said = words(re.split(r"[\\/]", filename)[-1].rpartition(".")[0])
    return bool(said & _NAMED) and not said & (OTHER_WORDS | _OR_ELSE)


def names_settings(name: str) -> bool:
    """Whether a name is by its last word that of a program's settings: ``training_args``."""
    return name.lower().rpartition("_")[2] in SETTINGS_WORDS


def for_others(text: str) -> bool:
    """Whether a name says that something is for other devices: ``CudaTimer``."""
    named = words(text)
    return bool(named & OTHER_WORDS) and not named & XLA_WORDS


def flag(name: str) -> bool | None:
    """What a flag of that name is on XLA devices."""
    said = words(name)
    rest = said - XLA_WORDS - OTHER_WORDS - _FLAG
    if said & _ASKS:
        rest -= {"device"}  # ``is_xla_device``, and not ``xla_device``, which is one
    if said & XLA_WORDS and not said & OTHER_WORDS and not rest - _REFUSES:
        return not rest
    return False if said & OTHER_WORDS and not said & XLA_WORDS and not rest else None


def kinds_of_xla(texts: Sequence[str]) -> bool | None:
    """Whether the kinds of device that are named are XLA's, all or none of them."""
    kinds = {text.lower().partition(":")[0] for text in texts}
    if kinds and kinds <= XLA_WORDS:
        return True
    return False if kinds & OTHER_WORDS and kinds <= OTHER_WORDS | {"cpu"} else None
