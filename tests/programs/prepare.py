"""A program made ready to run: copied into a folder of its own, made small, with data of its kind.

The programs belong to others and are never committed; nor is any data: it is drawn here.
"""

from __future__ import annotations

import dataclasses
import gzip
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


#: Before the first line of a program, on that line: its rows stay those of its author.
_SEEDS = "import random, numpy, torch; random.seed(7); numpy.random.seed(7); torch.manual_seed(7); "


class NotReadyError(Exception):
    """A program cannot be run here: a file is missing, or an edit finds nothing."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A row of ``programs.toml``; see its head for what the keys mean."""

    name: str
    repository: str
    commit: str
    file: str
    cores: int
    kind: str
    folder: str = ""
    also: tuple[str, ...] = ()
    edits: tuple[tuple[str, str, str], ...] = ()
    data: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environ: dict[str, str] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()
    fix: bool = False
    ends: str = "well"
    losses: str = "none"
    first: str = ""
    judged: dict[str, str] = dataclasses.field(default_factory=dict)
    remark: str = ""

    @classmethod
    def read(cls, row: dict[str, Any]) -> Program:
        """A row as the table has it."""
        lists = {name: tuple(row[name]) for name in row if isinstance(row[name], list)}
        edits = tuple(tuple(edit) for edit in row.get("edits", ()))
        return cls(**{**row, **lists, "edits": edits})

    @property
    def home(self) -> str:
        """The folder of the repository's files: ``owner+name``."""
        return self.repository.replace("/", "+")


def ready(program: Program, files: Path, folder: Path) -> Path:
    """Copy a program, make it small, and draw its data.

    Args:
        program: What to run.
        files: Where the public files are, as ``owner+name/path``.
        folder: An empty folder to work in.

    Returns:
        The script to run; the folder to run it in is its parent.

    Raises:
        NotReadyError: A file is missing, or the program is another version.
    """
    source = files / program.home / program.folder
    for name in (program.file, *program.also):
        if not (source / name).exists():
            raise NotReadyError(
                f"{program.home}/{program.folder}/{name} is missing".replace("//", "/")
            )
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target, dirs_exist_ok=True)
        else:
            shutil.copy(source / name, target)
    script = folder / program.file
    if script.suffix == ".ipynb":
        script = _as_script(script)
    for name, pattern, text in program.edits:
        path = script if name in ("", program.file) else folder / name
        changed, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
        if not count:
            raise NotReadyError(f"{path.name} has nothing like {pattern}: another version?")
        path.write_text(changed)
    if program.fix:
        _fixed(folder)
    script.write_text(_SEEDS + script.read_text())
    for name in program.data:
        maker, _, where = name.partition(":")
        MAKERS[maker](script.parent / where)
    return script


def _as_script(notebook: Path) -> Path:
    """The code of a notebook as a script, without magics and shell lines."""
    import json

    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = "\n\n".join(code).splitlines()
    kept = [re.sub(r"^(\s*)[!%].*", r"\1pass", line) for line in lines]
    script = notebook.with_suffix(".py")
    script.write_text("\n".join(kept) + "\n")
    notebook.unlink()
    return script


def _fixed(folder: Path) -> None:
    words = [sys.executable, "-m", "xladoctor", "lint", "--fix-only", "--unsafe-fixes"]
    subprocess.run(
        [*words, "--isolated", "--no-cache", "."],
        cwd=folder, env={**_environ(), "PYTHONPATH": str(ROOT)}, check=True, capture_output=True,
    )  # fmt: skip


def _environ() -> dict[str, str]:
    import os

    return dict(os.environ)


# -- data of the programs' kinds, drawn with a fixed seed ------------------------------------------
def _draw() -> np.random.Generator:
    return np.random.default_rng(0)


