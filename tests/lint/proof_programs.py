"""Invented training programs full of what the fixes change, and a stand-in for tqdm.

``SLOW`` runs as it is, and must give the same numbers when it is fixed. ``OLD`` and ``CUDA`` do not
run (or train something else); fixed, they must give the numbers of a program that does.
"""

#: In place of the package, which is no dependency: what the programs use of it.
TQDM = """
class tqdm:
    def __init__(self, items, disable=False):
        self.items = items
        if not disable:
            print("a bar")

    def __iter__(self):
        return iter(self.items)

    def set_postfix(self, **values):
        print("bar", values)
"""

_COMMON = """
torch.manual_seed(0)
X = torch.randn(36, 8)
LABELS = X[:, :3].argmax(1)
Y = torch.nn.functional.one_hot(LABELS, 3).float()
START = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


class Samples(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index], Y[index], LABELS[index]


def show(model):
    weights = [round(float(p.abs().sum()), 4) for p in model.cpu().parameters()]
    print("weights", xr.global_ordinal(), weights, flush=True)
"""

SLOW = f"""
import copy
import gc
import os

os.environ.setdefault("XRT_WORKERS", "localservice:0")
os.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;10.0.0.2:8470"

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm
{_COMMON}

class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def train_epoch(epoch, model, loader, optimizer, device):
    total, peak, hits, seen = 0.0, 0.0, 0, 0
    meter = AverageMeter()
    kept = []
    attached = 0
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    bar = tqdm(loader)
    for step, (x, y, labels) in enumerate(bar):
        optimizer.zero_grad()
        out = model(x)
        out[out > 99.0] = 99.0
        known = y > 0.5
        half = torch.full((1,), 0.5).to(device)
        loss = F.mse_loss(out[known], y[known]) + half * F.huber_loss(out, y)
        loss = loss.sum()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        total += loss.item() * x.size(0)
        peak += float(loss)
        hits += (out.argmax(1) == labels).sum().item()
        seen += x.size(0)
        meter.update(loss.item(), x.size(0))
        kept.append(loss.item())
        attached += loss
        if step % 3 == 2:
            xm.master_print("due {{}} {{:.4f}}".format(
                epoch, loss.item()))
        counts = counts + torch.bincount(labels, minlength=3)
        print(f"epoch {{epoch}} step {{step}} loss {{total / seen:.5f}} hits {{hits / seen:.3f}}")
        bar.set_postfix(loss=f"{{loss:.4f}}")
        gc.collect()
    xm.master_print(
        "epoch", epoch, round(total / seen, 5), round(peak, 5), round(float(attached), 5),
        hits, counts.tolist(), round(meter.val, 5), round(meter.avg, 5),
        [round(value, 5) for value in kept],
    )
    return total / seen


def run(index):
    device = xm.xla_device()
    model = copy.deepcopy(START).to(device)
    dataset = Samples()
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=6, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        para_loader = pl.ParallelLoader(loader, [device])
        losses.append(
            train_epoch(epoch, model, para_loader.per_device_loader(device), optimizer, device)
        )
        xm.mark_step()
    np.save("losses.npy", np.array(losses))
    torch.save(model.state_dict(), "model.pt")
    xm.rendezvous("saved")
    show(model)


if __name__ == "__main__":
    torch_xla.launch(run)
"""

#: The same training, as a program of 2020 would have been found.
OLD = f"""
import os

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
{_COMMON}

WRAPPED = xmp.MpModelWrapper(START)


def train_epoch(model, loader, optimizer, criterion):
    total = 0.0
    for x, y, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        if torch.isnan(loss):
            continue
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def run(index):
    assert xm.get_xla_supported_devices("TPU")
    device = xm.xla_device()
    model = WRAPPED.to(device)
    criterion = torch.nn.MSELoss()
    loader = DataLoader(Samples(), batch_size=6, shuffle=True)
    checked = DistributedSampler(Samples(), num_replicas=8, rank=xm.get_ordinal())
    other = DistributedSampler(Samples())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=True)
    batches = pl.ParallelLoader(loader, [device]).per_device_loader(device)
    losses = []
    for epoch in range(3):
        losses.append(train_epoch(model, batches, optimizer, criterion))
    mean = np.mean(losses)
    total = torch.tensor(mean, device=device)
    if xm.is_master_ordinal():
        mean = xm.mesh_reduce("mean", mean, np.mean)
        print("losses", mean)
    values = torch.tensor(losses, device=device).numpy()
    xm.master_print("own", round(total.item(), 5), len(checked), len(other), values.shape)
    torch.save(model.state_dict(), "old.pt")
    xm.rendezvous("saved")
    state = torch.load("old.pt", map_location=device)
    model.load_state_dict(state)
    show(model)


if __name__ == "__main__":
    print("before", xm.xrt_world_size())
    xmp.spawn(run, args=(), nprocs=8, start_method="fork")
"""

