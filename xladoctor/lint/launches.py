"""What a project's own settings start its programs on: ``accelerator: tpu`` in a YAML file.

Programs that Hydra, LightningCLI or ``accelerate launch`` configure never name their device. Their
settings count where all that speak of an accelerator agree on TPUs. Beside settings for GPUs those
count that somebody wrote to run on TPUs: a file called so (``trainer/tpu.yaml``), a shell line that
starts a program there (``trainer.tpu_cores=8``). Any other project with settings for GPUs is linted
by what its Python files say. How many cores they start counts too: those of the files that ask for
TPUs, or else of all; Lightning takes all cores that there are if nobody says how many.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from xladoctor import files
from xladoctor.lint import library
from xladoctor.lint.commands import started_files
from xladoctor.lint.folders import join, project_root
from xladoctor.lint.started import Started
from xladoctor.lint.words import called_for_tpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    rb"|(?P<other>CUDA_VISIBLE_DEVICES|--multi_gpu\b|--gpus\b|nvidia-smi"
    rb"|\bdeepspeed\b|\btorch\.distributed\.launch\b))"
)
#: ``devices: 8``, ``tpus: -1``, ``trainer.devices=8``, ``--num_cores 8``.
_CORES = re.compile(
    rb"(?:^|[-+.\s])(?:devices|tpus|(?:num_)?tpu_(?:num_)?cores|num_(?:cores|processes|devices))"
    rb"(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?(?P<count>-?\d+|auto\b)",
    re.MULTILINE,
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
#: Tables of ``pyproject.toml`` and ``setup.cfg``; in those of tools (isort's ``known_third_party``)
#: a package is only named.
_TABLE = re.compile(rb"^\[+(?P<name>[^\]\r\n]+)\]+.*$", re.MULTILINE)
_OF_TOOLS = re.compile(
    rb"(?:tool\.)?(?:isort|mypy|flake8|ruff|black|pytest|pylint|pyright|coverage|codespell|yapf)\b"
    rb"|tool:"
)
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


class _Told(NamedTuple):
    """What one file says.

    Attributes:
        place: The folder of the programs that it is for.
        said: What it asks for.
        counts: The numbers of cores in it, as they are written.
        named: Whether it is called for TPUs, and asks for them.
        path: The file.
        row: Its first line that asks for TPUs, 1-based; 1 where its name alone does.
        starts: The modules that it starts, and whether each is to be sharded (``commands``).
    """

    place: str
    said: frozenset[_Said]
    counts: frozenset[bytes]
    named: bool
    path: str
    row: int
    starts: frozenset[tuple[str, bool]]


class Launches:
    """What the settings of projects ask for, each project read once.

    Args:
        looked: Looks at the disk.
        top: The folder that holds all files that were given.
    """

    def __init__(self, looked: Looked, top: str) -> None:
        self._looked = looked
        self._top = os.path.realpath(top)
        self._known: dict[str, tuple[_Told, ...]] = {}

    def of(self, folder: str) -> Started:
        """What the programs of a folder are started on: TPUs on purpose, or nothing else.

        Settings of a part (``images/configs/tpu.yaml``) say nothing of the others beside it, unless
        all settings of the project agree on TPUs.
        """
        folder = os.path.realpath(folder)
        root, marked = project_root(self._looked, folder, self._top)
        if root not in self._known:
            told = (self._told(path, root) for path in self._files(root, marked))
            self._known[root] = tuple(told)
        project = self._known[root]
        here = [one for one in project if f"{folder}{os.sep}".startswith(f"{one.place}{os.sep}")]
        every = {said for one in project for said in one.said}
        alone = every == {_Said.TPU}
        if not alone and not any(_Said.ON_PURPOSE in one.said for one in here):
            started = Started(on_gpus=every == {_Said.OTHER})
        else:
            started = _together(project if alone else here)
        return dataclasses.replace(started, files=_sharded(project))

    def _told(self, path: str, root: str) -> _Told:
        """What one file says."""
        folder, name = os.path.split(path)
        data, named = self._read(path), called_for_tpus(name)
        lines = tuple(_said(name, data, named=named)) if data else ()
        said = frozenset(one for one, _ in lines)
        asked = [at for one, at in lines if one is not _Said.OTHER and at is not None]
        row = data.count(b"\n", 0, min(asked, default=0)) + 1
        counts: set[bytes] = set()
        if not _REQUIRES.search(name):
            counts.update(one["count"] for one in _CORES.finditer(data))
        place = _serves(folder, root)
        named = named and _asks_for_tpus(said)
        starts = frozenset(started_files(data) if _SHELL.search(name) else ())
        return _Told(place, said, frozenset(counts - {b"0"}), named, path, row, starts)

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

    def _read(self, path: str) -> bytes:
        """A file of settings without its comments; nothing of what cannot be read."""
        try:
            data = self._looked.read(path, lambda name: files.read_bytes(name, _LARGEST))
        except OSError:
            return b""
        if _OF_MACHINES in data:
            return b""
        data = _COMMENT.sub(b"", data)
        return _without_tools(data) if path.endswith((".cfg", ".toml")) else data


def _said(name: str, data: bytes, *, named: bool) -> Iterator[tuple[_Said, int | None]]:
    """What each line of a file that asks for an accelerator says, and where; None: by its name.

    Args:
        name: What the file is called.
        data: What it holds, without comments.
        named: Whether it is called for TPUs.
    """
    shell = _SHELL.search(name) is not None
    frozen = not named and not shell and data.count(b"\n") > _LONGEST
    required = _REQUIRED.search(data)
    if required is not None and not frozen:
        yield _Said.ON_PURPOSE, required.start()
    elif named and _YAML.search(name):
        yield _Said.ON_PURPOSE, None
    if _REQUIRES.search(name):
        return
    for found in (_LINE if shell else _SETTING).finditer(data):
        group = found.groupdict()
        value = (group["value"] or b"").lower()
        if value in _TPU or group["tpu"]:
            said = _Said.ON_PURPOSE if named or shell else _Said.TPU
            yield said, found.start("value" if value else "tpu")
        elif group.get("other") or (value in _OTHER and not (value == _FSDP and named)):
            yield _Said.OTHER, found.start()


def _without_tools(data: bytes) -> bytes:
    """A file of tables without what those of tools hold; all rows stay where they are."""
    tables = [*_TABLE.finditer(data)]
    ends = [*(one.start() for one in tables[1:]), len(data)]
    kept, done = [], 0
    for table, end in zip(tables, ends, strict=False):
        if _OF_TOOLS.match(table["name"].strip()):
            kept += [data[done : table.start()], b"\n" * data.count(b"\n", table.start(), end)]
            done = end
    return b"".join((*kept, data[done:]))


def _asks_for_tpus(said: frozenset[_Said]) -> bool:
    return not said.isdisjoint({_Said.TPU, _Said.ON_PURPOSE})


def _together(told: Sequence[_Told]) -> Started:
    """What files that start programs on TPUs say together of cores and other devices."""
    own = {count for one in told if _asks_for_tpus(one.said) for count in one.counts}
    every = {count for one in told for count in one.counts}
    several = own != {b"1"} if own else b"1" not in every
    others = any(one.named or _Said.OTHER in one.said for one in told)
    # The plainest: a file that is called for TPUs, or a line that can mean nothing else.
    asking = [one for one in told if _asks_for_tpus(one.said)]
    best = min(asking, key=lambda one: (not one.named, _Said.ON_PURPOSE not in one.said))
    name = _from_here(best.path)
    return Started(on_tpus=True, several=several, on_others=others, filename=name, row=best.row)


def _sharded(told: Sequence[_Told]) -> tuple[tuple[str, bool], ...]:
    """The modules that scripts start, and whether all who start one ask to shard its weights."""
    ways: dict[str, bool] = {}
    for name, sharded in (one for file in told for one in file.starts):
        ways[name] = ways.get(name, True) and sharded
    return tuple(sorted(ways.items()))


def _from_here(path: str) -> str:
    """A path from the working directory, if it lies below."""
    here = os.path.join(os.path.realpath(os.getcwd()), "")  # noqa: PTH109, PTH118
    return path.removeprefix(here)


def _serves(folder: str, root: str) -> str:
    """The part of a project that what stands in a folder is for: "app" of "app/conf/trainer"."""
    parts = folder[len(root) :].split(os.sep)  # noqa: PTH206
    aside = next((n for n, part in enumerate(parts) if _ASIDE.match(part)), len(parts))
    return root + os.sep.join(parts[:aside])  # noqa: PTH118
