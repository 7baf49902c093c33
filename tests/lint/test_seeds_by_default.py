"""Weights that depend on what the command line leaves open: seeds, checkpoints, devices."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

DRAWN = """
import argparse
import random

import torch.nn.functional as F
from accelerate import Accelerator, DistributedType
from accelerate.utils import set_seed
from torchvision import models
from torchvision.datasets import CIFAR100


def build(options):
    if options.net == "small":
        return models.resnet18(num_classes=100)
    return models.resnet101(num_classes=100)


def options_of_the_run():
    {before}
    drawn = {drawn}
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="small")
    parser.add_argument("--seed", type=int, default=drawn)
    return parser.parse_args()


def main(loader, optimizer):
    accelerator = Accelerator()
    options = options_of_the_run()
    set_seed(options.seed)
    net = build(options)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    net.to(accelerator.device)
    for images, labels in loader:
        accelerator.backward(F.cross_entropy(net(images), labels))
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.distributed_type == DistributedType.XLA:
        accelerator.wait_for_everyone()
"""


@pytest.mark.parametrize(
    ("drawn", "before", "told"),
    [
        ("random.randint(1, 9999)", "pass", [31]),
        ("int(1e3)", "pass", []),
        ("17", "pass", []),
        ("random.randint(1, 9999)", "random.seed(3)", []),
        ("random.randint(1, 9999)", "set_seed(3)", []),
    ],
)
def test_a_seed_that_each_core_draws(drawn, before, told):
    assert rows(DRAWN.format(drawn=drawn, before=before), "XLA426") == told


def test_one_process_that_reads_the_command_line_draws_for_all():
    program = """
import argparse
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)


def _mp_fn(index, options, loader):
    torch.manual_seed(options.seed)
    net = Net().to(torch_xla.device())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader:
        net.layer(batch.to(torch_xla.device())).sum().backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randint(1, 9999))
    torch_xla.launch(_mp_fn, args=(parser.parse_args(), None))
"""
    assert rows(program, "XLA426") == []


HEAD = """
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import BertForSequenceClassification, Trainer


def _mp_fn(index, checkpoint, arguments, data):
    model = BertForSequenceClassification.from_pretrained(checkpoint, num_labels=data.labels)
    Trainer(model, arguments, train_dataset=data).train()


def train(arguments, data, checkpoint: str = "{default}"):
    def run():
        xmp.spawn(_mp_fn, args=(checkpoint, arguments, data))

    run()
"""


@pytest.mark.parametrize(
    ("default", "told"),
    [
        ("bert-large-cased", [7]),
        ("bert-base-uncased-finetuned-sst2", []),
        ("someone/reviews", []),
    ],
)
def test_a_new_head_where_the_checkpoint_is_a_default(default, told):
    assert rows(HEAD.format(default=default), "XLA426") == told


PLAIN = """
import torch
import torch.nn.functional as F
from accelerate import Accelerator


def main(net, optimizer, loader):
    accelerator = Accelerator()
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    print("begins")  # !XLA401
    for images, labels in loader:
        accelerator.backward(F.cross_entropy(net(images), labels))
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("classify-accelerate-tpu.py", True),
        ("tools/train_tpu.py", True),
        ("trainXLA.py", True),
        ("train.py", False),
        ("train_gpu_or_tpu.py", False),
        ("train_no_tpu.py", False),
        ("tpu/train.py", False),
    ],
)
def test_a_program_of_a_framework_that_is_called_for_tpus(name, is_told):
    assert found(PLAIN, filename=name) == (sorted(marks(PLAIN)) if is_told else [])


def test_a_name_says_nothing_of_programs_of_other_libraries():
    beside = "import jax\n" + PLAIN
    assert found(beside, filename="train_tpu.py") == []
    alone = "import torch\n\nprint(torch.ones(2).cuda())\n"
    assert found(alone, filename="train_tpu.py") == []


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("Fine-tune.\n\n    python -m torch_xla.distributed.xla_spawn train.py\n", True),
        ("Run it:\n    accelerate launch --num_processes 8 --tpu train.py\n", True),
        ("python xla_spawn.py --num_cores 8 train.py", True),
        ("PJRT_DEVICE=TPU python train.py", True),
        ("accelerate launch --multi_gpu train.py", False),
        ("It never ran on a TPU.", False),
    ],
)
def test_a_program_that_says_how_it_is_started(said, is_told):
    program = f'"""{said}"""\n{PLAIN}'
    assert found(program) == (sorted(marks(program)) if is_told else [])


@pytest.mark.parametrize(
    ("asked", "is_told"),
    [("args.tpu_cores", True), ("opt.tpu_cores", True), ("rows.tpu_cores", False)],
)
def test_settings_that_are_asked_for_cores_of_tpus(asked, is_told):
    program = f"{PLAIN}\nif {asked}:\n    main(net, optimizer, loader)\n"
    assert found(program) == (sorted(marks(program)) if is_told else [])


@pytest.mark.parametrize(
    ("asked", "is_told"),
    [
        ('settings["tpu_cores"] = 8', True),
        ('print(settings["tpu_cores"])', False),
        ('if "TPU_NAME" in os.environ: settings["max_epochs"] = 3', True),
        ('if "RUN_NAME" in os.environ: settings["max_epochs"] = 3', False),
    ],
)
def test_what_a_dictionary_of_settings_is_given(asked, is_told):
    made = "trainer = L.Trainer()\ntrainer.tune(net)\n"
    program = f"import os\nimport lightning as L\nsettings = dict()\n{asked}\n{made}"
    assert ("XLA910" in {code for _, code in found(program)}) is is_told
