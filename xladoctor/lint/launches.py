"""What a project's own settings start its programs on: ``accelerator: tpu`` in a YAML file.

Programs that Hydra, LightningCLI or ``accelerate launch`` configure never name their device. Their
settings count where all that speak of an accelerator agree on TPUs. Beside settings for GPUs those
count that somebody wrote to run on TPUs: a file called so (``trainer/tpu.yaml``), a shell line that
starts a program there (``trainer.tpu_cores=8``). Any other project with settings for GPUs is linted
by what its Python files say.
"""

from __future__ import annotations

import enum
import os
import re
from typing import TYPE_CHECKING

from xladoctor import files
from xladoctor.lint import library
from xladoctor.lint.folders import join, project_root
from xladoctor.lint.words import called_for_tpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.looked import Looked

#: ``accelerator: "tpu"`` of Lightning, ``distributed_type: XLA`` of Accelerate, and what programs
#: call it themselves; ``- trainer: tpu`` chooses among Hydra's files.
_SETTING = re.compile(
    rb"^[ \t]*(?:- *)?"
    rb"(?:(?:accelerator|accelerator_type|distributed_type|device|device_type|trainer)"
    rb"[ \t]*:[ \t]*[\"']?(?P<value>[A-Za-z_]+)"
    rb"|(?P<tpu>(?:num_)?tpu_(?:num_)?cores[ \t]*:[ \t]*[1-9]))",
    re.MULTILINE,
)
#: ``accelerate launch --tpu``, ``python xla_spawn.py --num_cores 8``, ``trainer.accelerator=tpu``,
#: ``trainer.tpu_cores=8``; images of machines with TPUs for PyTorch are called ``tpu-vm-pt-2.0``.
_LINE = re.compile(
    rb"(?:(?:accelerator|device)(?:=|[ \t]+)[\"']?(?P<value>[A-Za-z_]+)"
    rb"|(?P<tpu>xla_spawn\.py|--tpu\b"
    rb"|(?:--|[+.])(?:num_)?tpu_(?:num_)?cores\b(?![ \t=]*(?:0\b|null))"
    rb"|PJRT_DEVICE=[\"']?(?:TPU|NEURON)|XRT_TPU_CONFIG=|\btpu-vm-pt-)"
    rb"|(?P<other>CUDA_VISIBLE_DEVICES|--multi_gpu\b|--gpus\b|nvidia-smi))"
)
_TPU = frozenset({b"tpu", b"xla", b"neuron"})
_OTHER = frozenset(
    {b"gpu", b"cuda", b"multi_gpu", b"fsdp", b"deepspeed", b"megatron_lm", b"mps", b"npu", b"hpu",
     b"xpu", b"mlu", b"musa", b"multi_npu", b"multi_xpu", b"ddp", b"multi"}
)  # fmt: skip
_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
#: What Accelerate calls FSDP of torch_xla too: ``xla_fsdp.yaml``.
_FSDP = b"fsdp"
#: ``pip install torch_xla``, ``torch-xla[tpu]==2.9`` among what a project requires.
_REQUIRED = re.compile(rb"\btorch[-_]xla\b")
#: ``pip freeze`` in a notebook of Colab lists hundreds of packages, torch_xla among them.
_LONGEST = 100
_REQUIRES = re.compile(r"^(?:requirements.*\.txt|pyproject\.toml|setup\.(?:py|cfg))$")
_SHELL = re.compile(r"\.sh$|^(?:Makefile|Dockerfile.*)$")
_YAML = re.compile(r"\.ya?ml$")
#: What folders of settings are called.
_SETTINGS = re.compile(r"(?:accelerate_)?conf(?:ig)?s?$|accelerate$|experiments?$|hydra$|trainer$")
#: Folders that serve, with all in them, the one that they stand in.
_ASIDE = re.compile(
    _SETTINGS.pattern + r"|(?:\w*[-_])?scripts?$|bash$|sh$|docker(?:files?)?$|env(?:ironment)?s?$"
    r"|requirements$|setup$|tpus?$"
)
#: What machines are made of, and not programs: Kubernetes.
_OF_MACHINES = b"apiVersion:"
_MOST_FOLDERS = 200
_MOST_FILES = 400
#: Of a folder of hundreds of experiments the first ones say what the others say.
_MOST_OF_A_FOLDER = 40
_LARGEST = 64 * 2**10
_NOT_ENTERED = frozenset({"node_modules", "site-packages", "venv", "env", "wandb", "outputs"})