def mnist(folder: Path, train: int = 256, test: int = 64) -> None:
    """28 x 28 images of ten classes in the files that torchvision reads."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    draw = _draw()
    for name, count in (("train", train), ("t10k", test)):
        labels = draw.integers(0, 10, count, dtype=np.uint8)
        images = draw.integers(0, 64, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), labels * 2] += 150  # a row that says the class
        for kind, data in (("labels-idx1", labels), ("images-idx3", images)):
            shape = struct.pack(f">{data.ndim}I", *data.shape)
            content = struct.pack(">BBBB", 0, 0, 8, data.ndim) + shape + data.tobytes()
            (raw / f"{name}-{kind}-ubyte").write_bytes(content)
            (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1))


def lightning_mnist(folder: Path) -> None:
    """The same in the form in which Lightning's demos keep it."""
    import torch

    home = folder / "MNIST" / "complete"
    home.mkdir(parents=True, exist_ok=True)
    draw = _draw()
    for name, count in (("training.pt", 256), ("test.pt", 64)):
        images = torch.from_numpy(draw.integers(0, 255, (count, 28, 28), dtype=np.uint8))
        torch.save((images, torch.from_numpy(draw.integers(0, 10, count))), home / name)


def pets(folder: Path) -> None:
    """Photographs named by their breed: ``beagle_3.jpg``."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    draw = _draw()
    for number in range(80):
        breed = ("beagle", "samoyed", "sphynx", "bengal")[number % 4]
        pixels = draw.integers(0, 255, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{breed}_{number}.jpg")


def image_folder(folder: Path) -> None:
    """Folders of images, one a class, for training and validation."""
    from PIL import Image

    draw = _draw()
    for part, count in (("train", 32), ("val", 8)):
        for label in range(4):
            home = folder / part / f"class{label}"
            home.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = draw.integers(0, 255, (48, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(home / f"{number}.jpg")


def tokens(folder: Path) -> None:
    """Tokens of 96 kinds as nanoGPT keeps them: uint16 in train.bin and val.bin, meta.pkl."""
    import pickle

    folder.mkdir(parents=True, exist_ok=True)
    draw = _draw()
    for name, count in (("train.bin", 20_000), ("val.bin", 4_000)):
        draw.integers(0, 96, count, dtype=np.uint16).tofile(folder / name)
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 96}))


def text(path: Path) -> None:
    """A file of text of some thousand bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["graph", "step", "core", "tensor", "loss", "batch", "epoch", "device"]
    draw = _draw()
    path.write_text(" ".join(words[i] for i in draw.integers(0, len(words), 4_000)))


def glue(folder: Path) -> None:
    """Pairs of sentences as the data set "glue" has them, and a tiny BERT of that name."""
    import csv

    draw = _draw()
    home = folder / "glue"
    home.mkdir(parents=True, exist_ok=True)
    words = ["graph", "step", "core", "tensor", "loss", "batch", "epoch", "device"]
    parts = (("train", 96), ("validation", 32), ("test", 32))
    for name, count in parts:
        with (home / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["sentence1", "sentence2", "label", "idx"])
            for number in range(count):
                first, second = (
                    " ".join(words[i] for i in draw.integers(0, 8, draw.integers(4, 12)))
                    for _ in range(2)
                )
                rows.writerow([first, second, int(draw.integers(0, 2)), number])
    listed = "".join(f"  - split: {name}\n    path: {name}.csv\n" for name, _ in parts)
    (home / "README.md").write_text(
        f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{listed}---\n"
    )
    _bert(folder / "bert-base-cased", words)


def _bert(folder: Path, words: list[str]) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=128,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)


def unet(folder: Path) -> None:
    """The settings of a tiny UNet for diffusers."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "_class_name": "UNet2DModel", "sample_size": 16, "in_channels": 3, "out_channels": 3,
        "layers_per_block": 1, "block_out_channels": [8, 16], "norm_num_groups": 4,
        "down_block_types": ["DownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "UpBlock2D"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(settings))


MAKERS = {
    "unet": unet,
    "mnist": mnist,
    "lightning-mnist": lightning_mnist,
    "pets": pets,
    "images": image_folder,
    "tokens": tokens,
    "text": text,
    "glue": glue,
}
