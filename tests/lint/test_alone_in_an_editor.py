"""What programs that stand alone show, as people write them: findings, and healthy twins.

All programs are invented. ``# !XLA402`` marks a line on which that rule has to find something; no
other line of a program may have a finding of a code that its name asks for. A name that ends with
"healthy" is of a program in which those codes find nothing.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import os
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from collections import OrderedDict
from torch.nn.parallel import DistributedDataParallel as DDP
"""

WRAPPED = """\
def train(index, batches):
    dist.init_process_group("xla", init_method="xla://")
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    net = DDP(net)
    for x in pl.MpDeviceLoader(batches, device):
        sgd.zero_grad()
        net(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        xm.optimizer_step(sgd)  # !XLA304
torch_xla.launch(train, args=([],))
"""

HELPED = """\
def norms(net):
    return [p.grad.norm().item() for p in net.parameters()]  # !XLA113
def report(step, loss):
    print(step, loss.item())  # !XLA113
def train(batches):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, x in enumerate(pl.MpDeviceLoader(batches, device)):
        sgd.zero_grad()
        loss = net(x).sum()
        loss.backward()
        if step % 100 == 0:
            print(norms(net))
        sgd.step()
        SYNC
        if step % 100 == 0:
            report(step, loss)
"""

SHOWN = """\
def draw(net, device):
    print(net(torch.randn(8, 8, device=device)).cpu())
def validate(net, batches):
    hits = 0
    for x in batches:
        hits += net(x).sum()
    return hits.item()
def train(batches, held):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, x in enumerate(pl.MpDeviceLoader(batches, device)):
        sgd.zero_grad()
        net(x).sum().backward()
        sgd.step()
        if step % 100 == 0:
            draw(net, device)
            print(validate(net, pl.MpDeviceLoader(held, device)))
"""

RESUMED = """\
def train(path, resume):
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    adam = torch.optim.Adam(net.parameters())
    if resume:
        state = torch.load(path, map_location="cpu")
        net.load_state_dict(state["net"])
    for epoch in range(3):
        xm.optimizer_step(adam, barrier=True)
        host = {name: value.cpu() for name, value in net.state_dict().items()}
        state = {"net": host, "adam": STATE}
        torch.save(state, path)  # !XLA721
"""

DRAWN = """\
from torch.utils.data import DataLoader
from parts import Encoder, Decoder
def train(data, held):
    device = torch_xla.device()
    encoder, decoder = Encoder().to(device), Decoder().to(device)
    sgd = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    held = DataLoader(held, batch_size=8)
    for epoch in range(9):
        for x in DataLoader(data, batch_size=8, drop_last=True):
            sgd.zero_grad()
            decoder(encoder(x.to(device))).sum().backward()
            sgd.step()
            torch_xla.sync()
        total = 0.0
        with torch.no_grad():
            for x in held:  # !XLA301
                mean = encoder(x.to(device))
                total += decoder(mean + torch.randn_like(mean)).sum().item()
                END
"""

HOOKS = """\
import pytorch_lightning as pl
class Net(pl.LightningModule):
    def training_step(self, batch, index):
        return self._step(batch)
    def test_step(self, batch, index):
        return self._step(batch)
    def _step(self, batch):
        loss = self(batch).mean()
        return OrderedDict({"loss": loss, "KEY": {"seen": loss}})  # !XLA910
    def _other(self, batch):
        return {"log": self(batch).mean()}
pl.Trainer(accelerator="tpu", devices=8).fit(Net())
"""

SUMMED = """\
def train(index, options, batches):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for at, x in enumerate(pl.MpDeviceLoader(batches, device)):
        net(x).sum().backward()
        if (at + 1) % options.accumulate == 0:
            if not options.ddp:
                xm.reduce_gradients(sgd)  # !XLA303
            if CLIPPED:
                torch.nn.utils.clip_grad_norm_(net.parameters(), options.most)
            sgd.step()
            sgd.zero_grad()
torch_xla.launch(train, args=(None, []))
"""

WHOLE = """\
device = torch_xla.device()
class Gan(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.painter = torch.nn.Conv2d(3, 3, 3)
        self.critic = torch.nn.Conv2d(3, 1, 3)
        MOVE
        self.paints = torch.optim.Adam(self.painter.parameters())  # !XLA305
        self.judges = torch.optim.Adam(self.critic.parameters())  # !XLA305
    def fit(self, x):
        for optimizer in (self.paints, self.judges):
            optimizer.zero_grad()
        self.critic(self.painter(x)).mean().backward()
        self.paints.step()
        self.judges.step()
        torch_xla.sync()
gan = Gan()
gan.to(device)
for x in []:
    gan.fit(x.to(device))
"""

