"""Scripts for GPUs that share helpers with programs for XLA devices: silent, and their helpers too.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, rows
from test_scripts_and_helpers import told, wanted

SHARED = """\
def averaged(value, cores):
    try:
        import torch_xla.core.xla_model as xm
    except ImportError:
        return value / cores
    return xm.all_reduce(xm.REDUCE_SUM, value, scale=1 / cores)
"""
ENGINE = """\
import gc

import shared


def one_epoch(model, loader, optimizer, criterion, device):
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        shared.averaged(loss, 8)
        gc.collect()
    return total
"""
ON_GPUS = """\
import torch
import torch.nn as nn
from engine import one_epoch


def main(local_rank, loader):
    {placed}
    model = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        one_epoch(model, loader, optimizer, nn.CrossEntropyLoss(), device)
"""
ON_XLA = """\
import torch
import torch.nn as nn
import torch_xla
from engine import one_epoch


def main(loader):
    device = torch_xla.device()
    model = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        one_epoch(model, loader, optimizer, nn.CrossEntropyLoss(), device)
"""
ASKED = ("XLA101", "XLA111", "XLA203", "XLA301", "XLA401", "XLA603")


@pytest.mark.parametrize(
    "placed",
    [
        "torch.cuda.set_device(local_rank)\n    device = torch.device(f'cuda:{local_rank}')",
        "device = torch.device('cuda', local_rank)",
        "device = torch.device('cuda:%d' % local_rank)",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "device = torch.empty(1, device='cuda').device",
        "device = nn.Linear(1, 1).to('cuda:1').weight.device",
        """if ARGS.no_cuda or local_rank < 0:
        usable = torch.cuda.is_available() and not ARGS.no_cuda
        device = torch.device('cuda' if torch.cuda.is_available() and usable else 'cpu')
    else:
        device = torch.device('cuda', local_rank)""",
    ],
)
def test_what_only_scripts_for_gpus_import_is_silent(tmp_path, placed):
    files = {
        "shared.py": SHARED,
        "engine.py": ENGINE,
        "train_gpu.py": ON_GPUS.replace("{placed}", placed),
    }
    assert told(tmp_path, files, *ASKED) == set()


NOTED = """\
import torch

import engine

{device}
net = torch.nn.Linear(8, 2).to(device)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
rows = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.zeros(64, dtype=torch.long))
loader = torch.utils.data.DataLoader(rows, batch_size=8)
engine.one_epoch(net, loader, sgd, torch.nn.functional.cross_entropy, device)
"""


@pytest.mark.parametrize(
    ("device", "is_told"),
    [
        ("device = 'cuda'", False),
        ("device = torch.device('cuda:0')", False),
        ("device = 'cpu'\nif torch.cuda.device_count() > 7:\n    device = 'cuda'", True),
        ("device = 'cuda'\nif torch.randn(1) > 7:\n    device = 'cpu'", True),
    ],
)
def test_a_script_whose_top_says_cuda_once_for_all(tmp_path, device, is_told):
    program = NOTED.replace("{device}", device)
    files = {"shared.py": SHARED, "engine.py": ENGINE, "notebook.py": program}
    assert bool(told(tmp_path, files, *ASKED)) is is_told


def test_what_a_script_for_xla_imports_too_is_told(tmp_path):
    engine = ENGINE.replace("gc.collect()", "gc.collect()  # !XLA111")
    placed = "device = torch.device('cuda', local_rank)"
    files = {
        "shared.py": SHARED,
        "engine.py": engine,
        "train_gpu.py": ON_GPUS.replace("{placed}", placed),
        "train_xla.py": ON_XLA,
    }
    assert told(tmp_path, files, "XLA111") == wanted(files)


@pytest.mark.parametrize(
    "device",
    [
        "torch.device('cuda') if torch.cuda.is_available() else shared.device()",
        "shared.device()",
        "torch.device('cuda' if args.gpu else args.tpu_device)",
    ],
)
def test_a_script_that_may_take_either_is_told(tmp_path, device):
    shared = SHARED + "\n\ndef device():\n    import torch_xla\n\n    return torch_xla.device()\n"
    engine = ENGINE.replace("gc.collect()", "gc.collect()  # !XLA111")
    text = ON_XLA.replace("import torch_xla\n", "import shared\n")
    text = text.replace("loader):", "loader, args):")
    files = {
        "shared.py": shared,
        "engine.py": engine,
        "train.py": text.replace("torch_xla.device()", device),
        "train_xla.py": ON_XLA,
    }
    assert told(tmp_path, files, "XLA111") == wanted(files)


BACKENDS = """
import torch
import torch_xla


class CudaBackend:
    def __init__(self, rank):
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group(backend="nccl")
        self.device = torch.device("cuda", rank)

    def wrapped(self, model):
        return torch.nn.DataParallel(model)


class XlaBackend:
    def __init__(self, rank):
        self.device = torch_xla.device()

    def wrapped(self, model):
        return torch.nn.DataParallel(model)  # here


KINDS = [XlaBackend, CudaBackend]


