"""Causes that programs showed which nobody had chosen: one program for each.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

XM = """\
import os

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""

PROGRAMS = {
    "XLA303 XLA426 XLA428 XLA429: cores of a program that asks for SPMD by mistake": f"""\
{XM}
os.environ["XLA_USE_SPMD"] = "1"  # !XLA429


def run(index, rows):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)  # !XLA426
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * xr.world_size())
    for images in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        model(images).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA303
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    xmp.spawn(run, args=(load(),))
""",
    "XLA319: a helper that ends the graph behind the model": f"""\
{XM}
def by_parts(model, parts):
    total = 0.0
    for part in parts:
        total = total + model(part).mean()
        torch_xla.sync()  # !XLA319
    return total


def whole(model, parts):
    loss = model(torch.stack(parts)).mean()
    torch_xla.sync()  # !XLA319
    return loss


def train(model, data, settings):
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = by_parts if settings.parts else whole
    for parts in data:
        optimizer.zero_grad()
        loss = step(model, parts)
        loss.backward()
        optimizer.step()
""",
    "XLA319: a helper that ends it before the model": f"""\
{XM}
def whole(model, parts):
    torch_xla.sync()
    return model(torch.stack(parts)).mean()


def train(model, data):
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parts in data:
        optimizer.zero_grad()
        whole(model, parts).backward()
        optimizer.step()
""",
    "XLA416: a loader in the place of the device": f"""\
{XM}
def train(model, rows):
    device = torch_xla.device()
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    loaders = pl.ParallelLoader(loader, [device])
    for images in loaders.per_device_loader(loader):  # !XLA416
        model(images)
    for images in loaders.per_device_loader(device):
        model(images)
""",
    "XLA436: a clip of what neuronx_distributed divides": f"""\
{XM}
from neuronx_distributed.parallel_layers import parallel_state


def train(net, images, optimizer):
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=xr.world_size())
    model = net.to(torch_xla.device())
    model(images).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA436
    optimizer.step()


def compare(layers):
    params = []
    for layer in layers:
        params.extend(layer.parameters())
    return torch.nn.utils.clip_grad_norm_(params, 1.0)
""",
    "XLA701: a lost variable that an attribute remembers": f"""\
{XM}
class Trainer:
    def __init__(self, net):
        self.net = net
        self.on_tpu = True if "COLAB_TPU_ADDR" in os.environ else False  # !XLA701
        self.said = "COLAB_TPU_ADDR" in os.environ

    def fit(self, data):
        if self.on_tpu:
            xmp.spawn(self.run, args=(data,))
        if self.said:
            print("on Colab")
""",
    "XLA101: parts of a program in a dictionary": f"""\
{XM}
def train(parts):
    parts["model"].train()
    for images, labels in parts["loader"]:
        parts["optimizer"].zero_grad()
        parts["loss_fn"](parts["model"](images), labels).backward()
        xm.optimizer_step(parts["optimizer"])


def evaluate(parts):
    found = []
    for images, labels in parts["loader"]:
        with torch.no_grad():
            outputs = parts["model"](images)
        found += outputs.cpu().numpy().tolist()  # !XLA101
        found += labels.cpu().numpy().tolist()  # !XLA101
    return found
""",
    "XLA420: a loop that the master alone leaves, of no training": f"""\
{XM}
def run(index, model, plan):
    device = torch_xla.device()
    for step in range(20):
        if xm.is_master_ordinal():
            rows = plan.look().to(device)
        else:
            rows = torch.empty((1, 32), dtype=torch.long, device=device)
        xm.collective_broadcast([rows])
        ids = model.generate(input_ids=rows)
        if xm.is_master_ordinal():
            text = plan.decode(ids)
            if not text:
                break  # !XLA420
            if text == "DONE":
                break  # !XLA420
        if step > plan.most:
            break
        xm.rendezvous("step")


if __name__ == "__main__":
    xmp.spawn(run, args=(make(), plan()))
""",
    "XLA405 XLA420: steps that a core skips by its own loss": f"""\
{XM}
def train(model, rows, optimizer, device):
    for images in rows:
        loss = model(images.to(device)).mean()
        if torch.isnan(loss).any() or torch.isinf(loss).any():
            print("skipped")
        else:
            loss.backward()
            xm.optimizer_step(optimizer)  # !XLA405


def train_on(model, rows, optimizer, device):
    for images in rows:
        loss = model(images.to(device)).mean()
        if not torch.isfinite(loss):
            continue  # !XLA420
        loss.backward()
        xm.optimizer_step(optimizer)


def train_together(model, rows, optimizer, device):
    for images in rows:
        loss = model(images.to(device)).mean()
        loss.backward()
        mean = xm.all_reduce(xm.REDUCE_SUM, loss.detach())
        if torch.isnan(mean):
            continue
        xm.optimizer_step(optimizer)


def run(index, model, rows, optimizer):
    device = torch_xla.device()
    train(model, rows, optimizer, device)
    train_on(model, rows, optimizer, device)
    train_together(model, rows, optimizer, device)


if __name__ == "__main__":
    torch_xla.launch(run, args=load())
""",
    "XLA417 XLA708: what collectives and process groups refuse": f"""\
{XM}
import torch.distributed as dist
import torch_xla.distributed.xla_backend


def run(index, model, rows):
    dist.init_process_group("xla")  # !XLA708
    total, found = 0.0, torch.zeros((), device=torch_xla.device())
    for images in rows:
        total += model(images).mean().item()
        found += model(images).mean()
    xm.all_reduce(xm.REDUCE_SUM, total)  # !XLA417
    xm.all_reduce(xm.REDUCE_SUM, torch.tensor(3.0))  # !XLA417
    xm.all_reduce(xm.REDUCE_SUM, found)
    xm.all_reduce(xm.REDUCE_SUM, [found])
    xm.rendezvous("said", payload=str(total))  # !XLA417
    xm.rendezvous("said", payload=str(total).encode())
    if index == 0:
        both = [load(), load()]
    else:
        both = [torch.empty((1, 4)), torch.empty((1, 4))]
    dist.broadcast(both[0], src=0)  # !XLA417
    dist.broadcast(torch.ones(3).to(torch_xla.device()), src=0)


if __name__ == "__main__":
    xmp.spawn(run, args=(make(), load()))
""",
    "XLA708: a process group that is told where the others are": f"""\
{XM}
import torch.distributed as dist

os.environ["MASTER_ADDR"] = "localhost"


def run(index):
    dist.init_process_group("xla", rank=index, world_size=8)


if __name__ == "__main__":
    xmp.spawn(run)
""",
    "XLA305 XLA408: what the cores are given": f"""\
{XM}
def run(index, settings, model, optimizer):
    model = model.to(torch_xla.device())  # !XLA305
    for images in settings.rows:
        model(images).mean().backward()
        xm.optimizer_step(optimizer)


def made_there(index, settings, model, optimizer):
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in settings.rows:
        model(images).mean().backward()
        xm.optimizer_step(optimizer)


def main(settings, rank=None):
    print(settings.epochs, torch_xla.device())


def start(settings, model, optimizer):
    xmp.spawn(run, args=(settings, model, optimizer))
    xmp.spawn(made_there, args=(settings, model, optimizer))
    xmp.spawn(main, args=(settings,))  # !XLA408
""",
    "XLA424: a wrapper for a Trainer": f"""\
{XM}
from transformers import DistilBertForMaskedLM, Trainer, TrainingArguments

held = xmp.MpModelWrapper(DistilBertForMaskedLM(load()))


def run(index):
    held.to(torch_xla.device())  # !XLA424
    trainer = Trainer(model=held, args=TrainingArguments(output_dir="x"))  # !XLA424
    trainer.train()


if __name__ == "__main__":
    xmp.spawn(run)
""",
    "XLA905: a Trainer over a stream": f"""\
{XM}
from datasets import load_dataset
from transformers import Trainer, TrainingArguments


def run(index, model):
    rows = load_dataset("rows", split="train", streaming=True)
    settings = TrainingArguments("x", per_device_train_batch_size=8, optim="adamw_torch")
    Trainer(model=model, args=settings, train_dataset=rows.map(load)).train()


if __name__ == "__main__":
    xmp.spawn(run, args=(make(),))
""",
    "XLA905: a Trainer over rows": f"""\
{XM}
from datasets import load_dataset
from transformers import Trainer, TrainingArguments


def run(index, model):
    rows = load_dataset("rows", split="train")
    settings = TrainingArguments("x", per_device_train_batch_size=8, optim="adamw_torch")  # !XLA905
    Trainer(model=model, args=settings, train_dataset=rows.map(load)).train()


if __name__ == "__main__":
    xmp.spawn(run, args=(make(),))
""",
    "XLA304: two optimizers that each end the graph": f"""\
{XM}
def train(model, rows, first, second):
    for images in rows:
        model(images).mean().backward()
        xm.optimizer_step(first, barrier=True)  # !XLA304
        xm.optimizer_step(second, barrier=True)
        model(images).sum().backward()
        xm.optimizer_step(first)
        xm.optimizer_step(second, barrier=True)
""",
    "XLA403: one epoch": f"""\
{XM}
def train(model, rows, optimizer):
    sampler = torch.utils.data.DistributedSampler(rows, xr.world_size(), xr.global_ordinal())
    loader = torch.utils.data.DataLoader(rows, sampler=sampler, batch_size=4, drop_last=True)
    epochs = 1
    for epoch in range(epochs):
        for images in loader:
            model(images).mean().backward()
            xm.optimizer_step(optimizer)
""",
    "XLA401: what a script asks of a module that it has loaded": f"""\
{XM}
import lightning as L


class Net(L.LightningModule):
    def training_step(self, batch, index):
        return self(batch).mean()

    def play(self, games):
        print("played", games)

    def tell(self, games):
        print("told", games)  # !XLA401

    def on_train_epoch_end(self):
        self.tell(3)


def main():
    trainer = L.Trainer(accelerator="tpu", devices=8)
    trainer.fit(Net())
    best = Net.load_from_checkpoint("x.ckpt")
    best.play(3)
""",
    "XLA721: a model that a class keeps, of a function that is not there": f"""\
{XM}
class Classifier:
    def __init__(self):
        self.net = self.build().to(torch_xla.device())
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def train(self, rows):
        for images in pl.MpDeviceLoader(rows, torch_xla.device()):
            self.optimizer.zero_grad()
            self.net(images).mean().backward()
            xm.optimizer_step(self.optimizer)

    def keep(self):
        torch.save(self.net.state_dict(), "net.pth")  # !XLA721
""",
    "XLA301: an evaluation of as many batches as a setting says, which the caller ends": f"""\
{XM}
class Tokens:
    def __init__(self, path):
        self.rows = np.memmap(path, dtype=np.uint16)

    def next_batch(self):
        places = np.random.randint(0, len(self.rows) - 9, 4)
        parts = np.stack([self.rows[at : at + 9] for at in places])
        return torch.from_numpy(parts[:, :-1]), torch.from_numpy(parts[:, 1:])


def evaluate(model, rows, batches, device):
    model.eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for _ in range(batches):  # !XLA301
            images, targets = rows.next_batch()
            output = model(images.to(device))
            total += nn.functional.cross_entropy(output, targets.to(device))
    torch_xla.sync()
    return total.item() / batches


def look(model, rows, device):
    with torch.no_grad():
        for _ in range(4):
            images, _ = rows.next_batch()
            model(images.to(device))
    torch_xla.sync()


def train(rows, steps, batches):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        images, targets = rows.next_batch()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images.to(device)), targets.to(device)).backward()
        optimizer.step()
        torch_xla.sync()
        if step % 100 == 0:
            evaluate(model, rows, batches, device)
            look(model, rows, device)


train(Tokens("rows.bin"), 1000, read_settings())
""",
    "XLA301: cores that train over several epochs of a plain loader": f"""\
{XM}
def one_epoch(model, optimizer, loader, device):
    for images in loader:
        optimizer.zero_grad()
        model(images.to(device)).mean().backward()
        xm.optimizer_step(optimizer)  # !XLA301


def run(index, rows, epochs):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    for epoch in range(epochs):
        one_epoch(model, optimizer, loader, device)
        torch_xla.sync()


xmp.spawn(run, args=load())
""",
    "XLA203: loaders that a function trains on, and that nothing names": f"""\
{XM}
from torch.utils.data import DataLoader


def train_epoch(model, optimizer, loader):
    for images in loader:
        optimizer.zero_grad()
        model(images).mean().backward()
        xm.optimizer_step(optimizer)


def either(model, optimizer, loader, train=True):
    for images in loader:
        loss = model(images).mean()
        if train:
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)


def run(index, model, optimizer, rows, more, old):
    device = torch_xla.device()
    for epoch in range(9):
        loader = DataLoader(rows, batch_size=32, num_workers=4)  # !XLA203
        parts = pl.ParallelLoader(loader, [device]).per_device_loader(device)
        train_epoch(model, optimizer, parts)
        others = DataLoader(more, batch_size=32, num_workers=4)
        either(model, optimizer, pl.MpDeviceLoader(others, device), train=False)


torch_xla.launch(run, args=load())
""",
    "XLA203: a loader that Lightning is given to train on": f"""\
{XM}
import lightning as L
from torch.utils.data import DataLoader


def main(net, rows, more):
    trainer = L.Trainer(accelerator="tpu", devices=8)
    trainer.fit(net, DataLoader(rows, 32), DataLoader(more, 32))  # !XLA203
    trainer.test(net, DataLoader(more, 32))
""",
    "XLA101: a model of a file that is not there, which Accelerate prepares": f"""\
{XM}
from accelerate import Accelerator
from nets import Generator


def train(rows):
    accelerator = Accelerator()
    net = Generator(3)
    optimizer = torch.optim.Adam(net.parameters())
    net, optimizer, rows = accelerator.prepare(net, optimizer, rows)
    for images in rows:
        out = net(torch.randn(4, 3, device=accelerator.device))
        right = (out.argmax(1) == 0).sum().item()  # !XLA101
        accelerator.backward(out.mean())
        optimizer.step()
        optimizer.zero_grad()
        print(right)
""",
    "XLA721: what FSDP of another package saves": f"""\
{XM}
from nets import Net, FSDP, Kind


def run(index, path):
    net = Net().to(torch_xla.device())
    optimizer = torch.optim.Adam(net.parameters())
    train(net, optimizer)
    if FSDP is not None:
        with FSDP.state_dict_type(net, Kind):
            torch.save({{"net": net.state_dict()}}, path)
    torch.save({{"net": net.state_dict()}}, path)  # !XLA721


def train(net, optimizer):
    for images in pl.MpDeviceLoader(load(), torch_xla.device()):
        optimizer.zero_grad()
        net(images).mean().backward()
        xm.optimizer_step(optimizer)
""",
    "XLA109 XLA101: images of the host, made of tensors of the device": f"""\
{XM}
from torch.optim.swa_utils import AveragedModel, update_bn
from torchvision import transforms
from torchvision.transforms.functional import to_pil_image


def draw(net, rows):
    net.to(torch_xla.device())
    image = transforms.ToPILImage()
    with torch.no_grad():
        for noise in pl.MpDeviceLoader(rows, torch_xla.device()):
            out = net(noise)
            to_pil_image(out[0]).save("first.png")  # !XLA101
            for each in out:
                image(each).save("each.png")  # !XLA109
            for each in net(noise).cpu():  # !XLA101
                image(each).save("host.png")


def average(net, loader, rows):
    averaged = AveragedModel(net.to(torch_xla.device()))
    update_bn(pl.MpDeviceLoader(loader, torch_xla.device()), averaged)  # !XLA109
    update_bn(rows, averaged.cpu())


def on_the_host(net, rows):
    averaged = AveragedModel(net.to(torch_xla.device()))
    averaged.to("cpu")
    update_bn(rows, averaged)
""",
    "XLA415: batches on the device that a cycle keeps": f"""\
{XM}
from itertools import cycle


def train(net, optimizer, rows, steps):
    net.to(torch_xla.device())
    batches = cycle(pl.MpDeviceLoader(rows, torch_xla.device()))  # !XLA415
    colours = cycle(["red", "blue"])
    for step, images, colour in zip(range(steps), batches, colours):
        optimizer.zero_grad()
        net(images).mean().backward()
        optimizer.step()
""",
    "XLA415: a cycle that another line replaces": f"""\
{XM}
from itertools import cycle


def train(net, optimizer, rows, steps):
    net.to(torch_xla.device())
    loader = pl.MpDeviceLoader(rows, torch_xla.device())
    batches = cycle(loader)
    for step in range(steps):
        if step % len(rows) == 0:
            batches = iter(loader)
        optimizer.zero_grad()
        net(next(batches)).mean().backward()
        optimizer.step()
""",
    "XLA104: what PyTorch asks of the types of its arguments": f"""\
{XM}
from torch.overrides import has_torch_function


def train(net, optimizer, rows):
    net.to(torch_xla.device())
    for images in pl.MpDeviceLoader(rows, torch_xla.device()):
        optimizer.zero_grad()
        out = net(images)
        if has_torch_function((images, out)):
            out = out * 2
        if out.mean() > 3:  # !XLA104
            out = out * 2
        out.mean().backward()
        optimizer.step()
""",
    "XLA705: samples of a data set that has no base class": f"""\
{XM}
class PairsDataset:
    def __getitem__(self, place):
        return torch.from_numpy(np.random.rand(8)), 1  # !XLA705


class Table:
    def __getitem__(self, place):
        return torch.from_numpy(np.random.rand(8))
""",
    "XLA426: what the master alone loads, of which the weights are sent": f"""\
{XM}
def run(index, build, rows, path):
    device = torch_xla.device()
    model = build().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    if xr.global_ordinal() == 0:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])  # !XLA426
    for param in model.parameters():
        xm.collective_broadcast([param.data], root_ordinal=0)
    for images in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        model(images).mean().backward()
        xm.optimizer_step(optimizer)


torch_xla.launch(run, args=load())
""",
    "XLA504: a batch that nothing moves to the model's device": f"""\
{XM}
def run(index, rows):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True)
    for images, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), targets).backward()  # !XLA504
        xm.optimizer_step(optimizer, barrier=True)


def moved(index, rows):
    device = torch_xla.device()
    model = nn.Linear(8, 8).to(device)
    loader = torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True)
    for images in loader:
        images = images.to(device)
        model(images)
        torch_xla.sync()


if __name__ == "__main__":
    torch_xla.launch(run, args=(load(),))
    torch_xla.launch(moved, args=(load(),))
""",
    "XLA420 XLA405: leaving by the master's own word, under its newer names": f"""\
{XM}
def run(index, model, optimizer, rows):
    is_chief = xr.global_ordinal() == 0
    for images in pl.MpDeviceLoader(rows, torch_xla.device()):
        optimizer.zero_grad()
        model(images).mean().backward()
        xm.optimizer_step(optimizer)
        if is_chief and os.path.exists("stop"):
            break  # !XLA420


torch_xla.launch(run, args=load())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_stands_at_its_lines(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


ACCUMULATED = """\
{first}
import torch_xla
import torch_xla.core.xla_model as xm
{second}

def run(index, model, optimizer, rows):
    model.to(torch_xla.device())
    for step, images in enumerate(rows):
        model(images).mean().backward()
        if (step + 1) % 4 == 0:
            xm.reduce_gradients(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()


{last}
"""
OWN = "from torch.nn.utils import clip_grad_norm_"
SCRIPT = 'if __name__ == "__main__":\n    torch_xla.launch(run, args=load())'


@pytest.mark.parametrize(
    ("first", "second", "last", "rows"),
    [
        (OWN, "", SCRIPT, 0),
        ("", OWN, SCRIPT, 1),
        (OWN, "", "torch_xla.launch(run, args=load())", 1),
    ],
)
def test_a_clip_that_is_imported_before_torch_xla_keeps_the_reduction(first, second, last, rows):
    """Measured on torch_xla 2.9; a module may be imported behind torch_xla, a script is not."""
    program = ACCUMULATED.format(first=first, second=second, last=last)
    assert len(told("XLA303: any", program)) == rows