#: The training of ``OLD`` as it is written today.
TODAY = f"""
import copy

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
{_COMMON}

def run(index):
    device = torch_xla.device()
    model = copy.deepcopy(START).to(device)
    sampler = DistributedSampler(
        Samples(), num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(Samples(), batch_size=6, sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for x, y, labels in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        losses.append(total.item() / len(loader))
    mean = float(np.mean(losses))
    xm.master_print("losses", xm.mesh_reduce("mean", mean, np.mean))
    xm.master_print("own", round(mean, 5), 18, 18, (3,))
    show(model)


if __name__ == "__main__":
    torch_xla.launch(run)
"""

#: One core; written for a GPU and moved half-way.
CUDA = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(32, 8)
y = x[:, :3].clone()


def main():
    device = torch_xla.device()
    torch.cuda.set_device(0)
    model = torch.nn.Linear(8, 3)
    model = torch.nn.DataParallel(model)
    model = model.cuda()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, drop_last=True, pin_memory=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    for epoch in range(2):
        total = 0.0
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        torch.cuda.synchronize()
        print("epoch", epoch, round(total / len(loader), 5))
    with torch.cuda.amp.autocast():
        half = model(x.to("cuda"))
    print("half", half.dtype)
    torch.save(model.state_dict(), "cuda.pt")
    print("weights", [round(float(p.abs().sum()), 4) for p in model.cpu().parameters()])


if __name__ == "__main__":
    main()
"""

#: One core, plain loader of tensors that are on the device already: nothing ends the graph.
ENDLESS = """
import torch
import torch_xla


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(4, 2).to(device)
    batches = [torch.randn(8, 4).to(device) for _ in range(6)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = torch.zeros((), device=device)
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print("total", round(total.item(), 5))


if __name__ == "__main__":
    main()
"""

#: No seed: each core draws its weights.
APART = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


def _mp_fn(index):
    device = torch_xla.device()
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Other data on each core: the cores stay equal only if the gradients are reduced.
    batches = [torch.full((4, 4), 1.0 + xr.global_ordinal())] * 2
    for images in pl.MpDeviceLoader(batches, device):
        optimizer.zero_grad()
        model(images).sum().backward()
        for p in model.parameters():
            p.grad.data.mul_(0.5)
        xm.optimizer_step(optimizer)
    optimizer.zero_grad()
    for step, images in enumerate(pl.MpDeviceLoader(batches * 2, device)):
        model(images).sum().backward()
        if (step + 1) % 2 == 0:
            xm.reduce_gradients(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    for step, images in enumerate(pl.MpDeviceLoader(batches * 2, device)):
        model(images).sum().backward()
        if (step + 1) % 2 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            xm.optimizer_step(optimizer)
            optimizer.zero_grad()
    cores = torch.ones((), device=device)
    xm.all_reduce(xm.REDUCE_SUM, cores)
    xm.master_print("cores", cores.item())
    print("weights", xr.global_ordinal(), [float(p.abs().sum()) for p in model.cpu().parameters()])


if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""

UNTRAINED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP


def gathered(core):
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        images = torch.full((4, 4), 0.5 * step + core).to(device)
        mean = xm.all_reduce("sum", model(images), scale=0.5)
        loss = (mean - 1).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        losses.append(loss.item())
    xm.master_print("gathered", losses)


def clipped(core):
    torch.manual_seed(0)
    device = torch_xla.device()
    model = FSDP(torch.nn.Linear(4, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        images = torch.full((4, 4), 0.5 * step + core).to(device)
        loss = model(images).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        torch_xla.sync()
        losses.append(xm.mesh_reduce("loss", loss.item(), lambda parts: sum(parts) / len(parts)))
    xm.master_print("clipped", losses)


def other_results():
    device = torch_xla.device()
    ids = torch.arange(4, device=device).expand(2, -1)
    ids[:, 2:] += 1
    mean = xm.all_reduce("sum", torch.tensor([8], device=device), scale=0.25)
    xm.master_print("written", ids[1].tolist(), "mean", mean.tolist())


def main(index):
    core = xr.global_ordinal()
    gathered(core)
    clipped(core)
    other_results()


if __name__ == "__main__":
    torch_xla.launch(main)
"""
