"""Programs of the kinds that people ask for help with: they hang, recompile or learn nothing.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

from xladoctor.lint import engine
from xladoctor.lint.sources import Source

XM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, IterableDataset
"""
STEP = """\
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
"""
BY_HAND = f"""\
{XM}
from work import data, Net
device = torch_xla.device()
net = Net().to(device)
adam = torch.optim.Adam(net.parameters())
loader = DataLoader(data, batch_size=8, drop_last=True)
"""
DRAWING = f"""\
{XM}
from nets import Generator
device = torch_xla.device()
paint = Generator().to(device)
"""
TRAINER = """\
import torch_xla
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments
)
device = torch_xla.device()
tok = AutoTokenizer.from_pretrained("gpt2")
texts = load_dataset("rhymes", split="train")
"""
SHARDED = """\
import numpy as np
import torch
import torch_xla
import torch_xla.runtime as xr
import torch_xla.distributed.spmd as xs
"""


def _meshed(before="", first="", whole="", ignored=""):
    """A program with a mesh whose cores are processes; what stands before and in their function."""
    return f"""\
{XM}
import torch_xla.distributed.spmd as xs
{before}def each(index, rows):
{first}    net = torch.nn.Linear(8, 8).to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    mesh = xs.Mesh(range(xr.global_runtime_device_count()), (8, 1), ("data", "model"))
    loader = DataLoader(rows, batch_size=8, drop_last=True){whole}
    feed = pl.MpDeviceLoader(
        loader,
        torch_xla.device(),
        input_sharding=xs.ShardingSpec(mesh, ("data", None)),{ignored}
    )
    for batch in feed:
        adam.zero_grad()
        net(batch).mean().backward()
        xm.optimizer_step(adam)
torch_xla.launch(each, args=(torch.randn(64, 8),))
"""


