"""Does a file make its program one over all devices (SPMD)?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from xladoctor.lint.model.dotted import string
from xladoctor.lint.model.knowledge import SPAWNERS

if TYPE_CHECKING:
    from xladoctor.lint.model.names import Names
    from xladoctor.lint.model.syntax import Tree

_VARIABLE = "XLA_USE_SPMD"
_ON = (".use_spmd", ".mark_sharding")
_MESHES = (".xla_sharding.Mesh", ".spmd.Mesh")
#: Libraries that turn nothing on by themselves.
LIBRARIES = frozenset(
    {
        *("torch", "torch_xla", "torchvision", "numpy", "transformers", "datasets", "trl", "peft"),
        *("accelerate", "evaluate", "tqdm", "wandb", "huggingface_hub", "timm", "PIL", "builtins"),
        *sys.stdlib_module_names,
    }
)


def spmd_is_on(tree: Tree, names: Names, text: str) -> bool:
    """Whether a file makes its program one over all devices.

    A mesh alone says so too, unless the file starts a process for each core and nothing that it
    imports, or says of how it is started, could turn SPMD on: then the mesh does nothing.
    """
    called = {names.resolve(call.func) or "" for call in tree.calls}
    of_torch_xla = [name for name in called if name.startswith("torch_xla")]
    if any(name.endswith(_ON) for name in of_torch_xla) or _VARIABLE in map(string, tree.strings):
        return True
    if not any(name.endswith(_MESHES) for name in of_torch_xla):
        return False
    imported = {name.partition(".")[0] for name in names.imported()}
    return called.isdisjoint(SPAWNERS) or _VARIABLE in text or not imported <= LIBRARIES
