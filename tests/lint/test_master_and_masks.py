"""What only the master core runs, names that were never there, masks, clips and uploads.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

HEAD = """\
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
    "the master saves after steps that nothing ends": """\
HEAD
def save(path, net):
    xm.save(net.state_dict(), path)
def _mp_fn(index, batches, accum):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = nn.Linear(8, 8).to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = pl.MpDeviceLoader(batches, device)
    batch, step = iter(loader), 0
    while step < 1000:
        for _ in range(accum):
            net(next(batch)).sum().backward()
        xm.optimizer_step(adam)
        adam.zero_grad()
        step += 1
        if step % 100 == 0 and xm.is_master_ordinal():
            save("now.pt", net)  # !XLA405
    if xm.is_master_ordinal():
        save("last.pt", net)  # !XLA405
xmp.spawn(_mp_fn, args=(BATCHES, 4))
""",
    "master makes pictures with the model while the reduction is pending": """\
HEAD
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
def show(unet, step):
    pipe = StableDiffusionPipeline.from_pretrained(NAME, unet=unet).to(torch_xla.device())
    pipe(PROMPT).images[0].save(f"{step}.png")
def tensors(unet):
    pipe = StableDiffusionPipeline.from_pretrained(NAME, unet=unet).to(torch_xla.device())
    return pipe(PROMPT, output_type="latent").images
def _mp_fn(index, loader):
    unet = UNet2DConditionModel.from_pretrained(NAME).to(torch_xla.device())
    adam = torch.optim.Adam(unet.parameters())
    for step, (x, t) in enumerate(pl.MpDeviceLoader(loader, torch_xla.device())):
        adam.zero_grad()
        F.mse_loss(unet(x, t).sample, x).backward()
        xm.optimizer_step(adam)
        if step % 100 == 0 and xm.is_master_ordinal():
            tensors(unet)
        if step % 500 == 0 and xm.is_master_ordinal():  # !XLA425
            show(unet, step)
xmp.spawn(_mp_fn, args=(LOADER,))
""",
    "each core's own clock decides whether it meets the others": """\
HEAD
import time
def _mp_fn(index, hours):
    began = saved = time.time()
    for step in range(1000):
        over = hours and time.time() - began > hours * 3600
        if time.time() - saved > 600 or over:
            saved = time.time()
            xm.rendezvous("saved")  # !XLA405
        if step % 100 == 0:
            xm.rendezvous("hundred")
xmp.spawn(_mp_fn, args=(3,))
""",
    "eight shares": """\
HEAD
SHARES = 8
def _mp_fn(index, rows):
    mine = rows.shard(num_shards=SHARES, index=index)  # !XLA432
    ours = rows.shard(num_shards=xr.world_size(), index=xr.global_ordinal())
    first = rows.shard(num_shards=8, index=0)
    return mine, ours, first
xmp.spawn(_mp_fn, args=(ROWS,))
""",
    "master samples from the EMA while the reduction is pending": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    ema = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        flags.follow(ema, model)
        if step % 1000 == 0 and xm.is_master_ordinal():  # !XLA425
            picture = ema(torch.randn(4, 8, device=device)).cpu()
            flags.show(picture)
xmp.spawn(_mp_fn, args=(flags,))
""",
    "master evaluates with mark_step at the top of an endless loop": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.no_grad()
    def estimate():
        total = 0.0
        for k in range(20):
            x = flags.batch(k).to(device)
            total += net(x).mean().item()
            xm.mark_step()
        return total

    step = 0
    while step < flags.steps:
        if step % 100 == 0 and xm.is_master_ordinal():  # !XLA425
            print(estimate())
        loss = net(flags.batch(step).to(device)).mean()
        loss.backward()
        xm.mark_step()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        step += 1
xmp.spawn(_mp_fn, args=(flags,))
""",
    "master's helper ends the graph, all_reduce by hand": """\
HEAD
def preview(model, noise):
    with torch.no_grad():
        out = model(noise)
    torch_xla.sync()
    return out
def train(index, flags):
    device = torch_xla.device()
    xm.set_rng_state(0, device)
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = model(x).mean()
        loss.backward()
        xm.reduce_gradients(opt)
        opt.step()
        opt.zero_grad()
        if xr.global_ordinal() == 0:  # !XLA425
            if step % 500 == 499:
                preview(model, x)
torch_xla.launch(train, args=(flags,))
""",
    "the save behind a wait that ends nothing": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        if step % 50 == 0:
            torch_xla.sync()
        xm.wait_device_ops()  # !XLA114
        if step % 1000 == 0:
            if xm.is_master_ordinal():
                xm.save(model.state_dict(), "model.pt")  # !XLA405