#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA305: a model and an optimizer of the file, and what each core starts with": f"""\
{XM}
from nets import Net
net = Net()
held = xmp.MpModelWrapper(net)
adam = torch.optim.Adam(net.parameters(), lr=1e-3)  # !XLA305
def each(index, flags):
    device = xm.xla_device()
    mine = held.to(device)
    for x, y in pl.MpDeviceLoader(batches, device):
        adam.zero_grad()
        mine(x, y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(each, args=({{}},), start_method="fork")
""",
    "XLA305: both handed to each core": f"""\
{XM}
from nets import Net
def each(index, net, adam):
    device = xm.xla_device()
    net.to(device)
{STEP}
def main():
    net = Net()
    adam = torch.optim.Adam(net.parameters())  # !XLA305
    torch_xla.launch(each, args=(net, adam))
main()
""",
    "XLA305: the file's own names in a function that it calls": f"""\
{XM}
from nets import Net
net = Net()
adam = torch.optim.Adam(net.parameters())  # !XLA305
def train():
    device = xm.xla_device()
    net.to(device)
{STEP}
train()
""",
    "XLA305: each core makes an optimizer of its own, or has names of its own": f"""\
{XM}
from nets import Net
net = Net()
adam = torch.optim.Adam(net.parameters())
def each(index):
    device = xm.xla_device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
{STEP}
def other(index):
    device = xm.xla_device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
{STEP}
xmp.spawn(each)
xmp.spawn(other)
""",
    "XLA315: a window of the program's own keeps numbers, a list keeps the history": f"""\
{XM}
from work import Net, batches
class Window:
    def __init__(self, size, device):
        self.kept = torch.zeros(size, device=device)
        self.at = 0
    def append(self, loss):
        with torch.no_grad():
            self.kept[self.at] = loss  # !XLA205
        self.at = (self.at + 1) % len(self.kept)
device = torch_xla.device()
net = Net().to(device)
adam = torch.optim.Adam(net.parameters())
window, losses = Window(50, device), []
for x, y in pl.MpDeviceLoader(batches, device):
    adam.zero_grad()
    loss = net(x, y)
    loss.backward()
    xm.optimizer_step(adam)
    window.append(loss)
    losses.append(loss)  # !XLA315
""",
    "XLA205: a ring that is made where its first value is": f"""\
{XM}
from work import Net, batches
class Ring:
    def __init__(self, size):
        self.size, self.kept, self.at = size, None, 0
    def push(self, value):
        if self.kept is None:
            self.kept = torch.zeros(self.size, *value.shape, device=value.device)
        self.kept[self.at] = value  # !XLA205
        self.at += 1
        self.at = self.at % self.size
device = torch_xla.device()
net = Net().to(device)
adam = torch.optim.Adam(net.parameters())
ring = Ring(32)
for x, y in pl.MpDeviceLoader(batches, device):
    adam.zero_grad()
    loss = net(x, y)
    loss.backward()
    xm.optimizer_step(adam)
    ring.push(loss.detach())
""",
    "XLA205: a place that is searched on the device and read": f"""\
{XM}
from nets import Denoiser
device = torch_xla.device()
net = Denoiser().to(device).eval()
times = torch.linspace(999, 0, 50).to(device)
sigmas = torch.linspace(14, 0, 51).to(device)
x = torch.randn(1, 4, 64, 64).to(device)
with torch.no_grad():
    for t in times:
        at = (times == t).nonzero().item()
        x = net(x, t) * sigmas[at]  # !XLA205
        torch_xla.sync()
""",
    "XLA301: pictures that are drawn and fetched one after the other": f"""\
{DRAWING}
@torch.no_grad()
def pictures(count):
    out = []
    for _ in range(count):  # !XLA301
        noise = torch.randn(16, 128, device=device)
        out.append(paint(noise).cpu())
    return out
""",
    "XLA301: sheets of pictures": f"""\
{DRAWING}
def sheets(count, rows):
    for sheet in range(count):
        found = []
        for row in range(rows):  # !XLA301
            with torch.no_grad():
                found.append(paint(torch.randn(8, 128, device=device)).cpu())
        save(sheet, torch.cat(found))
""",
    "XLA301: products that are timed": f"""\
{DRAWING}
for _ in range(20):  # !XLA301
    a = torch.rand(64, 64, device=device)
    print(float((a @ a).sum()))
""",
    "XLA301: tokens that are drawn until the last": f"""\
{DRAWING}
def write(tokens):
    ids = tokens.to(device)
    while True:  # !XLA301
        nxt = torch.multinomial(paint(ids).softmax(-1), 1)
        ids = torch.cat([ids[:, 1:], nxt], 1)
        if nxt.item() == 2:
            return ids
""",
    "XLA301: drawn on the host, ended, drawn once, or a few times": f"""\
{DRAWING}
def host(count):
    for _ in range(count):
        paint(torch.randn(16, 128).to(device)).cpu()
def ended(count):
    for _ in range(count):
        paint(torch.randn(16, 128, device=device)).cpu()
        torch_xla.sync()
def drawn_before(count):
    noise = torch.randn(16, 128, device=device)
    for _ in range(count):
        paint(noise).cpu()
def few():
    for _ in range(3):
        paint(torch.randn(16, 128, device=device)).cpu()
def seldom(count):
    for i in range(count):
        picture = paint(torch.randn(16, 128, device=device))
        if i % 100 == 0:
            picture.cpu()
""",
    "XLA301: a few pictures after each epoch of a device loader": f"""\
{DRAWING}
def fit(net, adam, batches, epochs):
    for epoch in range(epochs):
        for x, y in pl.MpDeviceLoader(batches, device):
            adam.zero_grad()
            net(x, y).backward()
            xm.optimizer_step(adam)
        for _ in range(8):
            paint(torch.randn(16, 128, device=device)).cpu()
""",
    "XLA212: the graph of several batches": f"""\
{BY_HAND}
def summed(k):
    for i, (x, y) in enumerate(loader):
        (net(x.to(device), y.to(device)) / k).backward()
        if (i + 1) % k == 0:
            adam.step()
            torch_xla.sync()  # !XLA212
            adam.zero_grad()
def with_barrier(k):
    for i, (x, y) in enumerate(loader):
        (net(x.to(device), y.to(device)) / k).backward()
        if (i + 1) % k == 0:
            xm.optimizer_step(adam, barrier=True)  # !XLA212
            adam.zero_grad()
def once_in_a_hundred():
    for i, (x, y) in enumerate(loader):
        adam.zero_grad()
        net(x.to(device), y.to(device)).backward()
        adam.step()
        if i % 100 == 0:
            xm.mark_step()  # !XLA212
def gone_on(k):
    for i, (x, y) in enumerate(loader):
        (net(x.to(device), y.to(device)) / k).backward()
        if (i + 1) % k != 0:
            continue
        adam.step()
        torch_xla.sync()  # !XLA212
        adam.zero_grad()
""",
    "XLA212: each batch has its end": f"""\
{BY_HAND}
def by_the_loader(k):
    for i, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        (net(x, y) / k).backward()
        if (i + 1) % k == 0:
            xm.optimizer_step(adam, barrier=True)
            adam.zero_grad()
def each(k):
    for i, (x, y) in enumerate(loader):
        (net(x.to(device), y.to(device)) / k).backward()
        if (i + 1) % k == 0:
            adam.step()
            adam.zero_grad()
        torch_xla.sync()
def before(k):
    for i, (x, y) in enumerate(loader):
        (net(x.to(device), y.to(device)) / k).backward()
        torch_xla.sync()
        if (i + 1) % k == 0:
            adam.step()
            adam.zero_grad()
            torch_xla.sync()
""",
    "XLA405: held back twice, and never released": f"""\
{XM}
def twice(index):
    if not xm.is_master_ordinal():
        xm.rendezvous("data")  # !XLA405
    fetch()
    if not xm.is_master_ordinal():
        xm.rendezvous("data")  # !XLA405
def by_number(index):
    if index != 0:
        xm.rendezvous("data")  # !XLA405
    fetch()
    if index != 0:
        xm.rendezvous("data")  # !XLA405
def the_master(index):
    if xm.is_master_ordinal():
        xm.rendezvous("data")  # !XLA405
    fetch()
    if xm.is_master_ordinal():
        xm.rendezvous("data")  # !XLA405
def right(index):
    if not xm.is_master_ordinal():
        xm.rendezvous("data")
    fetch()
    if xm.is_master_ordinal():
        xm.rendezvous("data")
def each(index):
    twice(index)
    by_number(index)
    the_master(index)
    right(index)
xmp.spawn(each)
""",
    "XLA407: what asks for the device when it is made": f"""\
{XM}
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments
helper = Accelerator()  # !XLA407
settings = TrainingArguments(output_dir="out")  # !XLA407
def each(index):
    print(index)
if __name__ == "__main__":
    xmp.spawn(each)
""",
    "XLA407: before a notebook's launcher": """\
import torch_xla.core.xla_model as xm
from accelerate import Accelerator, notebook_launcher
helper = Accelerator()  # !XLA407
def each():
    device = xm.xla_device()
notebook_launcher(each, num_processes=8)
""",
    "XLA407: on the host, on each core, or in one process": f"""\
{XM}
from accelerate import Accelerator, notebook_launcher
from transformers import TrainingArguments
host = Accelerator(cpu=True)
slow = TrainingArguments(output_dir="out", use_cpu=True)
def each(index):
    helper = Accelerator()
xmp.spawn(each)
""",
    "XLA407: one process of a notebook's launcher": """\
import torch_xla.core.xla_model as xm
from accelerate import Accelerator, notebook_launcher
helper = Accelerator()
def each():
    device = xm.xla_device()
notebook_launcher(each, num_processes=1)
""",
    "XLA402: a stream that each core reads from its beginning": f"""\
{XM}
class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path
    def __iter__(self):
        with open(self.path) as file:
            for line in file:
                yield encode(line)
class Share(IterableDataset):
    def __init__(self, path):
        self.path, self.rank, self.world = path, xr.global_ordinal(), xr.world_size()
    def __iter__(self):
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number % self.world == self.rank:
                    yield encode(line)
class Noise(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(3, 32, 32), torch.randint(10, ())
def each(index, net):
    device = xm.xla_device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    lines = DataLoader(Lines("a.txt"), batch_size=8, drop_last=True)  # !XLA402
    shares = DataLoader(Share("a.txt"), batch_size=8, drop_last=True)
    noise = DataLoader(Noise(), batch_size=8, drop_last=True)
    for batches in (lines, shares, noise):
        pass
    for x, y in pl.MpDeviceLoader(lines, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
    for x, y in pl.MpDeviceLoader(shares, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
    for x, y in pl.MpDeviceLoader(noise, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
xmp.spawn(each, args=(make(),))
""",
    "XLA203: rows of tf.data, of which those for training begin again for ever": f"""\
{XM}
import tensorflow as tf
class Again(IterableDataset):
    def __init__(self, path):
        self.rows = tf.data.TFRecordDataset([path]).repeat().shuffle(500)
    def __iter__(self):
        yield from self.rows
class Once(IterableDataset):
    def __init__(self, path):
        self.rows = tf.data.TFRecordDataset([path]).repeat(3).shuffle(500)
    def __iter__(self):
        yield from self.rows
def each(index, net):
    device = xm.xla_device()
    net.to(device)
    adam = torch.optim.Adam(net.parameters())
    again = DataLoader(Again(f"{{index}}.rows"), batch_size=8)
    once = DataLoader(Once(f"{{index}}.rows"), batch_size=8)  # !XLA203
    for x, y in pl.MpDeviceLoader(again, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
    for x, y in pl.MpDeviceLoader(once, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
xmp.spawn(each, args=(make(),))
""",
    "XLA209: texts that are tokenized as long as they are": f"""\
{TRAINER}
texts = texts.map(lambda rows: tok(rows["text"]), batched=True)
collate = DataCollatorForLanguageModeling(tok, mlm=False)  # !XLA209
""",
    "XLA209: texts that are cut into blocks": f"""\
{TRAINER}
def encode(rows):
    return tok(rows["text"])
def group_texts(rows):
    whole = sum(rows["input_ids"], [])
    return {{"input_ids": [whole[i : i + 128] for i in range(0, len(whole) - 127, 128)]}}
texts = texts.map(encode, batched=True).map(group_texts, batched=True)
collate = DataCollatorForLanguageModeling(tok, mlm=False)
""",
    "XLA209: texts that are padded": f"""\
{TRAINER}
def encode(rows):
    return tok(rows["text"], padding="max_length", truncation=True, max_length=128)
texts = texts.map(encode, batched=True)
collate = DataCollatorForLanguageModeling(tok, mlm_probability=0.15)
""",
    "XLA429: shardings, and nothing that turns SPMD on": f"""\
{SHARDED}
cores = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(cores), (cores,), ("data",))
x = torch.randn(64, 4).to(torch_xla.device())
xs.mark_sharding(x, mesh, ("data", None))  # !XLA429
""",
    "XLA429 XLA402: a mesh of cores that are processes, and nothing that turns SPMD on": _meshed(
        whole="  # !XLA402", ignored="  # !XLA429"
    ),
    "XLA429 XLA402: a mesh, and SPMD is on": _meshed(first="    xr.use_spmd()\n"),
    "XLA429 XLA402: a mesh, and a helper that nobody has read": _meshed(
        before="from own import start\nstart()\n"
    ),
    "XLA429 XLA402: a mesh, and a comment that says how it is started": _meshed(
        before="# XLA_USE_SPMD=1 python train.py\n"
    ),
    "XLA425 XLA429: one host saves shards, and evaluations are sharded nowhere": f"""\
{XM}
import torch_xla.distributed.spmd as xs
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)
class Tuner:
    def __init__(self, net):
        xr.use_spmd()
        self.device = xm.xla_device()
        self.mesh = xs.Mesh(range(8), (8, 1), ("fsdp", "model"))
        self.net = FSDPv2(net.to(self.device), mesh=self.mesh)
        self.adam = torch.optim.Adam(self.net.parameters())
    def train(self, rows, held):
        spec = xs.ShardingSpec(self.mesh, ("fsdp", None))
        plain = DataLoader(rows, batch_size=8, drop_last=True)
        for step, batch in enumerate(pl.MpDeviceLoader(plain, self.device, input_sharding=spec)):
            self.adam.zero_grad()
            self.net(batch).loss.backward()
            self.adam.step()
            if step % 100 == 0:
                self.evaluate(DataLoader(held, batch_size=8, drop_last=True))
                self.score(DataLoader(held, batch_size=8, drop_last=True))
                if xr.process_index() == 0:
                    self.save(step)  # !XLA425
    def evaluate(self, held):
        with torch.no_grad():
            for batch in held:
                self.net(batch.to(self.device))  # !XLA429
                torch_xla.sync()
    def score(self, held):
        with torch.no_grad():
            for batch in held:
                batch = batch.to(self.device)
                xs.mark_sharding(batch, self.mesh, ("fsdp", None))
                self.net(batch)
                torch_xla.sync()
    def save(self, step):
        torch.save(self.net.state_dict(), f"{{step}}.pt")
Tuner(make()).train(ROWS, HELD)
""",
    "XLA429: a setting of the Trainer, and nothing that turns SPMD on": f"""\
{TRAINER}
sharding = {{
    "transformer_layer_cls_to_wrap": ["GPT2Block"],
    "xla": True,
    "xla_fsdp_v2": True,  # !XLA429
}}
settings = TrainingArguments(output_dir="out", fsdp="full_shard", fsdp_config=sharding)
""",
    "XLA429: turned on, or a helper that nobody has read may": f"""\
{SHARDED}
xr.use_spmd()
cores = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(cores), (cores,), ("data",))
x = torch.randn(64, 4).to(torch_xla.device())
xs.mark_sharding(x, mesh, ("data", None))
""",
    "XLA429: a helper that nobody has read may turn it on": f"""\
{SHARDED}
from setup import start
start()
cores = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(cores), (cores,), ("data",))
x = torch.randn(64, 4).to(torch_xla.device())
xs.mark_sharding(x, mesh, ("data", None))
""",
    "XLA429: a comment says how the program is started": f"""\
{SHARDED}
# XLA_USE_SPMD=1 python train.py
cores = xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(cores), (cores,), ("data",))
x = torch.randn(64, 4).to(torch_xla.device())
xs.mark_sharding(x, mesh, ("data", None))
""",
    "XLA429: a module that a script imports": f"""\
{SHARDED}
def shard(x, mesh):
    xs.mark_sharding(x, mesh, ("data", None))
""",
    "XLA427: a score of what a list has gathered": f"""\
{XM}
from work import Net, data
def score(net, loader):
    net.eval()
    kept, right = [], []
    with torch.no_grad():
        for x, y in loader:
            kept.append(net(x).argmax(1))
            right.append(y)
    guesses = torch.cat(kept).cpu().numpy()
    return (guesses == torch.cat(right).cpu().numpy()).mean() * 100
def each(index):
    device = xm.xla_device()
    net = Net().to(device)
    part = torch.utils.data.DistributedSampler(
        data, num_replicas=xr.world_size(), rank=xr.global_ordinal()
    )
    loader = pl.MpDeviceLoader(DataLoader(data, batch_size=4, sampler=part), device)
    xm.master_print(score(net, loader))  # !XLA427
    mean = xm.mesh_reduce("score", score(net, loader), lambda all_: sum(all_) / len(all_))
    xm.master_print(mean)
xmp.spawn(each)
""",
    "XLA216: a loop that runs where it is asked for": f"""\
{XM}
class Wave(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(1, 32)
        self.head = torch.nn.Linear(32, 1)
    def forward(self, x, future=0):
        h = torch.zeros(len(x), 32, device=x.device)
        c = torch.zeros(len(x), 32, device=x.device)
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))  # !XLA216
        for _ in range(future):
            h, c = self.cell(self.head(h), (h, c))
        return self.head(h)
device = torch_xla.device()
net = Wave().to(device)
adam = torch.optim.Adam(net.parameters())
for x, y in pl.MpDeviceLoader(batches, device):
    adam.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    xm.optimizer_step(adam)
""",
    "XLA216: a loop that is asked for": f"""\
{XM}
class Wave(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(1, 32)
        self.head = torch.nn.Linear(32, 1)
    def forward(self, x, future=0):
        h = torch.zeros(len(x), 32, device=x.device)
        c = torch.zeros(len(x), 32, device=x.device)
        for _ in range(future):
            h, c = self.cell(self.head(h), (h, c))  # !XLA216
        return self.head(h)
device = torch_xla.device()
net = Wave().to(device)
adam = torch.optim.Adam(net.parameters())
for x, y in pl.MpDeviceLoader(batches, device):
    adam.zero_grad()
    torch.nn.functional.mse_loss(net(x, future=500), y).backward()
    xm.optimizer_step(adam)
""",
    "XLA603: a device that is kept in another module": f"""\
{XM}
import settings
from work import Net, data
settings.device = torch_xla.device()
net = Net().to(settings.device)
adam = torch.optim.Adam(net.parameters())
def fit():
    for x, y in DataLoader(data, batch_size=8, drop_last=True):
        x = x.to(settings.device)  # !XLA603
        adam.zero_grad()
        net(x).backward()
        xm.optimizer_step(adam, barrier=True)
fit()
""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_what_is_wrong_is_told_at_its_line_and_nothing_else(what):
    program = PROGRAMS[what]
    asked = {what.partition(":")[0]} | {code for _, code in marks(program)}
    assert {item for item in found(program) if item[1] in asked} == marks(program)


@pytest.mark.parametrize(
    "program",
    [
        DRAWING.replace(XM, "import torch\n").replace("torch_xla.device()", '"cuda"')
        + "for _ in range(50):\n    paint(torch.randn(16, 128, device=device)).cpu()\n",
        BY_HAND.replace(XM, "import torch\nfrom torch.utils.data import DataLoader\n").replace(
            "torch_xla.device()", '"cuda"'
        )
        + "for i, (x, y) in enumerate(loader):\n"
        "    net(x.to(device), y.to(device)).backward()\n"
        "    if (i + 1) % 4 == 0:\n        adam.step()\n        torch.cuda.synchronize()\n",
    ],
    ids=["drawing", "summing"],
)
def test_a_program_without_xla_gets_nothing(program):
    assert found(program) == []


@pytest.mark.parametrize(
    ("start", "alike"), [("", False), (', start_method="fork"', True), (", nprocs=None", False)]
)
def test_weights_of_forked_cores_are_told_to_begin_alike(start, alike):
    program = f"""\
{XM}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x, y):
        return torch.nn.functional.cross_entropy(self.layer(x), y)
def each(index):
    device = xm.xla_device()
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
{STEP}
xmp.spawn(each{start})
"""
    result = engine.lint(Source("train.py", program), engine.LintOptions())
    told = [item.message for item in result.findings if item.code == "XLA426"]
    assert ["forked processes draw alike" in message for message in told] == [alike]
