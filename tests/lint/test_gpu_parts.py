"""What is for GPUs alone beside code for XLA devices, and what looks like it and runs on both.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, found_in_files, marks

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""

LIBRARY = f"""\
import lightning as L
{XM}
from net import Small


@torch.no_grad()
def generate(model, tokens, count):
    if tokens.device.type == "xla":
        xm.mark_step()
    for _ in range(count):
        tokens = model(tokens).argmax(-1)
        if tokens.device.type == "xla":
            xm.mark_step()
    return tokens


def main(prompt):
    fabric = L.Fabric(devices=1)
    with fabric.init_module():
        model = Small()
    model = fabric.setup_module(model)
    print(generate(model, prompt.to(fabric.device), 20))
"""

NET = """\
import torch


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 64)

    def forward(self, tokens):
        turned = torch.arange(64).to(tokens.device)
        return self.head(tokens * turned)
"""

SCRIPT = """\
import torch
{imports}
from library import generate
from net import Small


def main(data):
    {made}
    with fabric.init_module():
        model = Small()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    train(fabric, model, optimizer, data)


def train(fabric, model, optimizer, data):
    for step in range(1000):
        tokens, wanted = fabric.to_device((data[step].pin_memory(), data[step + 1].pin_memory()))
        loss = torch.nn.functional.cross_entropy(model(tokens), wanted)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item()){told}
    return generate(model, tokens, 20)
"""

GPUS = [
    ("import lightning as L", 'fabric = L.Fabric(accelerator="cuda", devices=1)'),
    ("import lightning as L", 'fabric = L.Fabric(devices=4, accelerator="gpu")'),
    ("from lightning import Fabric", 'fabric = Fabric(accelerator="cuda", precision="bf16-true")'),
    ("from lightning.fabric import Fabric", 'fabric = Fabric(accelerator="cuda")'),
    ("import lightning_fabric as lf", 'fabric = lf.Fabric(accelerator="gpu", devices=2)'),
]
ANY = [
    ("import lightning as L", 'fabric = L.Fabric(accelerator="tpu", devices=8)'),
    ("import lightning as L", 'fabric = L.Fabric(accelerator="xla")'),
]


@pytest.mark.parametrize(("imports", "made"), GPUS)
def test_what_lightning_trains_on_gpus_never_meets_an_xla_device(imports, made, tmp_path):
    script = SCRIPT.format(imports=imports, made=made, told="")
    told = found_in_files(tmp_path, {"net.py": NET, "library.py": LIBRARY, "train.py": script})
    assert [code for _, code in told["train.py"] if code == "XLA101"] == []


@pytest.mark.parametrize(("imports", "made"), ANY)
def test_what_lightning_trains_on_xla_devices_is_told(imports, made, tmp_path):
    script = SCRIPT.format(imports=imports, made=made, told="  # !XLA101")
    told = found_in_files(tmp_path, {"net.py": NET, "library.py": LIBRARY, "train.py": script})
    assert {one for one in told["train.py"] if one[1] == "XLA101"} == marks(script)


def test_a_device_that_others_are_compared_with_holds_nothing():
    program = f"""\
{XM}

def pinned(batch, device):
    if device == torch.device("cuda"):
        batch = batch.pin_memory()
    if torch.device("cuda:0") != device or device in (torch.device("cpu"),):
        print("not there")
    kept = torch.device("cuda")  # !XLA706
    return batch.to(kept)


def main(batch):
    return pinned(batch, torch_xla.device())
"""
    assert {one for one in found(program) if one[1] == "XLA706"} == marks(program)


def test_what_torchacc_moves_by_itself_is_no_upload():
    program = f"""\
{XM}
import torchacc


def train(args, model, loader, optimizer):
    device = torch_xla.device()
    model = model.to(device)
    for batch in loader:
        if not args.use_torchacc:
            batch = {{key: value.to(device) for key, value in batch.items()}}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        if args.use_torchacc:
            print(loss.item())  # !XLA101
