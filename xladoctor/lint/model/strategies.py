"""Which classes are Lightning's strategies for other devices.

Its XLA accelerator takes ``SingleDeviceXLAStrategy``, ``XLAStrategy`` and ``XLAFSDPStrategy`` (and
what is built on them), and raises ValueError for any other (Lightning 2.6, fabric/connector.py,
pytorch/trainer/connectors/accelerator_connector.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.lint.model.syntax import Class
from xladoctor.lint.words import XLA_WORDS, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model.linked_names import LinkedNames
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_PACKAGES = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_STRATEGY = "Strategy"


def strategies_elsewhere(tree: Tree, names: Names | LinkedNames) -> frozenset[Class]:
    """The strategies that are none of XLA's, and that none of XLA's is built on."""
    found: set[Class] = set()
    of_xla: set[Class] = set()
    for one in tree.classes.values():
        if not one.name.endswith(_STRATEGY) and not one.node.bases:
            continue
        family = {one, *_above(one, names)}
        bases = [base for each in family for base in _bases(each, names)]
        if not any(_is_strategy(base) for base in bases):
            continue
        said = {word for text in (one.name, *bases) for word in words(text.rpartition(".")[2])}
        if said & XLA_WORDS or any(words(each.name) & XLA_WORDS for each in family):
            of_xla |= family
        else:
            found.add(one)
    return frozenset(found - of_xla)


def _is_strategy(base: str) -> bool:
    return base.partition(".")[0] in _PACKAGES and base.endswith(_STRATEGY)


def _bases(one: Class, names: Names | LinkedNames) -> Iterator[str]:
    yield from (name for base in one.node.bases if (name := names.resolve(base.value)))


def _above(one: Class, names: Names | LinkedNames) -> Iterator[Class]:
    """The classes of the program that a class is built on, also in turn."""
    waiting, seen = [one], {one}
    while waiting:
        for base in waiting.pop().node.bases:
            made = names.definition(base.value)
            if isinstance(made, Class) and made not in seen:
                seen.add(made)
                waiting.append(made)
                yield made
