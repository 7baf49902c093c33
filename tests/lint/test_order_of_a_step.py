"""The order of a step: waits for the device, and ends of the graph where none should be.

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
"""

TAGGER = """\
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.top = nn.Linear(8, 2)
    def forward(self, x):
"""
FITTED = """\
def fit(optim_of, loader):
    device = torch_xla.device()
    tagger = Tagger().to(device)
    optim = optim_of(tagger.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(tagger(x), y)
        loss.backward()
        optim.step()
"""

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "wait_device_ops between backward and step": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = model(x).mean()
        loss.backward()
        xm.wait_device_ops()  # !XLA114
        optim.step()
""",
    "wait in a method of a wrapper": """\
HEAD
class DP(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def mix(self):
        xm.wait_device_ops()  # !XLA114
        torch._foreach_mul_(list(self.net.parameters()), 0.5)
    def forward(self, x):
        return self.net(x)
def fit(net, optim, loader):
    device = torch_xla.device()
    model = DP(net.to(device))
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = model(x).mean()
        loss.backward()
        model.mix()
        optim.step()
""",
    "sync wait true each step": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = model(x).mean()
        loss.backward()
        optim.step()
        torch_xla.sync(wait=True)  # !XLA114
""",
    "mark_step wait positional": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = model(x).mean()
        loss.backward()
        optim.step()
        xm.mark_step(wait=True)  # !XLA114
""",
    "between the forward of a generator, which gives back several, and its backward": """\
HEAD
def cut_out(x, ids, size):
    return torch.stack([x[i, :, ids[i]:ids[i] + size] for i in range(x.size(0))])
def fit(synth, judge, opt_s, opt_j, loader, size):
    device = torch_xla.device()
    synth.to(device).train()
    judge.to(device).train()
    for text, wave in pl.MpDeviceLoader(loader, device):
        (wave_hat, kl, ids_slice, (z, m)) = synth(text)
        xm.mark_step()  # !XLA319
        wave = cut_out(wave, ids_slice * size, size)
        quiet = wave_hat.detach()
        real, fake = judge(wave, quiet)
        loss_judge, parts = hinge(real, fake)
        opt_j.zero_grad()
        loss_judge.backward()
        xm.optimizer_step(opt_j)
        real, fake = judge(wave, wave_hat)
        loss_synth, parts = adversarial(fake)
        loss = loss_synth + kl
        opt_s.zero_grad()
        loss.backward()
        xm.optimizer_step(opt_s)
""",
    "in the middle of forward": """\
HEAD
class Captioner(nn.Module):
    def __init__(self, trunk, writer):
        super().__init__()
        self.trunk = nn.Sequential(trunk, nn.ReLU())
        self.writer = nn.TransformerEncoder(writer, 4)
    def forward(self, pixels):
        seen = self.trunk(pixels)
        torch_xla.sync()  # !XLA319
        return self.writer(seen)
def fit(trunk, writer, optim_of, loader):
    device = torch_xla.device()
    captioner = Captioner(trunk, writer).to(device)
    optim = optim_of(captioner.parameters())
    for x, y in pl.MpDeviceLoader(loader, device):
        optim.zero_grad()
        loss = F.cross_entropy(captioner(x), y)
        loss.backward()
        optim.step()
""",
    "mark_step between forward and backward": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in loader:
        out = model(x.to(device))
        xm.mark_step()  # !XLA319
        loss = F.cross_entropy(out, y.to(device))
        loss.backward()
        xm.optimizer_step(optim)
        torch_xla.sync()
""",
    "sync between loss and backward": """\
HEAD
import torch_xla as tx
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(model(x), y)
        tx.sync()  # !XLA319
        loss.backward()
        xm.optimizer_step(optim)
""",
    "cut in a helper": """\
HEAD
def finish():
    xm.mark_step()
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(model(x), y)
        finish()  # !XLA319
        loss.backward()
        xm.optimizer_step(optim)
""",
    "cut in a class": """\
HEAD
class T:
    def __init__(self, model, optim):
        self.device = torch_xla.device()
        self.model, self.optim = model.to(self.device), optim
    def train(self, loader):
        for x, y in pl.MpDeviceLoader(loader, self.device):
            out = self.model(x)
            xm.mark_step()  # !XLA319
            loss = F.cross_entropy(out, y)
            loss.backward()
            self.optim.step()
""",
    "read before the mark step still cuts": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in loader:
        xm.mark_step()
        x = x.to(device)
        loss = F.cross_entropy(model(x), y.to(device))
        loss.backward()
        xm.optimizer_step(optim)
        if x.shape[0] % 100 == 0:
            print(loss.item())  # !XLA113
""",
}

#: What looks like it and is right.
HEALTHY = {
    "sync behind the step": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.step()
        torch_xla.sync()
""",
    "gradient accumulation ends the graph behind each backward": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for i, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch_xla.sync()
        if (i + 1) % 4 == 0:
            xm.optimizer_step(optim)
            optim.zero_grad()
""",
    "a wait once in a while for the clock": """\
HEAD
import time
def fit(model, optim, loader):
    device = torch_xla.device()
    for i, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optim.step()
        if i % 100 == 0:
            xm.wait_device_ops()
            print(time.time())
""",
    "a wait behind the epoch": """\
HEAD
def fit(model, optim, loader):
    device = torch_xla.device()
    for epoch in range(3):
        for x, y in pl.MpDeviceLoader(loader, device):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
        xm.wait_device_ops()
""",
    "a frozen encoder runs as a graph of its own": """\
HEAD
def fit(vae, model, optim, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        with torch.no_grad():
            z = vae.encode(x)
        torch_xla.sync()
        loss = F.cross_entropy(model(z), y)
        loss.backward()
        optim.step()
""",
    "two networks in turn": """\
HEAD
def fit(a, b, opt_a, opt_b, loader):
    device = torch_xla.device()
    for x, y in pl.MpDeviceLoader(loader, device):
        loss = a(x).mean()
        loss.backward()
        xm.optimizer_step(opt_a)
        torch_xla.sync()
        loss = b(x).mean()
        loss.backward()
        xm.optimizer_step(opt_b)
        torch_xla.sync()
""",
    "a graph of its own for what a frozen model computes": """\
HEAD
TAGGER
        with torch.no_grad():
            x = self.trunk(x)
        torch_xla.sync()
        return self.top(x)
FITTED
""",
    "an end of the graph in forward that evaluation alone comes to": """\
HEAD
TAGGER
        x = self.trunk(x)
        if not self.training:
            torch_xla.sync()
        return self.top(x)
FITTED
""",
    "the critic's own step, of a picture that was detached": """\
HEAD
def fit(painter, critic, opt_p, opt_c, loader):
    device = torch_xla.device()
    painter.to(device).train()
    critic.to(device).train()
    for x, noise in pl.MpDeviceLoader(loader, device):
        picture, style = painter(noise)
        picture, style = picture.detach(), style.detach()
        torch_xla.sync()
        loss = critic(x).mean() - critic(picture).mean()
        loss.backward()
        xm.optimizer_step(opt_c)
        torch_xla.sync()
        picture, style = painter(noise)
        loss = critic(picture).mean()
        loss.backward()
        xm.optimizer_step(opt_p)
""",
    "the painter paints anew for its own step": """\
HEAD
def fit(painter, critic, opt_p, opt_c, loader):
    device = torch_xla.device()
    painter.to(device).train()
    critic.to(device).train()
    for x, noise in pl.MpDeviceLoader(loader, device):
        picture = painter(noise)
        loss_c = critic(x).mean() - critic(picture.detach()).mean()
        loss_c.backward()
        xm.optimizer_step(opt_c)
        torch_xla.sync()
        picture = painter(noise)
        loss_p = critic(picture).mean()
        loss_p.backward()
        xm.optimizer_step(opt_p)
""",
}


def written(program):
    for name, text in {"HEAD": HEAD, "TAGGER": TAGGER, "FITTED": FITTED}.items():
        program = program.replace(f"{name}\n", text)
    return program


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = written(FAULTS[name])
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    assert codes(written(HEALTHY[name])) == []
