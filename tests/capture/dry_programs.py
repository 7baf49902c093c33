"""Training programs for the tests of the dry run, as people write them."""

#: One core: a loop that uploads by hand, reads its loss now and then, and saves at the end.
PLAIN = """\
import sys
import torch
import torch_xla

rows = int(sys.argv[1])
device = torch_xla.device()
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(8 * 6 * 6, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(40):
    x = torch.randn(rows, 3, 8, 8).to(device)
    y = torch.zeros(rows, dtype=torch.long).to(device)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    if step % 10 == 0:
        print("step", step, "loss", loss.item(), flush=True)
torch.save(model.state_dict(), "weights.pt")
print("the end")
"""

#: Eight cores: a device loader, a checked loss, a mean over the cores, a checkpoint each epoch.
CORES = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def train(index):
    device = torch_xla.device()
    print("cores", xr.world_size(), flush=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(4096, 16), torch.zeros(4096).long())
    sampler = torch.utils.data.DistributedSampler(
        data, num_replicas=xr.world_size(), rank=xr.global_ordinal()
    )
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    for epoch in range(2):
        for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            if torch.isnan(loss):
                raise RuntimeError("the loss is not a number")
            if not torch.isfinite(loss).all():
                raise RuntimeError("the loss is infinite")
            if step % 10 == 0:
                xm.master_print("mean", xm.mesh_reduce("loss", loss.item(), lambda all: sum(all)))
        xm.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    xmp.spawn(train)
"""

#: Ends its step at another graph each time, because a Python number changes.
RESTLESS = """\
import torch
import torch_xla

device = torch_xla.device()
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(8 + step, 4).to(device)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    torch_xla.sync()
"""

#: Only ever evaluates.
STEPLESS = """\
import torch
import torch_xla

device = torch_xla.device()
model = torch.nn.Linear(4, 2).to(device)
for _ in range(3):
    model(torch.randn(8, 4).to(device))
    torch_xla.sync()
"""

#: Reads of every kind.
READS = """\
import torch
import torch_xla

device = torch_xla.device()
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = torch.tensor([1, 0, 1, 1]).to(device)
print("true", int(mask.sum()), (mask * 2).tolist(), flush=True)
for step in range(9):
    out = model(torch.ones(6, 4).to(device))
    loss = out.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    host = torch.zeros(6, 2)
    host.copy_(out)
    host[0] = out[0]
    print(
        "never", loss.item(), float(loss), f"{loss:.2f}", out.cpu().shape, out.to("cpu").dtype,
        len(out.tolist()), bool(loss > 0.5), host.sum().item(), loss, flush=True,
    )
"""

#: Mixed precision as torch_xla offers it.
AUTOCAST = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.amp import autocast

device = torch_xla.device()
print("on", xm.xla_device_hw(device).lower(), flush=True)
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(8, 4).to(device)
for step in range(9):
    optimizer.zero_grad()
    with autocast(device):
        out = model(x)
    print("kind", out.dtype, flush=True)
    out.float().sum().backward()
    optimizer.step()
    torch_xla.sync()
"""

#: Three tensors of one length for each of two backward passes, uploaded by hand.
ACCUMULATED = """\
import torch
import torch_xla

device = torch_xla.device()
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    for part in range(2):
        x, mask, y = (torch.ones(6, 4).to(device) for _ in range(3))
        places = (y[:, :1] > 0).long()
        (model(x * mask).gather(1, places).sum() + y.sum()).backward()
    optimizer.step()
    torch_xla.sync()
"""

#: A step that is not traced as a graph of one core: FIRST says why.
OTHERWISE = """\
import torch
import torch_xla
import torch_xla.runtime as xr
FIRST
device = torch_xla.device()
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    optimizer.zero_grad()
    model(torch.ones(6, 4).to(device)).sum().backward()
    optimizer.step()
    torch_xla.sync()
"""

#: Cheap to compile; its first argument is the batch.
LINEAR = """\
import sys
import torch
import torch_xla

device = torch_xla.device()
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    x = torch.zeros(int(sys.argv[1]), 128).to(device)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    torch_xla.sync()
torch.save(model.state_dict(), "weights.pt")
"""

#: What cores exchange before and in their step, all that a program may read of it at once.
EXCHANGE = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def train(index):
    device = torch_xla.device()
    start = torch.tensor([2.0, 3.0]).to(device)
    xm.collective_broadcast([start])
    total = xm.all_reduce("sum", start, scale=0.5)
    kept = [start.clone()]
    xm.all_reduce("max", kept)
    print("read", start.tolist(), total.tolist(), kept[0].tolist(), flush=True)
    print("gathered", xm.all_gather(start).tolist(), flush=True)
    print("met", len(xm.rendezvous("here", b"x")), flush=True)
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        optimizer.zero_grad()
        model(start).sum().backward()
        xm.optimizer_step(optimizer, barrier=True)


if __name__ == "__main__":
    xmp.spawn(train)
"""

#: Lightning broadcasts its settings before it trains.
LIGHTNING = """\
import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 4)

    def training_step(self, batch, number):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.randn(2048, 32), torch.zeros(2048).long())
    trainer = lightning.Trainer(
        accelerator="tpu", devices=8, max_epochs=1, enable_progress_bar=False, logger=False
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=16, drop_last=True))
"""