xmp.spawn(_mp_fn, args=(flags,))
""",
    "a name that xla_model never had": """\
HEAD
def cores():
    return xm.xla_world_size()  # !XLA801
""",
    "a name that runtime never had": """\
HEAD
if xr.is_main_process():  # !XLA801
    print("here")
""",
    "a loader that parallel_loader never had": """\
HEAD
def batches(loader, device):
    return pl.XLADeviceLoader(loader, device)  # !XLA801
""",
    "imported, and never there": """\
from torch_xla.core.xla_model import is_main_ordinal  # !XLA801
print(is_main_ordinal())
""",
    "hasattr that is always false": """\
HEAD
def share(metrics):
    try:
        if hasattr(xm, "broadcast_object"):
            metrics = xm.broadcast_object(metrics, src=0)  # !XLA801
    except Exception:
        pass
    return metrics
""",
    "a mask that another joins": """\
HEAD
class Net(nn.Module):
    def forward(self, x, mask):
        empty = torch.all(x == 0, dim=-1)
        empty &= mask.cumsum(-1) > 3
        x[empty] = 0.0  # !XLA204
        return x
def fit(loader):
    device = torch_xla.device()
    model = Net().to(device)
    for x, mask in pl.MpDeviceLoader(loader, device):
        loss = model(x, mask).mean()
        loss.backward()
""",
    "a mask flattened, and a mask made empty": """\
HEAD
def step(model, x, y):
    keep = (y != -100).view(-1)
    loss = F.cross_entropy(model(x).flatten(0, 1)[keep], y.view(-1)[keep])  # !XLA202
    loss.backward()
def fit(model, loader):
    device = torch_xla.device()
    model = model.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        step(model, x, y)
        seen = torch.zeros(y.shape, dtype=torch.bool, device=device)
        seen |= y > 3
        y[seen] = 0  # !XLA204
""",
    "a clip before the step of a helper": """\
HEAD
def update(optimizer):
    xm.optimizer_step(optimizer)
    optimizer.zero_grad()
def _mp_fn(index, model, loader):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA303
        update(optimizer)
xmp.spawn(_mp_fn, args=(model, loader))
""",
    "a clip before the step of a module for XLA": """\
HEAD
import my_xla_utils as X
def _mp_fn(index, model, loader):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !XLA303
        X.optimizer_step(optimizer)
xmp.spawn(_mp_fn, args=(model, loader))
""",
    "uploads in both branches": """\
HEAD
def fit(model, optimizer, queue, steps):
    device = torch_xla.device()
    model = model.to(device)
    for step in range(steps):
        batch = queue.get_batch()
        if len(batch) == 2:
            x = batch[0].to(device)  # !XLA603
            loss = model(x).mean()
        else:
            a = batch[1].to(device)  # !XLA603
            loss = model(a).sum()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
""",
    "Fabric's to_device of what a generator makes": """\
import lightning as L
import torch
import torch_xla.core.xla_model as xm
def forever(dataset):
    while True:
        for sample in dataset:
            yield sample
def train(fabric, model, optimizer, dataset, steps):
    batches = forever(dataset)
    for step in range(steps):
        batch = next(batches)
        codes = fabric.to_device(batch)  # !XLA603
        loss = model(codes).mean()
        fabric.backward(loss)
        optimizer.step()
        xm.mark_step()  # !XLA802
fabric = L.Fabric(accelerator="tpu", devices=4)
fabric.launch(train)
""",
    "logging each step with optimum's TPU package": """\
from optimum.tpu import fsdp_v2
from transformers import TrainingArguments
from trl import SFTTrainer
fsdp_v2.use_fsdp_v2()
trainer = SFTTrainer(
    model=model,
    args=TrainingArguments(
        per_device_train_batch_size=32,
        logging_steps=1,  # !XLA905
        optim="adafactor",
        dataloader_drop_last=True,
    ),
)
trainer.train()
""",
    "each core stops by its own clock": """\
