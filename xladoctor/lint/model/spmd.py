"""Does a file make its program one over all devices (SPMD)?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.model.dotted import string, text_of
from xladoctor.lint.model.knowledge import SPAWNERS
from xladoctor.lint.words import words

if TYPE_CHECKING:
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_VARIABLE = "XLA_USE_SPMD"
_ON = (".use_spmd", ".mark_sharding")
_MESHES = (".xla_sharding.Mesh", ".spmd.Mesh")
#: Words of settings that choose one program over all devices.
_WAYS = frozenset({"spmd", "fsdp", "sharded", "sharding"})
#: Libraries that turn nothing on by themselves.
LIBRARIES = frozenset(
    {
        *("torch", "torch_xla", "torchvision", "numpy", "transformers", "datasets", "trl", "peft"),
        *("accelerate", "evaluate", "tqdm", "wandb", "huggingface_hub", "timm", "PIL", "builtins"),
        *sys.stdlib_module_names,
    }
)


def spmd_is_on(tree: Tree, names: Names, text: str) -> bool:
    """Whether a file makes its program one over all devices, not as one of several ways.

    So does the variable, but in a file that starts a process for each core: there it is the mistake
    (XLA429), and the program is one of several cores. A mesh alone says so too, unless the file
    starts a process for each core and nothing that it imports, or says of how it is started, could
    turn SPMD on: then the mesh does nothing.
    """
    calls = [(names.resolve(call.func) or "", call) for call in tree.calls]
    called = {name for name, _ in calls}
    of_torch_xla = [
        name for name, call in calls if name.startswith("torch_xla") and not _is_one_way(tree, call)
    ]
    if any(name.endswith(_ON) for name in of_torch_xla):
        return True
    if _VARIABLE in map(string, tree.strings):
        return called.isdisjoint(SPAWNERS)
    if not any(name.endswith(_MESHES) for name in of_torch_xla):
        return False
    imported = {name.partition(".")[0] for name in names.imported()}
    return called.isdisjoint(SPAWNERS) or _VARIABLE in text or not imported <= LIBRARIES


def _is_one_way(tree: Tree, call: cst.Call) -> bool:
    """``if settings.distribution == "spmd":``: the program has others beside it."""
    tests = (one.test for one in tree.ancestors(call) if isinstance(one, cst.If))
    return any(
        isinstance(test, cst.Comparison)
        and isinstance(test.comparisons[0].operator, cst.Equal)
        and bool(words(text_of(test.comparisons[0].comparator) or "") & _WAYS)
        for test in tests
    )
