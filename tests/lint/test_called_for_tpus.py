"""Programs that only their file's name says to be for TPUs, and what they link."""

import pytest

from tests.lint.rule_helpers import found_in_files, told_in_files

MODULE = """\
import lightning as L
import torch
from torch import nn


class Captioner(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.first = None

    def training_step(self, batch, batch_idx):
        if not self.first:
            self.first = batch
        loss = self.net(batch["pixels"], batch["words"])
        print(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-4)
"""
SCRIPT = """\
import lightning as L

from captioner import Captioner
from nets import build, loader

trainer = L.Trainer({arguments})
trainer.fit(Captioner(build()), loader())
"""


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("train_tpu.py", 'accelerator="auto", max_steps=100', True),
        ("train_tpu.py", "max_steps=100", True),
        ("train_tpu.py", 'accelerator="gpu", max_steps=100', False),
        ("train.py", 'accelerator="auto", max_steps=100', False),
        ("train_tpu_or_gpu.py", 'accelerator="auto", max_steps=100', False),
    ],
)
def test_a_trainer_of_a_script_for_tpus_takes_them_by_auto(tmp_path, name, arguments, told):
    files = {"captioner.py": MODULE, name: SCRIPT.format(arguments=arguments)}
    found = told_in_files(tmp_path, files, {"XLA101", "XLA104"})
    row = 1 + MODULE.splitlines().index("        print(loss.item())")
    assert found == ({("captioner.py", row, "XLA101")} if told else set())


def test_precisions_are_those_of_tpus(tmp_path):
    arguments = 'accelerator="auto", precision="bf16-mixed"'
    files = {"captioner.py": MODULE, "train_tpu.py": SCRIPT.format(arguments=arguments)}
    assert (6, "XLA901") in found_in_files(tmp_path, files)["train_tpu.py"]
    files = {"captioner.py": MODULE, "fit.py": SCRIPT.format(arguments=arguments)}
    (tmp_path / "train_tpu.py").unlink()
    assert found_in_files(tmp_path, files)["fit.py"] == set()