def backend(kind, rank):
    return KINDS[kind](rank)
"""


def test_a_class_for_gpus_is_silent_beside_one_for_xla():
    assert rows(BACKENDS, "XLA709") == [21]
    assert not {"XLA706", "XLA707", "XLA708"} & set(codes(BACKENDS))


def test_a_class_of_another_name_is_told():
    program = BACKENDS.replace("CudaBackend", "Backend")
    assert {"XLA707", "XLA708"} <= set(codes(program))


def test_compiling_is_told_where_xla_runs_it(tmp_path):
    files = {
        "model.py": """\
        import torch


        def compiled(model):
            return torch.compile(model)  # !XLA314


        def served(model):
            return torch.compile(model)
        """,
        "train.py": """\
        import torch
        import torch_xla
        from model import compiled


        def main(net):
            return compiled(net.to(torch_xla.device()))
        """,
        "serve.py": """\
        import torch
        from model import served


        def main(net):
            return served(net)
        """,
    }
    assert told(tmp_path, files, "XLA314") == wanted(files)


DEFAULT = """
import torch
import torch_xla


def score(images, device=torch.device("cuda")):
    return images.to(device).mean()


class Meter:
    def __init__(self, size, device=torch.device("cuda:0")):
        self.total = torch.zeros(size, device=device)


def main(images):
    device = torch_xla.device()
    return score(images, {score}), Meter({meter}).total
"""


@pytest.mark.parametrize(
    ("score", "meter", "told"),
    [
        ("device", "4, device", []),
        ("device=device", "4, device=device", []),
        ("device", "*[4, device]", []),
        ("", "4, device", [6]),
        ("device", "4", [11]),
    ],
)
def test_a_gpu_as_default_is_told_where_somebody_takes_it(score, meter, told):
    program = DEFAULT.replace("{score}", score).replace("{meter}", meter)
    assert rows(program, "XLA706") == told


TRAINER = """\
import gc

import shared


class Trainer:
    def __init__(self, model, rank):
        self.model = model.cuda(rank)
        self.rank = rank

    def evaluate(self, loader, criterion):
        self.model.eval()
        total = 0.0
        for images, labels in loader:
            images, labels = images.cuda(self.rank), labels.cuda(self.rank)
            total += criterion(self.model(images), labels)
            gc.collect()
        return shared.averaged(total, 8)
"""
SCRIPT = """\
import torch.nn as nn
from trainer import Trainer


def main(rank, loader):
    trainer = Trainer(nn.Linear(8, 2), rank)
    return trainer.evaluate(loader, nn.CrossEntropyLoss())
"""


def test_a_trainer_that_needs_a_gpu_is_silent_whoever_imports_it(tmp_path):
    files = {"shared.py": SHARED, "trainer.py": TRAINER, "train.py": SCRIPT}
    assert told(tmp_path, files, "XLA111", "XLA301", "XLA320", "XLA706") == set()


def test_a_trainer_that_a_program_for_xla_imports_is_told(tmp_path):
    script = SCRIPT.replace("import torch.nn", "import torch_xla\nimport torch.nn")
    script += "\n\ntorch_xla.launch(main, args=([],))\n"
    trainer = TRAINER.replace("gc.collect()", "gc.collect()  # !XLA111")
    files = {"shared.py": SHARED, "trainer.py": trainer, "train.py": script}
    assert told(tmp_path, files, "XLA111") == wanted(files)


def test_a_class_that_needs_a_gpu_is_silent_beside_what_xla_takes_of_its_file(tmp_path):
    trainer = TRAINER + "\n\nclass State:\n    epoch = 0\n"
    other = TRAINER.replace("class Trainer", "class XlaTrainer")
    other = other.replace("model.cuda(rank)", "model.to(torch_xla.device())")
    other = other.replace("gc.collect()", "gc.collect()  # !XLA111")
    other = other.replace(".cuda(self.rank)", ".to(torch_xla.device())")
    other = other.replace(
        "import shared", "import shared\nimport torch_xla\nfrom trainer import State"
    )
    files = {"shared.py": SHARED, "trainer.py": trainer, "train.py": SCRIPT, "on_xla.py": other}
    assert told(tmp_path, files, "XLA111") == wanted(files)


def test_what_such_a_class_alone_calls_is_silent_too(tmp_path):
    meter = "import torch\n\n\ndef hits(out):\n    return torch.tensor(out.shape[0]).to(out)\n"
    trainer = TRAINER.replace("import shared", "import meter\nimport shared")
    trainer = trainer.replace("gc.collect()", "meter.hits(images)")
    trainer += "\n\nclass State:\n    epoch = 0\n"
    other = "import torch_xla\nfrom trainer import State\n\n\ndef main(net):\n"
    other += "    return net.to(torch_xla.device()), State()\n"
    files = {
        "shared.py": SHARED,
        "meter.py": meter,
        "trainer.py": trainer,
        "train.py": SCRIPT,
        "on_xla.py": other,
    }
    assert told(tmp_path, files, "XLA603", "XLA604") == set()