HEAD
import time
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begun = time.time()
    for epoch in range(flags.epochs):
        minutes = (time.time() - begun) / 60
        if minutes + 5 > flags.budget:
            break  # !XLA420
        for x in pl.MpDeviceLoader(flags.loader, device):
            loss = model(x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            xm.optimizer_step(opt)
            if time.perf_counter() > flags.deadline:
                break  # !XLA420
xmp.spawn(_mp_fn, args=(flags,))
""",
    "a device loader begun anew on each step": """\
HEAD
class Trainer:
    def __init__(self, model, optimizer, loader):
        self.device = torch_xla.device()
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.batches = pl.MpDeviceLoader(loader, self.device)
    def train(self, steps):
        for self.step in range(steps):
            self.one()
    def one(self):
        x, y = next(iter(self.batches))  # !XLA608
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
""",
    "hundreds of denoising steps in one graph": """\
HEAD
from diffusers import UNet2DModel, DDPMScheduler
device = torch_xla.device()
unet = UNet2DModel(sample_size=64).to(device)
scheduler = DDPMScheduler(num_train_timesteps=1000)
sample = torch.randn(4, 3, 64, 64, device=device)
for i, t in enumerate(scheduler.timesteps):  # !XLA301
    with torch.no_grad():
        noise = unet(sample, t).sample
    sample = scheduler.step(noise, t, sample).prev_sample
""",
    "the model of an object that nobody has read": """\
HEAD
from mine import Thing
def predict(loader):
    device = xm.xla_device()  # !XLA802
    thing = Thing("resnet")
    thing.model = thing.model.to(device)
    found = []
    with torch.no_grad():
        for names, images in loader:
            answer = F.softmax(thing.model(images.to(device)), dim=1)
            found.extend(answer.data.cpu().numpy()[:, 0])  # !XLA101
    return found
""",
    "noise that is no part of the batch": """\
HEAD
from einops import rearrange
from torch.utils.data import DataLoader
def fit(model, optimizer, dataset):
    device = torch_xla.device()
    model = model.to(device)
    loader = DataLoader(dataset, batch_size=8, drop_last=True)
    for image in loader:
        image = rearrange(image, "b h w c -> b c h w")
        noise = torch.randn(image.shape).to(device)
        image = image.to(device)  # !XLA603
        loss = F.mse_loss(model(image + noise), noise)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
""",
    "a trainer that another file starts on the cores": """\
HEAD
from torch.utils.data.distributed import DistributedSampler
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        return self.inner(x)
class Trainer:
    def __init__(self, loader):
        self.device = torch_xla.device()
        self.model = Net().to(self.device)  # !XLA426
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.batches = pl.MpDeviceLoader(loader, self.device)
        if xr.global_ordinal() == 0:
            print("ready")
    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.batches:
                loss = F.mse_loss(self.model(x), y)
                loss.backward()
                xm.optimizer_step(self.optimizer)
                self.optimizer.zero_grad()
""",
    "a plateau of a meter, in a class that another file starts": """\
HEAD
from utils import AverageMeter
class Fitter:
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
    def fit(self, loader, other, epochs):
        device = torch_xla.device()
        batches = pl.MpDeviceLoader(loader, device)
        others = pl.MpDeviceLoader(other, device)
        for epoch in range(epochs):
            self.train_one_epoch(batches)
            losses = self.validation(others)
            self.scheduler.step(metrics=losses.avg)  # !XLA419
            xm.master_print(losses.avg)
    def validation(self, batches):
        self.model.eval()
        losses = AverageMeter()
        for x, y in batches:
            with torch.no_grad():
                loss = F.mse_loss(self.model(x), y)
            losses.update(loss.detach().item(), len(x))
        return losses
    def train_one_epoch(self, batches):
        self.model.train()
        for x, y in batches:
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            xm.optimizer_step(self.optimizer)
            self.optimizer.zero_grad()
""",
    "a function that another file starts": """\
HEAD
def train(args, model, dataset, batches):
    device = torch_xla.device()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        if xm.is_master_ordinal():
            xm.rendezvous("here")  # !XLA405
""",
}

#: The same, and right: no rule of these has anything to say.
SOUND = {
    "the master saves after steps that end their graphs": """\
HEAD
def save(path, net):
    xm.save(net.state_dict(), path)
def _mp_fn(index, batches, accum):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = nn.Linear(8, 8).to(device)
    adam = torch.optim.Adam(net.parameters())
    loader = pl.MpDeviceLoader(batches, device)
    batch, step = iter(loader), 0
    while step < 1000:
        for _ in range(accum):
            net(next(batch)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
        adam.zero_grad()
        step += 1
        if step % 100 == 0 and xm.is_master_ordinal():
            save("now.pt", net)
    if xm.is_master_ordinal():
        save("last.pt", net)
xmp.spawn(_mp_fn, args=(BATCHES, 4))
""",
    "a clock that only says how long it took": """\
HEAD
import time
def _mp_fn(index):
    began = time.time()
    for step in range(1000):
        took = time.time() - began
        if step % 100 == 0:
            xm.rendezvous("hundred")
            xm.master_print(f"{took:.1f} s")
        slow = took > 600
        if slow:
            xm.master_print("slow")
xmp.spawn(_mp_fn)
""",
    "the step ends before the master samples": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        torch_xla.sync()
        if step % 1000 == 0 and xm.is_master_ordinal():
            flags.show(model(torch.randn(4, 8, device=device)).cpu())
xmp.spawn(_mp_fn, args=(flags,))
""",
    "barrier=True, and the step as a block": """\
HEAD
def one(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        x = flags.batch(step)
        loss = model(x).pow(2).mean()
        loss.backward()
        xm.optimizer_step(opt, barrier=True)
        if step % 10 == 0 and xm.is_master_ordinal():
            flags.show(model(x))
            torch_xla.sync()
    for step in range(100):
        with torch_xla.step():
            x = flags.batch(step)
            loss = model(x).pow(2).mean()
            loss.backward()
            xm.optimizer_step(opt)
        if step % 10 == 0 and xm.is_master_ordinal():
            flags.show(model(x))
            torch_xla.sync()
xmp.spawn(one, args=(flags,))
""",
    "a device loader ends the step before the top of the loop": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        if step % 1000 == 0 and xm.is_master_ordinal():
            flags.show(model(x).cpu())
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
xmp.spawn(_mp_fn, args=(flags,))
""",
    "the master writes what the reduction has no part in": """\
HEAD
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(pl.MpDeviceLoader(flags.loader, device)):
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        if step % 100 == 0 and xm.is_master_ordinal():
            print(step, flags.clock(), opt.param_groups[0]["lr"])
            model.train()
xmp.spawn(_mp_fn, args=(flags,))
""",
    "names that were there once, or are asked for": """\
HEAD
if hasattr(xm, "xrt_world_size"):
    cores = xm.xrt_world_size()
else:
    cores = xr.world_size()
xm.my_own_flag = True
""",
    "a number that is joined, and a mask that is asked": """\
HEAD
def fit(model, loader):
    device = torch_xla.device()
    model = model.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        index = torch.zeros(4, dtype=torch.long, device=device)
        index |= 3
        x[index] = 0
        model(x).mean().backward()
""",
    "a helper that reduces, clips and steps": """\
HEAD
def update(model, optimizer):
    xm.reduce_gradients(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
def _mp_fn(index, model, loader):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        update(model, optimizer)
xmp.spawn(_mp_fn, args=(model, loader))
""",
    "Fabric's own loaders": """\
import lightning as L
import torch_xla.core.xla_model as xm
def train(fabric, model, optimizer, loader):
    loader = fabric.setup_dataloaders(loader)
    for batch in loader:
        loss = model(fabric.to_device(batch)).mean()
        fabric.backward(loss)
        optimizer.step()
fabric = L.Fabric(accelerator="tpu", devices=4)
fabric.launch(train)
""",
    "cores that agree before they stop": """\
HEAD
import time
def _mp_fn(index, flags):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begun = time.time()
    for epoch in range(flags.epochs):
        late = xm.mesh_reduce("late", float(time.time() - begun > 3600), max)
        if late > 0:
            break
        for x in pl.MpDeviceLoader(flags.loader, device):
            loss = model(x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            xm.optimizer_step(opt)
        xm.master_print(time.time() - begun)
xmp.spawn(_mp_fn, args=(flags,))
""",
    "an iterator that is made once, and a look at the first batch": """\
HEAD
def fit(model, optimizer, loader, steps):
    device = torch_xla.device()
    model = model.to(device)
    loader = pl.MpDeviceLoader(loader, device)
    first = next(iter(loader))
    batches = iter(loader)
    for step in range(steps):
        x, y = next(batches)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
""",
    "denoising with an end in each turn, and on the host": """\
HEAD
from diffusers import UNet2DModel, DDPMScheduler
device = torch_xla.device()
unet = UNet2DModel(sample_size=64).to(device)
scheduler = DDPMScheduler(num_train_timesteps=1000)
sample = torch.randn(4, 3, 64, 64, device=device)
for i, t in enumerate(scheduler.timesteps):
    noise = unet(sample, t).sample
    sample = scheduler.step(noise, t, sample).prev_sample
    torch_xla.sync()
names = [str(t) for t in scheduler.timesteps]
""",
    "an evaluation that looks at one batch": """\
HEAD
def look(model, embed, writer, batches, device):
    model.eval()
    with torch.no_grad():
        for i, batch in enumerate(batches):
            x, y = batch[0]
            x = x.to(device)
            loss = F.mse_loss(model(embed(x)), y.to(device)).item()
            print(loss)
            break
""",
    "steps over a loader that the caller has put on the device": """\
HEAD
def train(model, optimizer, trainloader, device):
    model.train()
    for x, y in trainloader:
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer)
""",
    "a class without a sign of several cores": """\
HEAD
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        return self.inner(x)
class Trainer:
    def __init__(self, loader):
        self.device = torch_xla.device()
        self.model = Net().to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.batches = pl.MpDeviceLoader(loader, self.device)
    def fit(self):
        for x, y in self.batches:
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            xm.optimizer_step(self.optimizer)
            self.optimizer.zero_grad()
""",
    "a class that the parent makes, and one core's step": """\
HEAD
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
class Fitter:
    def __init__(self):
        self.net = Net()
        print("made once, before the cores start")
    def fit(self, loader, device):
        net = self.net.to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(loader, device):
            net(x).mean().backward()
            xm.optimizer_step(optimizer)
        xm.master_print("done")
def alone(model, optimizer, loader):
    device = torch_xla.device()
    for x in loader:
        model(x.to(device)).mean().backward()
        xm.optimizer_step(optimizer, barrier=True)
""",
    "a loop over epochs behind an eval() of another model": """\
HEAD
def fit(teacher, model, optimizer, batches, look, epochs):
    device = torch_xla.device()
    teacher.eval()
    for epoch in range(epochs):
        for x in pl.MpDeviceLoader(batches, device):
            loss = F.mse_loss(model(x), teacher(x))
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
""",
}
_ASKED = {
    *("XLA425", "XLA405", "XLA801", "XLA202", "XLA204", "XLA303", "XLA603", "XLA905"),
    *("XLA101", "XLA301", "XLA420", "XLA608", "XLA401", "XLA419", "XLA426"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_where_it_is_and_nowhere_else(name):
    program = FAULTS[name].replace("HEAD\n", HEAD)
    expected = marks(program)
    asked = {code for _, code in expected}
    assert expected == {(row, code) for row, code in found(program) if code in asked}


@pytest.mark.parametrize("name", SOUND)
def test_the_right_way_is_left_alone(name):
    assert not set(codes(SOUND[name].replace("HEAD\n", HEAD))) & _ASKED


MASTER_SCORES = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler
from meters import meter


def validate(model, loader, device):
    {validate}


def train(index, data, held):
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(10, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    sampler = DistributedSampler(data, xr.world_size(), xr.global_ordinal())
    loader = DataLoader(data, 32, sampler=sampler, drop_last=True)
    validation = DataLoader(held, 32, drop_last=True)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
        score = validate(model, validation, device){part}
        plateau.step(score)
        if score > 0.9:
            break


torch_xla.launch(train, args=(data, held))
"""
EARLY = """if not xm.is_master_ordinal():
        return 0.0
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
            total += len(y)
    return right / total"""
NUMBERS = """if xr.global_ordinal() == 0:
        with torch.no_grad():
            for x, y in loader:
                meter.update(model(x.to(device)), y)
        found = meter.compute()
    else:
        found = {"accuracy": 0.0, "loss": 0.0}
    return found"""
EVERYWHERE = NUMBERS.replace("return found", 'return xm.mesh_reduce("found", found, merge)')
NOTHING = EARLY.replace("return 0.0", "return None").replace("return right / total", "return None")


@pytest.mark.parametrize(
    ("validate", "part"), [(EARLY, ""), (NUMBERS, '["accuracy"]'), (NUMBERS, '.get("accuracy", 0)')]
)
def test_scores_that_only_the_master_has(validate, part):
    found = codes(MASTER_SCORES.replace("{validate}", validate).replace("{part}", part))
    assert {"XLA419", "XLA420"} <= set(found)
    assert "XLA402" not in found  # nobody else goes over those batches: that is XLA418's


@pytest.mark.parametrize("validate", [EVERYWHERE, NOTHING])
def test_scores_that_all_cores_have(validate):
    found = codes(MASTER_SCORES.replace("{validate}", validate).replace("{part}", ""))
    assert not {"XLA419", "XLA420"} & set(found)
