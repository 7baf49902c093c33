"""Batches that another file feeds, numbers that are drawn or counted, and code for other devices.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
"""

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "rows of replayed places": """\
HEAD
def replayed(cfg, ready_queue, rollouts):
    rows = [ready_queue.get() for _ in range(cfg.rows)]
    batch = {name: torch.stack([rollouts[name][r] for r in rows]) for name in rollouts}
    return {name: part.to(cfg.device) for name, part in batch.items()}  # !XLA603
def learn(cfg, policy, optimizer, ready_queue, rollouts):
    cfg.device = torch_xla.device()
    policy.to(cfg.device)
    while True:
        batch = replayed(cfg, ready_queue, rollouts)
        loss = policy(batch).mean()
        loss.backward()
        optimizer.step()
        xm.mark_step()
""",
    "an object is fed, and then asked for a step": """\
HEAD
class Restorer(BaseTask):
    def prepare(self):
        self.device = torch_xla.device()
        self.net = self.net.to(self.device)
    def set_input(self, pair):
        sharp = pair["sharp"].to(self.device)
        if random.random() < 0.3:  # !XLA207
            sharp = sharp.flip(-1)
        self.blurred = F.avg_pool2d(sharp, 3)
    def optimize_parameters(self):
        self.optimizer.zero_grad()
        loss = self.net(self.blurred).mean()
        loss.backward()
        self.optimizer.step()
        xm.mark_step()
        self.last = loss.item()  # !XLA101
""",
    "sizes that are drawn in one branch": """\
HEAD
def fit(net, dl, opt):
    device = xm.xla_device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        if y.shape[0] > 4:
            factor = np.random.uniform(0.5, 2.0)
        else:
            factor = 1.0
        z = F.interpolate(x, scale_factor=factor)  # !XLA208
        loss = net(z).mean()
        loss.backward()
        xm.optimizer_step(opt)
""",
    "sizes computed of what is drawn": """\
HEAD
def fit(net, dl, opt, side=64):
    device = xm.xla_device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        scale = random.choice([0.5, 1.0, 1.5])
        z = F.interpolate(x, size=(int(side * scale), int(side * scale)))  # !XLA208
        loss = net(z).mean()
        loss.backward()
        xm.optimizer_step(opt)
""",
    "a way of resizing that is drawn": """\
HEAD
def fit(net, dl, opt):
    device = xm.xla_device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        way = random.choice(["nearest", "bilinear"])
        loss = net(F.interpolate(x, size=(64, 64), mode=way)).mean()  # !XLA207
        loss.backward()
        xm.optimizer_step(opt)
""",
    "a function of another package that crops at random": """\
HEAD
from imaging import random_crop_pair
def fit(net, dl, opt):
    device = xm.xla_device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        x, y = random_crop_pair(x, y, 64)  # !XLA208
        loss = F.mse_loss(net(x), y)
        loss.backward()
        xm.optimizer_step(opt)
""",
    "a queue of keys with a place that moves on": """\
HEAD
class Contrast:
    def __init__(self, net, opt, size=4096):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.opt = opt
        self.keys = torch.zeros(size, 128, device=self.device)
        self.at = 0
    def train_step(self, x):
        k = self.net(x)
        n = k.shape[0]
        self.keys[self.at : self.at + n] = k.detach()  # !XLA205
        self.at = (self.at + n) % 4096
        loss = (k @ self.keys.T).logsumexp(1).mean()
        loss.backward()
        self.opt.step()
        torch_xla.sync()
""",
    "results put into a tensor by the number of the batch": """\
HEAD
@torch.no_grad()
def collect(net, dl):
    device = torch_xla.device()
    net.to(device).eval()
    rows = torch.zeros(1000, 10, device=device)
    for i, (x, y) in enumerate(pl.MpDeviceLoader(dl, device)):
        rows[i] = net(x).mean(0)  # !XLA205
    return rows
""",
    "parameters that are sorted into lists before the move": """\
HEAD
def main(net, dl):
    device = torch_xla.device()
    decayed, plain = [], []
    for name, p in net.named_parameters():
        if name.endswith("bias"):
            plain.append(p)
        else:
            decayed.append(p)
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=1e-3)  # !XLA305
    net = net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(opt)
        opt.zero_grad()
""",
    "the optimizer before a move that only XLA makes": """\
HEAD
def main(net, dl, use_xla):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)  # !XLA305
    if use_xla:
        net.to(xm.xla_device())
    for x, y in dl:
        loss = net(x).mean()
        loss.backward()
        opt.step()
        xm.mark_step()
""",
    "the norm in one method and the step in another": """\
HEAD
class Runner:
    def __init__(self, net, opt, dl):
        self.device = torch_xla.device()
        self.net = net.to(self.device)
        self.opt = opt
        self.dl = dl
    def limit(self):
        return torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)  # !XLA303
    def advance(self):
        xm.optimizer_step(self.opt)
        self.opt.zero_grad()
    def run(self):
        for x, y in pl.MpDeviceLoader(self.dl, self.device):
            loss = F.cross_entropy(self.net(x), y)
            loss.backward()
            self.limit()
            self.advance()
def work(rank, net, opt, dl):
    Runner(net, opt, dl).run()
def main(net, opt, dl):
    xmp.spawn(work, args=(net, opt, dl))
""",
    "spawned on XLA, and called where there is none": """\
HEAD
def work(index, net, dl):
    device = xm.xla_device()
    torch.manual_seed(0)
    net = net.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(dl, device):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(opt)
        print(loss.item())  # !XLA101
def main(net, dl, use_tpu):
    if use_tpu:
        xmp.spawn(work, args=(net, dl))
    else:
        work(0, net, dl)
""",
    "the master shows the text of a batch before the step has ended": """\
HEAD
def work(index, net, opt, dl, tokenizer):
    device = xm.xla_device()
    net.to(device)
    for step, batch in enumerate(pl.MpDeviceLoader(dl, device)):
        scores = net(batch)
        picked = scores.argmax(-1)
        scores.mean().backward()
        xm.optimizer_step(opt)
        if step % 500 == 0 and xm.is_master_ordinal():
            print(tokenizer.decode(picked))  # !XLA425
def main(net, opt, dl, tokenizer):
    torch_xla.launch(work, args=(net, opt, dl, tokenizer))
""",
    "only the master knows from which epoch to go on": """\
HEAD
def work(index, net, dl, args):
    device = xm.xla_device()
    torch.manual_seed(0)
    net = net.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    first = 0
    if xm.is_master_ordinal() and args.resume:
        first = torch.load(args.resume)["epoch"] + 1
    for epoch in range(first, args.epochs):  # !XLA420
        for x, y in pl.MpDeviceLoader(dl, device):
            loss = net(x).mean()
            loss.backward()
            xm.optimizer_step(opt)
            opt.zero_grad()
def main(net, dl, args):
    xmp.spawn(work, args=(net, dl, args))
""",
    "the time of a backward pass": """\
HEAD
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for x, y in dl:
        loss = F.mse_loss(net(x.to(device)), y.to(device))
        begun = time.perf_counter()
        loss.backward()
        print("backward", time.perf_counter() - begun)  # !XLA112
        opt.step()
        torch_xla.sync()
""",
    "the sounds of a batch go to the device one by one": """\
HEAD
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for x, sounds in pl.MpDeviceLoader(dl, device):
        parts = []
        for i in range(len(sounds)):
            sound = sounds[i][100:400]
            parts.append(torch.from_numpy(sound).to(device))  # !XLA604
        loss = net(x, torch.stack(parts)).mean()
        loss.backward()
        xm.optimizer_step(opt)
""",
    "pictures are made on the device of the model one by one": """\
HEAD
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for x, pictures in dl:
        x = x.to(device)
        given = []
        for picture in pictures:
            given.append(torch.as_tensor(picture, device=net.device).float())  # !XLA604
        loss = net(x, torch.stack(given)).mean()
        loss.backward()
        opt.step()
        torch_xla.sync()
""",
    "a discriminator's step between the forward and the backward pass of the generator": """\
HEAD
def fit(gen, critic, gen_opt, critic_opt, dl, is_tpu):
    device = torch_xla.device()
    gen.to(device)
    critic.to(device)
    for x, y in dl:
        made = gen(x.to(device))
        judged = critic(y.to(device)).mean() - critic(made.detach()).mean()
        judged.backward()
        if is_tpu:
            xm.optimizer_step(critic_opt, barrier=True)  # !XLA319
        fooled = critic(made).mean()
        whole = fooled + F.l1_loss(made, y.to(device))
        whole.backward()
        xm.optimizer_step(gen_opt, barrier=True)
""",
    "a mask that is inverted elsewhere": """\
HEAD
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for batch in pl.MpDeviceLoader(dl, device):
        going_on = (~batch["over"]).float()
        ended = batch["points"][batch["over"]]  # !XLA202
        loss = (net(batch) * going_on).mean() + ended.mean()
        loss.backward()
        xm.optimizer_step(opt)
""",
    "once in every single step": """\
HEAD
SHOW_EVERY = 1
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(dl, device)):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(opt)
        if step % SHOW_EVERY == 0:
            print(loss.item())  # !XLA101
""",
    "a metric that looks for labels it does not know": """\
import lightning.pytorch as pl
import torch.nn.functional as F
from torchmetrics.classification import MulticlassAccuracy
class Net(pl.LightningModule):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.right = MulticlassAccuracy(num_classes=10)
        self.tested = MulticlassAccuracy(num_classes=10, validate_args=True)
    def training_step(self, batch, index):
        x, y = batch
        z = self.body(x)
        self.right(z.argmax(1), y)  # !XLA109
        return F.cross_entropy(z, y)
    def test_step(self, batch, index):
        x, y = batch
        self.tested.update(self.body(x).argmax(1), y)  # !XLA109
pl.Trainer(accelerator="tpu", devices=8).fit(Net(body))
""",
    "Neuron's own module for Lightning": """\
import lightning.pytorch as pl
from neuronx_distributed.lightning import NeuronLTModule
class Net(NeuronLTModule):
    def training_step(self, batch, index):
        loss = self(batch).mean()
        self.log("loss", loss, prog_bar=True)  # !XLA903
        return loss
""",
    "each core draws its own weights where DDP is for GPUs": """\
HEAD
import torch.distributed as dist
import torch_xla.distributed.xla_backend
from nets import Small
from torch.nn.parallel import DistributedDataParallel
def main(use_xla, dl):
    dist.init_process_group("xla", init_method="xla://")
    rank = xr.global_ordinal()
    torch.manual_seed(7 + rank)
    net = Small(8)
    net = net.to(torch_xla.device())  # !XLA426
    if not use_xla:
        net = DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(dl, torch_xla.device()):
        loss = net(x).mean()
        loss.backward()
        xm.optimizer_step(opt)
""",
    "each batch of an evaluation is logged": """\
import lightning.pytorch as pl
class Net(pl.LightningModule):
    def validation_step(self, batch, index):
        loss = self(batch).mean()
        self.log("score", loss, on_step=True, on_epoch=True)  # !XLA903
pl.Trainer(accelerator="tpu", devices=8).fit(Net())
""",
    "classes and arguments that Lightning has removed": """\
import pytorch_lightning as pl
from pytorch_lightning.plugins import DDPPlugin, TPUSpawnPlugin  # !XLA901
trainer = pl.Trainer(accelerator="tpu", devices=8, auto_scale_batch_size="power")  # !XLA901
""",
}

