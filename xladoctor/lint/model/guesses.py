"""What a name says of its value, in files for XLA devices."""

from __future__ import annotations

import functools

from xladoctor.lint.model import frameworks
from xladoctor.lint.model import knowledge as know
from xladoctor.lint.model.values import UNKNOWN, Kind, Value


@functools.lru_cache(maxsize=10_000)
def said_by_name(name: str) -> Value:
    """What is called so as a rule; never certain."""
    if know.DEVICE_NAME.search(name):
        return Value(Kind.DEVICE)
    if know.OPTIMIZER_NAME.search(name):
        return Value(Kind.OPTIMIZER)
    if know.LOSS_NAME.search(name):
        return Value(Kind.LOSS)
    if know.DEVICE_LOADER_NAME.search(name):
        return Value(Kind.DEVICE_LOADER)
    if know.MODEL_NAME.search(name):
        return Value(Kind.MODEL)
    if know.MASTER_NAME.match(name):
        return Value(Kind.IS_MASTER, local=True)
    if name in frameworks.ACCELERATORS:
        return Value(Kind.OBJECT, type_name=frameworks.ACCELERATOR_CLASS)
    if name in frameworks.FABRICS:
        return Value(Kind.OBJECT, type_name=frameworks.FABRIC_CLASS)
    return UNKNOWN