"""
    asked = {"XLA603", "XLA101"}
    assert {one for one in found(program) if one[1] in asked} == marks(program)


LINKED = """\
import torch
{imports}


def shared(model, x):
    return model(x).mean()


def finetune(model, loader):
    engine, optimizer = engine_of(model)
    for x in loader:
        loss = shared(engine, x.to("cuda"))
        engine.backward(loss)
        engine.step()
        print(loss.item())
    torch.save(engine.state_dict(), "out.pt")
"""

FOR_XLA = f"""\
{XM}
from linked import finetune, shared


def train(model, loader, optimizer, use_engine):
    device = torch_xla.device()
    model = model.to(device)
    if use_engine:
        return finetune(model, loader)
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        shared(model, x).backward()
        xm.optimizer_step(optimizer)
    return model
"""


@pytest.mark.parametrize(
    ("imports", "told"),
    [
        ("import deepspeed", False),
        ("from megatron.core import parallel_state", False),
        ("import bitsandbytes as bnb", False),
        ("import smdistributed.modelparallel.torch as smp", False),
        ("try:\n    import deepspeed\nexcept ImportError:\n    deepspeed = None", True),
        ("import torchvision", True),
        ("from .deepspeed import engine_of", True),
        ("import deepspeed\nimport torch_xla", True),
    ],
)
def test_what_needs_a_package_for_gpus_is_for_gpus(tmp_path, imports, told):
    """Whoever imports such a file has a GPU then, also where it is a program for XLA devices."""
    files = {"linked.py": LINKED.format(imports=imports), "train.py": FOR_XLA}
    in_linked = {code for _, code in found_in_files(tmp_path, files)["linked.py"]}
    assert bool(in_linked & {"XLA101", "XLA706", "XLA721"}) is told


IN_TESTS = f"""\
{XM}
import unittest
import pytest


class Reads(unittest.TestCase):
    def test_draws(self):
        loader = torch.utils.data.DataLoader(list(range(10)), batch_size=4)
        device = torch_xla.device()
        net = torch.nn.Linear(4, 4).to(device)
        for x in pl.MpDeviceLoader(loader, device):
            net(x).sum().backward()
            print(net(x).sum().item())
"""


def test_speed_and_protocol_of_unit_tests_are_nobodys_matter():
    assert {code for _, code in found(IN_TESTS) if code[3] in "123456"} == set()
    program = IN_TESTS.replace("(unittest.TestCase)", "").replace("test_draws", "draws")
    assert "XLA101" in {code for _, code in found(program)}


TWO_ROADS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from shop import make_loader, make_net


def has_tpu():
    try:
        import torch_xla.core.xla_model as xm
        return True
    except ImportError:
        return False


def main():
    if has_tpu():
        import torch_xla.distributed.xla_multiprocessing as xmp
        xmp.spawn(run, args=(4,))
        return
    torch.multiprocessing.spawn(run, args=(4,), nprocs=4)


def run(rank, parts):
    if has_tpu():
        import torch_xla.core.xla_model as xm
        device = xm.xla_device()
    else:
        dist.init_process_group("nccl", rank=rank, world_size=parts)
        device = torch.device("cuda", rank)
    net = make_net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if has_tpu():
        pass
    WRAP
        net = DDP(net)
    for x, y in make_loader(rank, parts):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device)).backward()
        optimizer.step()
        if has_tpu():
            xm.mark_step()


main()
"""


@pytest.mark.parametrize(
    ("wrap", "told"),
    [
        ("elif torch.cuda.is_available():", True),
        ("else:", True),
        ("if parts > 1:", False),
    ],
)
def test_a_model_that_is_wrapped_on_gpus_alone_is_not_reduced_on_tpus(wrap, told):
    assert ("XLA302" in codes(TWO_ROADS.replace("WRAP", wrap))) is told
