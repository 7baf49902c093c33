"""What writes, makes and removes files on every core, by the table of writers."""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import found, marks, rows

START = """
import contextlib
import gzip
import os
import shelve
import shutil
import tarfile
import zipfile

import cv2
import h5py
import safetensors.torch
import soundfile
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torchaudio
from accelerate import Accelerator
from huggingface_hub import ModelCard
from pathlib import Path


"""
RUN = """
def _mp_fn(index, out, rows, figure, picture, card, wave, state):
{body}


def main(*given):
    xmp.spawn(_mp_fn, args=given)
"""


def _program(body: str) -> str:
    return START + RUN.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    "))


@pytest.mark.parametrize(
    "line",
    [
        'rows.save_to_disk(f"{out}/tokens")',
        'rows.to_parquet(out + "/rows.parquet")',
        'figure.savefig(os.path.join(out, "loss.pdf"))',
        'figure.write_html(f"{out}/loss.html")',
        'cv2.imwrite(f"{out}/sample.ppm", picture)',
        'soundfile.write(f"{out}/sample.wav", wave, 16000)',
        'torchaudio.save(f"{out}/sample.flac", wave, sample_rate=16000)',
        'safetensors.torch.save_file(state, "net.safetensors")',
        'torch.jit.save(picture, "net.pt")',
        'os.replace("net.tmp.pt", "net.pt")',
        "shelve.open(out)",
        'gzip.open(out, "wt")',
        'zipfile.ZipFile(out, mode="w")',
        'tarfile.open(out, "w:gz")',
        'h5py.File(out, "w")',
        'card.save(os.path.join(out, "README.md"))',
        'ModelCard.load(out).save("README.md")',
        'os.system("gsutil cp -r {} {}".format(out, "gs://place"))',
    ],
)
def test_all_cores_write_what_the_table_knows(line: str) -> None:
    assert rows(_program(line), "XLA406") == [25]


@pytest.mark.parametrize(
    "line",
    [
        'rows.save_to_disk(f"{out}/tokens-{index}")',
        'figure.savefig(picture.buffer_of(index), format="png")',
        'shelve.open(out, flag="r")',
        "gzip.open(out)",
        'h5py.File(out, "r")',
        "zipfile.ZipFile(out).namelist()",
        'card.save("prune/everything")',
        'cv2.imread("sample.ppm")',
        'print("gsutil cp {}".format(out))',
    ],
)
def test_what_only_reads_or_has_a_path_for_each_core_is_silent(line: str) -> None:
    assert not rows(_program(line), "XLA406")


def test_a_path_that_has_a_name_first_is_that_of_a_card() -> None:
    body = """
        path = os.path.join(out, "README.md")
        made = ModelCard.load(path)
        made.save(path)  # !XLA406
    """
    program = _program(body)
    assert marks(program) == {x for x in found(program) if x[1] == "XLA406"}


OWN = """
class Net(torch.nn.Module):
    def save_pretrained(self, path):
        if xm.is_master_ordinal():
            torch.save({}, path)


def _mp_fn(index, out):
    net = Net()
    net.save_pretrained(out)


def main(out):
    xmp.spawn(_mp_fn, args=(out,))
"""


def test_a_method_of_the_program_is_judged_by_what_it_does() -> None:
    assert not rows(START + OWN, "XLA406")
    every = OWN.replace("xm.is_master_ordinal()", "path is not None")
    assert len(rows(START + every, "XLA406")) == 1


ONCE = """
    os.makedirs(out)  # !XLA406
    os.mkdir("logs", 0o755)
    Path("pictures").mkdir(parents=True)  # !XLA406
    shutil.rmtree(out)  # !XLA406
    if os.path.isdir("old"):
        shutil.rmtree("old")  # !XLA406
    os.remove("done.txt")  # !XLA406
    Path("done").unlink()  # !XLA406
    old_path = Path(out) / "old"
    old_path.unlink()  # !XLA406
"""

#: What may come second, and what one core alone does, or each for itself.
NOT_ONCE = """
    os.makedirs(out, exist_ok=True)
    os.makedirs(out, 0o755, True)
    Path("pictures").mkdir(parents=True, exist_ok=True)
    Path("done").unlink(missing_ok=True)
    shutil.rmtree(out, ignore_errors=True)
    if not os.path.exists("logs"):
        os.makedirs("logs")
    if os.path.exists("done.txt"):
        os.remove("done.txt")
    try:
        os.mkdir("kept")
    except FileExistsError:
        pass
    with contextlib.suppress(FileNotFoundError):
        os.remove("gone.txt")
    picture.unlink()
    rows.mkdir()
    os.makedirs(f"out-{index}")
    if xm.is_master_ordinal():
        os.makedirs("once")
        shutil.rmtree("before")
"""


def test_what_can_be_done_once_is_done_by_every_core() -> None:
    program = _program(ONCE)
    assert marks(program) == {x for x in found(program) if x[1] == "XLA406"}
    assert not rows(_program(NOT_ONCE), "XLA406")


STATE = """
def main(net, loader, optimizer):
    accelerator = Accelerator()
    net, loader, optimizer = accelerator.prepare(net, loader, optimizer)
    for x in loader:
        accelerator.backward(net(x).sum())
        optimizer.step()
    {save}
    print(xm.xla_device())
"""


@pytest.mark.parametrize(
    ("save", "told"),
    [
        ('torch.save(accelerator.get_state_dict(net), "net.pt")', True),
        ('torch.save({"net": accelerator.get_state_dict(net)}, "net.pt")', True),
        ('accelerator.save(accelerator.get_state_dict(net), "net.pt")', False),
        ('torch.save(accelerator.get_state_dict(net.cpu()), "net.pt")', False),
    ],
)
def test_the_state_that_accelerate_gives_is_where_the_model_is(save: str, told: bool) -> None:
    assert bool(rows(START + STATE.format(save=save), "XLA721")) is told