ASKING = """\
import pytorch_lightning as pl
class Net(pl.LightningModule):
    def training_step(self, batch, index):
        loss = self(batch).mean()
        return {"loss": loss, "log": {"seen": loss}}  # !XLA910
    def validation_step(self, batch, index):
        return {"loss": self(batch).mean(), "log": index % 10 == 0}
    def train_dataloader(self):
        if ASKED:
            print("several cores")
        return []
"""

TOLD = """\
import torch_xla.runtime as xr
def train(index, data, held):
    torch.manual_seed(0)
    device = torch_xla.device()
    net = torch.nn.Linear(8, 8).to(device)
    part = torch.utils.data.DistributedSampler(held, xr.world_size(), xr.global_ordinal())
    loader = torch.utils.data.DataLoader(held, batch_size=8, sampler=part)
    for epoch in range(3):
        loss, sharp, count = 0.0, 0.0, 0
        with torch.no_grad():
            for x in pl.MpDeviceLoader(loader, device):
                made = net(x)
                loss += made.mean()
                sharp += made.abs().mean()
                count += 1
        BOTH
        loss = xm.mesh_reduce("loss", OF, lambda all: sum(all) / len(all))
        ratio = sharp / count
        xm.master_print(f"{loss} of {count}")
        xm.master_print(ratio)  # !XLA427
torch_xla.launch(train, args=([], []))
"""

PREPARED = """\
import lightning.pytorch as lit
class Data(lit.LightningDataModule):
    def __init__(self):
        super().__init__()
        START
    def prepare_data(self):
        torch.hub.download_url_to_file("https://x", "x")
        self.seen, self.held = load()  # !XLA910
    def setup(self, stage):
        SETUP
    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.seen, drop_last=True)
lit.Trainer(accelerator="tpu", devices=CORES).fit(Net(), datamodule=Data())
"""

