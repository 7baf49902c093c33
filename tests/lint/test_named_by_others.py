"""What other files make, devices, modules and streams, and what is known of it here: told or not.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, told

XLA = """\
import os
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""
STREAM = (
    XLA
    + """
import webdataset as wds
def batches(urls, again):
    rows = wds.WebDataset(urls, resampled=again).shuffle(100).decode("pil").to_tuple("jpg", "cls")
    rows = rows.batched(32, partial=False)
    return wds.WebLoader(rows, batch_size=None, num_workers=2)
def _mp_fn(index, urls):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = pl.ParallelLoader(batches(urls, AGAIN), [device]).per_device_loader(device)AT
    for epoch in range(4):
        for step, (images, labels) in enumerate(loader):
            if step >= 1000:
                break
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            xm.optimizer_step(optimizer)
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=("rows-{000..100}.tar",))
"""
)
BUILT = (
    XLA
    + """
from project.models import build
def _mp_fn(index, rows):
    device = torch_xla.device()
    net = build("small", GIVEN)
    optimizer = torch.optim.AdamW(net.parameters())
    for step, (x, y) in enumerate(pl.MpDeviceLoader(rows, device)):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        xm.optimizer_step(optimizer)
    torch.save({"model": net.state_dict()}, f"net-{index}.pt")AT
"""
)
SAMPLED = (
    XLA
    + """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from project.data import Rows, make_loader
def _mp_fn(index, files):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = Rows(files)
    sampler = DistributedSampler(rows, num_replicas=xr.world_size(), rank=xr.global_ordinal())AT
    loader = make_loader(rows, batch_size=8, shuffle=FalseGIVEN)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            xm.optimizer_step(optimizer)
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(["a", "b"],))
"""
)
AGENT = """\
import torch
from project.HELPERS import get_device, mark_step
class Agent:
    def __init__(self, config, model):
        self.device = get_device()
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
    def update(self, batch):
        loss = self.model(batch.to(self.device)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        mark_step()
        return {"loss": loss.item()}AT
"""
SAVED = (
    XLA
    + """
from project.data import load
def _mp_fn(index, rows):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(torch.utils.data.DataLoader(rows, 8)):
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        if (step + 1) % 4 == 0:
            STEP
            optimizer.zero_grad()
    if xm.is_master_ordinal():
        xm.save(model.state_dict(), "net.pt")AT
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(load(),))
"""
)
PROGRAMS = {
    "XLA415 XLA608: a stream that ends": STREAM.replace("AGAIN", "False")
    .replace("AT", "  # !XLA415")
    .replace("                break", "                break  # !XLA608"),
    "XLA415 XLA608: shards that are drawn again and again never end": STREAM.replace(
        "AGAIN", "True"
    ).replace("AT", ""),
    "XLA721: a model whose maker is told the device": BUILT.replace(
        "GIVEN", "device=device"
    ).replace("AT", "  # !XLA721"),
    "XLA721: one of which nobody knows where it is": BUILT.replace("GIVEN", "width=8").replace(
        "AT", ""
    ),
    "XLA402: a sampler that no loader is given": SAMPLED.replace("GIVEN", "").replace(
        "AT", "  # !XLA402"
    ),
    "XLA402: one that a loader of another file is given": SAMPLED.replace(
        "GIVEN", ", sampler=sampler"
    ).replace("AT", ""),
    "XLA101: mark_step of a module of the project": AGENT.replace("HELPERS", "devices").replace(
        "AT", "  # !XLA101"
    ),
    "XLA101: that of HPUs": AGENT.replace("HELPERS", "hpu_tools").replace("AT", ""),
    "XLA801: a module that never was, by what everybody calls it": """\
import torch
import torch_xla.core.model as xm  # !XLA801
def main():
    print(xm.get_ordinal())  # !XLA801
""",
    "XLA406: a file that only the master has written": XLA
    + """
def _mp_fn(index):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    xm.save(model.state_dict(), "a.pt")
    model.load_state_dict(torch.load("a.pt"))  # !XLA406
    xm.save(model.state_dict(), "b.pt")
    xm.rendezvous("written")
    model.load_state_dict(torch.load("b.pt"))
    if xm.is_master_ordinal():
        xm.save(model.state_dict(), "c.pt")
        print(torch.load("c.pt"))
if __name__ == "__main__":
    xmp.spawn(_mp_fn)
""",
    "XLA706: a variable that only machines with GPUs have": XLA
    + """
def _mp_fn(index):
    device = torch_xla.device()
    print(index, os.environ["CUDA_VISIBLE_DEVICES"], device)  # !XLA706
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        print(os.environ["CUDA_VISIBLE_DEVICES"])
    print(os.environ.get("CUDA_VISIBLE_DEVICES"))
""",
    "XLA706: one that the program sets": XLA
    + """
os.environ["CUDA_VISIBLE_DEVICES"] = ""
def _mp_fn(index):
    print(index, os.environ["CUDA_VISIBLE_DEVICES"], torch_xla.device())
""",
    "XLA416 XLA101: a device loader and a GPU": XLA
    + """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # !XLA416
def train(loader, model, optimizer):
    for x, y in pl.ParallelLoader(loader, [device]).per_device_loader(device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        print(loss.item())  # !XLA101
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "XLA416: a device that may be one of XLA": XLA
    + """
device = torch_xla.device() if os.environ.get("TPU") else torch.device("cpu")
def train(loader):
    return pl.MpDeviceLoader(loader, device)
""",
    "XLA419 XLA420: meters of a star import, means of lists of lists": XLA
    + """
from torch.optim.lr_scheduler import ReduceLROnPlateau
from utils.imports import *
def validate(loader, model, device):
    losses = AverageMeter()
    scores = []
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        losses.update(loss.item(), 8)
        scores.append([loss.detach().cpu().numpy()])
    return losses.avg, np.mean(scores, axis=0)
def _mp_fn(index, rows, checks):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = ReduceLROnPlateau(optimizer)
    best = 9.0
    for epoch in range(9):
        for x, y in pl.MpDeviceLoader(rows, device):
            F.cross_entropy(model(x), y).backward()
            xm.optimizer_step(optimizer)
        loss, score = validate(pl.MpDeviceLoader(checks, device), model, device)
        plateau.step(loss)  # !XLA419
        if score[0] > best:
            break  # !XLA420
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(load(), load()))
""",
    "XLA405: a save of the master where nothing is reduced": SAVED.replace(
        "STEP", "optimizer.step()\n            torch_xla.sync()"
    ).replace("AT", ""),
    "XLA405 XLA721: flags and the master by functions of the program": XLA
    + """
def _should_use_xla():
    return os.environ.get("USE_TPU") == "1"
use_xla = _should_use_xla()
def is_main():
    return (not use_xla) or xm.is_master_ordinal()
def write(state, path):
    if use_xla:
        xm.save(state, path)
    else:
        torch.save(state, path)
def _mp_fn(index, steps):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        if step % 100 == 0:
            if is_main():
                write(model.state_dict(), "net.pt")
        model(torch.randn(4, 8, device=device)).sum().backward()
        if use_xla:
            xm.optimizer_step(optimizer)
            xm.mark_step()
        else:
            optimizer.step()
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=(1000,))
""",
    "XLA405: where a reduction may be pending": SAVED.replace(
        "STEP", "xm.optimizer_step(optimizer)"
    ).replace("AT", "  # !XLA405"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_people_write_it(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)
