"""Programs that train with timm's helpers, and what passes a checkpoint on.

All programs are invented. ``# !XLA303`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2
from timm.utils import dispatch_clip_grad
"""
START = 'if __name__ == "__main__":\n    xmp.spawn(main, args=(0.1,))\n'

PROGRAMS = {
    "XLA303: timm's clip": """
def main(index, limit):
    net = torch.nn.Linear(4, 4).to(xm.xla_device())
    adam = create_optimizer_v2(net, opt="adamw", lr=1e-3)
    for x, y in batches:
        net(x).sum().backward()
        dispatch_clip_grad(net.parameters(), value=limit)  # !XLA303
        xm.optimizer_step(adam)
""",
    "XLA303: timm's clip with a mode from outside": """
def main(index, cfg):
    net = torch.nn.Linear(4, 4).to(xm.xla_device())
    adam = create_optimizer_v2(net, opt="adamw", lr=1e-3)
    for x, y in batches:
        net(x).sum().backward()
        dispatch_clip_grad(net.parameters(), cfg.clip, mode=cfg.mode)  # !XLA303
        xm.optimizer_step(adam)
""",
    "XLA303: reduced before, and clipped by value": """
def main(index, limit):
    net = torch.nn.Linear(4, 4).to(xm.xla_device())
    adam = create_optimizer_v2(net, opt="adamw", lr=1e-3)
    for x, y in batches:
        net(x).sum().backward()
        xm.reduce_gradients(adam)
        dispatch_clip_grad(net.parameters(), value=limit)
        adam.step()
    for x, y in batches:
        net(x).sum().backward()
        dispatch_clip_grad(net.parameters(), limit, mode="value")
        xm.optimizer_step(adam)
""",
    "XLA305: an optimizer that is given the model": """
def main(index, limit):
    net = torch.nn.Linear(4, 4)
    adam = create_optimizer_v2(net, opt="adamw", lr=1e-3)  # !XLA305
    net.to(xm.xla_device())
""",
    "XLA305: groups that a helper makes of the model": """
def groups(net, decay):
    plain = [p for p in net.parameters() if p.ndim < 2]
    rest = [p for p in net.parameters() if p.ndim > 1]
    return [{"params": rest, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
def main(index, limit):
    net = torch.nn.Linear(4, 4)
    adam = torch.optim.AdamW(groups(net, 0.1), lr=1e-3)  # !XLA305
    net = net.to(xm.xla_device())
""",
    "XLA305: moved before, or by the helper": """
def build(net, rate):
    net.to(xm.xla_device())
    return torch.optim.AdamW(net.parameters(), lr=rate)
def main(index, limit):
    first = torch.nn.Linear(4, 4).to(xm.xla_device())
    one = create_optimizer_v2(first, opt="adamw", lr=1e-3)
    second = torch.nn.Linear(4, 4)
    two = build(second, 1e-3)
    second.to(xm.xla_device())
    third = torch.nn.Linear(4, 4)
    loss = torch.nn.MSELoss()
    three = create_optimizer_v2(first, opt="sgd", lr=1e-3)
    third.to(xm.xla_device())
""",
    "XLA402: timm's loader": """
def main(index, limit):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    data = create_dataset("", root="images", split="train", is_training=True)
    loader = create_loader(  # !XLA402
        data, (3, 224, 224), 64, is_training=True, use_prefetcher=False
    )
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA402: timm's loader that shares the samples out": """
def main(index, limit):
    device = xm.xla_device()
    dist.init_process_group("xla", init_method="xla://")
    net = torch.nn.Linear(4, 4).to(device)
    adam = torch.optim.Adam(net.parameters())
    data = create_dataset("", root="images", split="train", is_training=True)
    loader = create_loader(data, (3, 224, 224), 64, is_training=True, distributed=True)
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(x).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA721: what is passed on to torch.save": """
def save_on_master(*args, **kwargs):
    if xm.is_master_ordinal():
        torch.save(*args, **kwargs)  # !XLA721
def main(index, limit):
    net = torch.nn.Linear(4, 4).to(xm.xla_device())
    save_on_master({"net": net.state_dict(), "epoch": 3}, "last.pt")
""",
    "XLA208: CutMix in timm's Mixup": """
import argparse
from timm.data import Mixup
from timm.data.mixup import Mixup as Mixes
parser = argparse.ArgumentParser()
parser.add_argument("--mixup", type=float, default=0.8)
parser.add_argument("--cutmix", type=float, default=0.0)
parser.add_argument("--box", type=float, nargs="+", default=None)
opts = parser.parse_args()
def one_epoch(net, adam, batches, mix=None):
    for x, y in batches:
        if mix is not None:
            x, y = mix(x, y)  # !XLA208
        net(x).sum().backward()
        xm.optimizer_step(adam)
def main(index, limit):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 4).to(device)
    adam = create_optimizer_v2(net, opt="adamw", lr=1e-3)
    fed = pl.MpDeviceLoader(batches, device)
    mix = None
    if limit:
        mix = Mixup(mixup_alpha=opts.mixup, cutmix_alpha=1.0, num_classes=10)
    one_epoch(net, adam, fed, mix)
    alone = Mixup(mixup_alpha=opts.mixup, num_classes=10)
    off = Mixup(opts.mixup, opts.cutmix, opts.box, num_classes=10)
    boxes = Mixes(cutmix_minmax=(0.2, 0.8), num_classes=10)
    for x, y in fed:
        alone(x, y)
        off(x, y)
        x, y = boxes(x, y)  # !XLA208
        net(x).sum().backward()
        xm.optimizer_step(adam)
    for x, y in batches:
        x, y = boxes(x, y)
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam)
""",
    "XLA721: numbers, and what stayed on the host": """
def save_on_master(*args, **kwargs):
    if xm.is_master_ordinal():
        torch.save(*args, **kwargs)
def main(index, limit):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 4)
    save_on_master({"net": net.state_dict(), "epoch": 3}, "last.pt")
    save_on_master({"history": [1.0, 2.0]}, "history.pt")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_timm(name):
    program = HEAD + PROGRAMS[name] + START
    asked = name.partition(":")[0]
    told = {(row, code) for row, code in found(program) if code == asked}
    assert told == set(marks(program))


def test_plain_pytorch_with_timm_is_left_alone():
    program = HEAD + PROGRAMS["XLA402: timm's loader"]
    lines = [line for line in program.splitlines(keepends=True) if "torch_xla" not in line]
    text = "".join(lines).replace("pl.MpDeviceLoader(loader, device)", "loader")
    text = text.replace("xm.optimizer_step(adam)", "adam.step()").replace(
        "xm.xla_device()", '"cuda"'
    )
    assert codes(text) == []