#: The same words with nothing wrong.
HEALTHY = {
    "no scaler on XLA devices": """\
HEAD
def fit(net, dl, opt, use_tpu):
    scaler = None
    if use_tpu:
        device = torch_xla.device()
    else:
        device = torch.device("cuda")
        scaler = Scaler()
    net.to(device)
    for x, y in dl:
        loss = net(x.to(device)).mean()
        loss.backward()
        if scaler is not None:
            if scaler.found_inf(loss).item() > 0:
                continue
        opt.step()
        torch_xla.sync()
""",
    "a tensor or a number": """\
HEAD
def fit(net, dl, opt, device):
    device = torch_xla.device()
    net.to(device)
    seen = torch.zeros((), device=device)
    for x, y in pl.MpDeviceLoader(dl, device):
        loss = net(x).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0) if net.clips else 0.0
        if torch.is_tensor(norm):
            seen = seen + norm.detach()
        else:
            seen = seen + float(norm)
        opt.step()
    return seen
""",
    "once so many samples have been seen": """\
HEAD
def fit(net, dl, opt, every):
    device = torch_xla.device()
    net.to(device)
    done = shown = 0
    total = torch.zeros((), device=device)
    for x, y in pl.MpDeviceLoader(dl, device):
        loss = net(x).mean()
        loss.backward()
        opt.step()
        total += loss.detach()
        done += x.shape[0]
        if done - shown >= every:
            torch_xla.sync()
            print(total.item() / done)
            shown = done
""",
    "a queue that is made once": """\
HEAD
class Pool:
    def train_step(self, x):
        if not hasattr(self, "queue"):
            self.queue = torch.zeros(64, 8).to(torch_xla.device())
        loss = self.net(x, self.queue).mean()
        loss.backward()
        self.opt.step()
        torch_xla.sync()
""",
    "parts of a tensor by the number of the part": """\
HEAD
def fit(net, dl, opt, parts):
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        pieces = torch.split(x, 8)
        for i in range(parts):
            loss = net(pieces[i]).mean() / parts
            loss.backward()
        xm.optimizer_step(opt)
""",
    "what a model gives back under a key": """\
HEAD
def fit(net, dl, opt):
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(dl, device):
        given = net(x)
        states = given.get("states")
        loss = given["loss"]
        if states:
            loss = loss + sum(state.mean() for state in states)
        loss.backward()
        opt.step()
""",
    "a loader of its own for the last evaluation": """\
HEAD
def fit(net, dl, test, opt, epochs):
    device = torch_xla.device()
    net.to(device)
    for epoch in range(epochs):
        batches = pl.ParallelLoader(dl, [device]).per_device_loader(device)
        for x, y in batches:
            loss = net(x).mean()
            loss.backward()
            xm.optimizer_step(opt)
    batches = pl.ParallelLoader(test, [device]).per_device_loader(device)
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in batches:
            total += net(x).mean()
    return total.item()
""",
    "numbers that change go to the device, and what is put together": """\
HEAD
def fit(net, dl, opt, steps):
    device = torch_xla.device()
    net.to(device)
    table = [torch.tensor(row, device=device) for row in net.rows]
    for step, (x, y) in enumerate(pl.MpDeviceLoader(dl, device)):
        now = torch.tensor(step / steps, device=device)
        for factor in (1.0, 2.0):
            weight = torch.tensor(0.5, device=device)
            loss = net(x, now, table).mean() * weight * factor
            loss.backward()
        xm.optimizer_step(opt)
""",
    "all cores are told from which epoch to go on": """\
HEAD
def work(index, net, dl, args):
    device = xm.xla_device()
    torch.manual_seed(0)
    net = net.to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    first = 0
    if xm.is_master_ordinal() and args.resume:
        first = torch.load(args.resume)["epoch"] + 1
    first = xm.mesh_reduce("first", first, max)
    for epoch in range(first, args.epochs):
        for x, y in pl.MpDeviceLoader(dl, device):
            loss = net(x).mean()
            loss.backward()
            xm.optimizer_step(opt)
            opt.zero_grad()
def main(net, dl, args):
    xmp.spawn(work, args=(net, dl, args))
""",
    "a metric that is told not to look": """\
import lightning.pytorch as pl
import torch.nn.functional as F
from torchmetrics.classification import MulticlassAccuracy
class Net(pl.LightningModule):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.right = MulticlassAccuracy(num_classes=10, validate_args=False)
    def training_step(self, batch, index):
        x, y = batch
        z = self.body(x)
        self.right(z.argmax(1), y)
        return F.cross_entropy(z, y)
pl.Trainer(accelerator="tpu", devices=8).fit(Net(body))
""",
    "a discriminator's step where its graph holds both": """\
HEAD
def fit(gen, critic, gen_opt, critic_opt, dl):
    device = torch_xla.device()
    gen.to(device)
    critic.to(device)
    for x, y in dl:
        with torch.no_grad():
            made = gen(x.to(device))
        judged = critic(y.to(device)).mean() - critic(made).mean()
        judged.backward()
        xm.optimizer_step(critic_opt, barrier=True)
        made = gen(x.to(device))
        fooled = critic(made).mean()
        fooled.backward()
        xm.optimizer_step(gen_opt, barrier=True)
""",
    "a wrapper moves by itself": """\
HEAD
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
net = XlaFullyShardedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)))
solver = torch.optim.AdamW(net.parameters(), lr=1e-3)
device = torch_xla.device()
net = net.to(device)
F.cross_entropy(net(torch.ones(4, 8, device=device)), torch.ones(4).long().to(device)).backward()
solver.step()
torch_xla.sync()
""",
    "the plain checkpoint of other devices": """\
HEAD
class Keeper:
    def __init__(self, net, use_xla):
        self.use_xla = use_xla
        self.net = net.to(torch_xla.device()) if use_xla else net.cuda()
    def save(self, path):
        if self.use_xla:
            xm.save(self.net.state_dict(), path)
        else:
            self.save_plain(path)
    def save_plain(self, path):
        torch.save(self.net.state_dict(), path)
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = FAULTS[name].replace("HEAD\n", HEAD)
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    silent = {"XLA810", "XLA603", "XLA703", "XLA802"}
    assert not set(codes(HEALTHY[name].replace("HEAD\n", HEAD))) - silent
