"""Programs of neuronx_distributed, whose cores hold different parts of one model."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

ASKED = {"XLA309", "XLA402", "XLA405", "XLA434"}

FINETUNE = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
import neuronx_distributed as nxd
from neuronx_distributed.parallel_layers import checkpointing, parallel_state
from torch.utils.data import DataLoader, TensorDataset

ROWS = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))


def keep(model, optimizer, folder, step):
    nxd.save_checkpoint(folder, tag=f"at-{step}", model=model, optimizer=optimizer)


def finetune(config, build):
    torch.distributed.init_process_group("xla")
    {start}
    device = xm.xla_device()
    model = build(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(ROWS, batch_size=8, drop_last=True)  # {loader}
    for at, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        noise = torch.randn(8, 16, device=device)  # {loader2}
        loss = torch.nn.functional.cross_entropy(model(x + noise), y)
        loss.backward()
        if (at + 1) % config.accumulate == 0:
            xm.optimizer_step(optimizer)  # {step}
            optimizer.zero_grad()
        if at % 500 == 0:
            xm.rendezvous("keep")
            if xm.is_master_ordinal():
                keep(model, optimizer, config.folder, at)  # !XLA405
    if xm.is_master_ordinal():
        checkpointing.save(model.state_dict(), config.folder)  # !XLA405
    nxd.load_checkpoint(config.folder, model=model)
"""


def program(start, *, divided=True):
    wanted = {"loader": "", "loader2": "", "step": "!XLA309"}
    if not divided:
        wanted = {"loader": "!XLA402", "loader2": "!XLA434", "step": ""}
    text = FINETUNE.replace("{start}", start)
    for name, mark in wanted.items():
        text = text.replace(f"{{{name}}}", mark)
    return text


@pytest.mark.parametrize(
    "start",
    [
        "parallel_state.initialize_model_parallel(tensor_model_parallel_size=8)",
        "parallel_state.initialize_model_parallel(config.tensor_parallel)",
        "nxd.parallel_layers.initialize_model_parallel(1, pipeline_model_parallel_size=4)",
        "nxd.neuronx_distributed_config(tensor_parallel_size=config.tensor_parallel)",
        "nxd.trainer.neuronx_distributed_config(pipeline_parallel_size=2)",
    ],
)
def test_gradients_of_different_parts_are_averaged(start):
    text = program(start)
    assert {item for item in found(text) if item[1] in ASKED} == set(marks(text))


@pytest.mark.parametrize(
    "start",
    [
        "parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)",
        "parallel_state.initialize_model_parallel()",
        "nxd.neuronx_distributed_config(tensor_parallel_size=1, pad_model=True)",
    ],
)
def test_whole_models_on_each_core_are_averaged_as_ever(start):
    text = program(start, divided=False)
    assert {item for item in found(text) if item[1] in ASKED} == set(marks(text))


STEP = """
import torch
import torch_xla.core.xla_model as xm
import neuronx_distributed as nxd
from neuronx_distributed.parallel_layers import parallel_state
from neuronx_distributed.parallel_layers.parallel_state import get_data_parallel_group as groups
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

def train(model, loader, args):
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=4)
    optimizer = {optimizer}
    for x in loader:
        model(x).sum().backward()
        {step}
"""


@pytest.mark.parametrize(
    ("optimizer", "step"),
    [
        (
            "torch.optim.SGD(model.parameters(), lr=0.1)",
            "xm.optimizer_step(optimizer, groups=groups(as_list=True))",
        ),
        ("torch.optim.SGD(model.parameters(), lr=0.1)", "optimizer.step()"),
        (
            "torch.optim.SGD(model.parameters(), lr=0.1)",
            "xm.optimizer_step(optimizer) if args.whole else optimizer.step()",
        ),
        (
            "nxd.initialize_parallel_optimizer(args.nxd, torch.optim.AdamW, model.parameters())",
            "xm.optimizer_step(optimizer)",
        ),
        (
            "ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)",
            "xm.optimizer_step(optimizer)",
        ),
    ],
)
def test_steps_that_reduce_otherwise_are_left_alone(optimizer, step):
    text = STEP.replace("{optimizer}", optimizer).replace("{step}", step)
    assert "XLA309" not in codes(text)


SHARDED = """
import torch_xla.core.xla_model as xm
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP

def train(net, make_optimizer, batches, args):
    model = FSDP(net)
    optimizer = make_optimizer(model.parameters())
    for at, batch in enumerate(batches):
        model(batch).sum().backward()
        {lines}
"""


@pytest.mark.parametrize(
    "lines",
    [
        "if (at + 1) % args.accumulate == 0:\n            xm.optimizer_step(optimizer)",
        "last = at % 4 == 3\n        if last:\n            xm.optimizer_step(optimizer)",
    ],
)
def test_accumulation_does_not_choose_between_roads(lines):
    assert "XLA309" in codes(SHARDED.replace("{lines}", lines))


@pytest.mark.parametrize(
    "lines",
    [
        "if args.whole:\n            xm.optimizer_step(optimizer)",
        "if (at + 1) % 2 == 0 and args.whole:\n            pass",
        "if args.whole: xm.optimizer_step(optimizer)\n        else: optimizer.step()",
    ],
)
def test_a_setting_chooses_between_roads(lines):
    assert "XLA309" not in codes(SHARDED.replace("{lines}", lines))
