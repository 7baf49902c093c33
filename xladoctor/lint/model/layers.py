"""What a module keeps that nobody has read: its layers, and what is none."""

from __future__ import annotations

import libcst as cst

from xladoctor.lint import library
from xladoctor.lint.model.values import Kind, Value
from xladoctor.lint.words import words

#: Words of what a module keeps and calls that is no layer: it may give back anything.
_OF_NO_LAYER = frozenset(
    [
        "assigner", "evaluator", "logger", "matcher", "meter", "metric", "metrics", "plotter",
        "post", "postprocess", "postprocessor", "processor", "scheduler", "scorer", "timer",
        "tokenizer", "visualizer", "vis", "writer", "optimizer", "opt",
    ]
)  # fmt: skip


def is_layer(name: str, held: Value) -> bool:
    """Whether what a module keeps and calls is one of its layers: ``self.unet = UNet(config)``.

    Of a class that nobody has read, which no package brings; those that score, match or show what
    they are given may give anything back.
    """
    own = held.kind is Kind.OBJECT and held.instance is None and type(held.origin) is cst.Call
    package = (held.type_name or "").partition(".")[0]
    if not own or not package or package in library.answered():
        return False
    return words(f"{name} {held.type_name}").isdisjoint(_OF_NO_LAYER)