class _Said(enum.Enum):
    """What a setting asks for: a TPU, one where only TPUs can be meant, or another device."""

    TPU = enum.auto()
    ON_PURPOSE = enum.auto()
    OTHER = enum.auto()


class Launches:
    """What the settings of projects ask for, each project read once.

    Args:
        looked: Looks at the disk.
        top: The folder that holds all files that were given.
    """

    def __init__(self, looked: Looked, top: str) -> None:
        self._looked = looked
        self._top = os.path.realpath(top)
        self._known: dict[str, tuple[bool, frozenset[str]]] = {}

    def on_tpus(self, folder: str) -> bool:
        """Whether the programs of a folder are started on TPUs: on purpose, or on nothing else."""
        folder = os.path.realpath(folder)
        root, marked = project_root(self._looked, folder, self._top)
        if root not in self._known:
            self._known[root] = self._of_project(root, marked)
        alone, places = self._known[root]
        return alone or any(f"{folder}{os.sep}".startswith(f"{one}{os.sep}") for one in places)

    def _of_project(self, root: str, marked: bool) -> tuple[bool, frozenset[str]]:
        """Whether all settings of a project agree on TPUs, and where somebody wrote some for TPUs.

        Those of a part (``images/configs/tpu.yaml``) say nothing of the others beside it.
        """
        found: set[_Said] = set()
        places: set[str] = set()
        for path in self._files(root, marked):
            said = set(self._said(path))
            found |= said
            if _Said.ON_PURPOSE in said:
                places.add(_serves(os.path.dirname(path), root))  # noqa: PTH120
        return found == {_Said.TPU}, frozenset(places)

    def _files(self, root: str, marked: bool) -> Iterator[str]:
        """What a project has of settings, scripts and requirements, its outer folders first.

        Of a folder that nothing marks as a project (it may be somebody's home) only what is called
        settings is entered.
        """
        folders, count = [root], 0
        for folder in folders:  # grows while it is walked
            try:
                entries = sorted(self._looked.entries(folder), key=lambda entry: entry.name)
            except (OSError, ValueError):
                continue
            found: list[str] = []
            for entry in entries:
                if entry.name.startswith(".") or entry.is_symlink():
                    continue
                if entry.is_dir():
                    if self._is_entered(entry.name, marked) and len(folders) < _MOST_FOLDERS:
                        folders.append(entry.path)
                elif any(one.search(entry.name) for one in (_YAML, _SHELL, _REQUIRES)):
                    found.append(join(folder, entry.name))
            found.sort(key=called_for_tpus, reverse=True)
            del found[min(_MOST_OF_A_FOLDER, _MOST_FILES - count) :]
            count += len(found)
            yield from found

    @staticmethod
    def _is_entered(name: str, marked: bool) -> bool:
        """Whether a folder may hold settings of the project: no copy of a library of others."""
        if name in _NOT_ENTERED or name.partition("-")[0] in library.installed():
            return bool(_SETTINGS.match(name))  # ``accelerate`` may be either
        return marked or bool(_SETTINGS.match(name))

    def _said(self, path: str) -> Iterator[_Said]:
        """What each line of a file that asks for an accelerator says."""
        try:
            data = self._looked.read(path, lambda name: files.read_bytes(name, _LARGEST))
        except OSError:
            return
        if _OF_MACHINES in data:
            return
        name = os.path.basename(path)  # noqa: PTH119
        named, shell = called_for_tpus(name), _SHELL.search(name) is not None
        data = _COMMENT.sub(b"", data)
        frozen = not named and not shell and data.count(b"\n") > _LONGEST
        if (_REQUIRED.search(data) and not frozen) or (named and _YAML.search(name)):
            yield _Said.ON_PURPOSE
        if _REQUIRES.search(name):
            return
        for found in (_LINE if shell else _SETTING).finditer(data):
            group = found.groupdict()
            value = (group["value"] or b"").lower()
            if value in _TPU or group["tpu"]:
                yield _Said.ON_PURPOSE if named or shell else _Said.TPU
            elif group.get("other") or (value in _OTHER and not (value == _FSDP and named)):
                yield _Said.OTHER


def _serves(folder: str, root: str) -> str:
    """The part of a project that what stands in a folder is for: "app" of "app/conf/trainer"."""
    parts = folder[len(root) :].split(os.sep)  # noqa: PTH206
    aside = next((n for n, part in enumerate(parts) if _ASIDE.match(part)), len(parts))
    return root + os.sep.join(parts[:aside])  # noqa: PTH118
