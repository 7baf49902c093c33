"""Classes whose fields are written instead of an ``__init__``: dataclasses, ``NamedTuple``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.contained import under_names
from xladoctor.lint.model.syntax import Class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xladoctor.lint.model.flow import Flow
    from xladoctor.lint.model.values import Instance, Value

#: Objects of libraries that hold what they are given, as attributes.
HOLDERS = frozenset(
    [
        "types.SimpleNamespace", "argparse.Namespace", "easydict.EasyDict", "addict.Dict",
        "munch.Munch", "box.Box", "ml_collections.ConfigDict", "collections.namedtuple",
    ]
)  # fmt: skip
#: What says how a field of a dataclass begins.
FIELD = "dataclasses.field"
_DEPTH = 4


def fill(flow: Flow, instance: Instance, arguments: Sequence[tuple[str | None, Value]]) -> None:
    """Store what an object is made of, in its fields in order."""
    names = fields(flow, instance.cls)
    left = list(names)
    for keyword, value in arguments:
        if keyword == "*":
            left = []
        elif keyword == "**":
            for part in under_names(value):
                for name in left:
                    flow.memory.store(instance, name, part)
        elif keyword in names:
            flow.memory.store(instance, str(keyword), value)
            left = [name for name in left if name != keyword]
        elif keyword is None and left:
            flow.memory.store(instance, left.pop(0), value)


def fields(flow: Flow, cls: Class, depth: int = _DEPTH) -> list[str]:
    """The annotated names of a class and its base classes in the program, in their order."""
    found: list[str] = []
    for base in cls.bases if depth else ():
        outer = flow.names.definition(base)
        if isinstance(outer, Class) and outer is not cls:
            found += fields(flow, outer, depth - 1)
    for line in cls.node.body.body:
        parts = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        for part in parts:
            if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name):
                found.append(part.target.value)
    return list(dict.fromkeys(found))