PROGRAMS = {
    "XLA303 XLA304: DDP has reduced": WRAPPED,
    "XLA304 XLA303: DDP's views reduce nothing": WRAPPED.replace(
        "DDP(net)", "DDP(net, gradient_as_bucket_view=True)"
    )
    .replace("  # !XLA304", "")
    .replace("1.0)", "1.0)  # !XLA303"),
    "XLA304 XLA303: DDP for others alone": WRAPPED.replace(
        "    net = DDP(net)", "    if os.environ.get('GPU'):\n        net = DDP(net)"
    )
    .replace("  # !XLA304", "")
    .replace("1.0)", "1.0)  # !XLA303"),
    "XLA304 XLA303: DDP around another model": WRAPPED.replace(
        "net = DDP(net)", "other = DDP(torch.nn.Linear(8, 8).to(device))"
    )
    .replace("  # !XLA304", "")
    .replace("1.0)", "1.0)  # !XLA303"),
    "XLA304 XLA303: the plain step behind DDP, healthy": WRAPPED.replace(
        "xm.optimizer_step(sgd)  # !XLA304", "sgd.step()"
    ),
    "XLA113: helpers that read once in a while": HELPED.replace("SYNC", "pass"),
    "XLA113: a helper behind the end of the step": HELPED.replace(
        "SYNC", "torch_xla.sync()"
    ).replace("print(step, loss.item())  # !XLA113", "print(step, loss.item())"),
    "XLA113: helpers that run a model or go over batches, healthy": SHOWN,
    "XLA721: a name that held what was loaded": RESUMED.replace("STATE", "adam.state_dict()"),
    "XLA721: a name that holds what was loaded, healthy": RESUMED.replace(
        "  # !XLA721", ""
    ).replace("STATE", "None"),
    "XLA721: given again in a branch, healthy": RESUMED.replace("  # !XLA721", "")
    .replace(
        "        torch.save", "        if resume:\n            state = host\n        torch.save"
    )
    .replace("STATE", "adam.state_dict()"),
    "XLA301: noise in an evaluation behind steps that end": DRAWN.replace("END", "pass"),
    "XLA301: noise in an evaluation that ends its turns, healthy": DRAWN.replace(
        "  # !XLA301", ""
    ).replace("END", "torch_xla.sync()"),
    "XLA910: keys that a method gives several hooks": HOOKS.replace("KEY", "log"),
    "XLA910: keys of the program's own, healthy": HOOKS.replace("KEY", "seen").replace(
        "  # !XLA910", ""
    ),
    "XLA303: what is reduced and clipped by settings": SUMMED.replace(
        "CLIPPED", "options.most > 0"
    ),
    "XLA303: reduced, or clipped, healthy": SUMMED.replace(
        "            if CLIPPED", "            else"
    ).replace("  # !XLA303", ""),
    "XLA305: optimizers of the parts of what is moved": WHOLE.replace("MOVE", "pass"),
    "XLA305: parts that are there before, healthy": WHOLE.replace(
        "MOVE", "self.painter.to(device), self.critic.to(device)"
    ).replace("  # !XLA305", ""),
    "XLA305: a module that moves itself": WHOLE.replace("gan.to(device)", "pass")
    .replace("MOVE", "pass")
    .replace("    def fit", "        self.to(device)\n    def fit"),
    "XLA305: a module that moves itself, and its parts before, healthy": WHOLE.replace(
        "gan.to(device)", "pass"
    )
    .replace("MOVE", "self.painter.to(device), self.critic.to(device)")
    .replace("    def fit", "        self.to(device)\n    def fit")
    .replace("  # !XLA305", ""),
    "XLA305: a part that is moved before the whole, healthy": """\
from parts import Gan
def main():
    device = torch_xla.device()
    gan = Gan()
    gan.painter.to(device)
    paints = torch.optim.Adam(gan.painter.parameters())
    gan.to(device)
    return gan, paints
""",
    "XLA305: a move of its own, healthy": WHOLE.replace("  # !XLA305", "").replace(
        "    def fit",
        "    def to(self, device):\n        self.other = torch.nn.ReLU().to(device)\n    def fit",
    ),
    "XLA910: what one process prepares": PREPARED.replace("START", "pass")
    .replace("SETUP", "pass")
    .replace("CORES", "8"),
    "XLA910: what one process prepares, and all begin": PREPARED.replace(
        "START", "self.seen = None"
    )
    .replace("SETUP", "pass")
    .replace("CORES", "8"),
    "XLA910: what each sets up, healthy": PREPARED.replace("START", "pass")
    .replace("SETUP", "self.seen = load()")
    .replace("CORES", "8")
    .replace("  # !XLA910", ""),
    "XLA910: prepared on one core, healthy": PREPARED.replace("START", "pass")
    .replace("SETUP", "pass")
    .replace("CORES", "1")
    .replace("  # !XLA910", ""),
    "XLA910: prepared by the program, healthy": PREPARED.replace("START", "self.prepare_data()")
    .replace("SETUP", "pass")
    .replace("CORES", "8")
    .replace("  # !XLA910", ""),
    "XLA910: prepared, and read by nobody else, healthy": PREPARED.replace("START", "pass")
    .replace("SETUP", "pass")
    .replace("CORES", "8")
    .replace("DataLoader(self.seen", "DataLoader(load()")
    .replace("  # !XLA910", ""),
    "XLA427: one of two sums is reduced": TOLD.replace("BOTH", "pass").replace("OF", "loss.item()"),
    "XLA427: both in one, healthy": TOLD.replace("BOTH", "both = torch.stack([loss, sharp])")
    .replace("OF", "both")
    .replace("  # !XLA427", ""),
    "XLA427: both in place, healthy": TOLD.replace("BOTH", "xm.all_reduce('sum', [sharp, loss])")
    .replace("OF", "loss.item()")
    .replace("  # !XLA427", ""),
    "XLA427: reduced by what is not there, healthy": TOLD.replace(
        "BOTH", "self.meters.synchronize()"
    )
    .replace("OF", "loss.item()")
    .replace("  # !XLA427", ""),
    "XLA701: variables that nobody reads": """\
os.environ["XLA_USE_TORCH_JIT"] = "1"  # !XLA701
os.environ["PT_XLA_FAST"] = "1"  # !XLA701
""",
    "XLA701: variables of others and of its own, healthy": """\
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_USE_MY_LOADER"] = "1"
mine = os.environ.get("XLA_USE_MY_LOADER")
os.environ["XLA_USE_SPMD_LATER"] = os.environ.get("XLA_USE_SPMD_LATER", "0")
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    program = HEAD + PROGRAMS[name]
    asked = name.partition(":")[0].split()
    told = {(row, code) for row, code in found(program) if code in asked}
    assert told == {(row, code) for row, code in marks(program) if code in asked}
    assert name.endswith("healthy") == (not told)


@pytest.mark.parametrize("asked", ["self.trainer.use_tpu", "trainer.num_tpu_cores"])
def test_a_module_that_asks_its_trainer_for_tpus_is_for_tpus(asked):
    program = ASKING.replace("ASKED", asked)
    assert set(marks(program)) <= set(found(program))


@pytest.mark.parametrize("asked", ["self.trainer.use_ddp", "options.use_tpu", "use_tpu"])
def test_a_module_that_asks_for_something_else_is_not(asked):
    assert not found(ASKING.replace("ASKED", asked))
