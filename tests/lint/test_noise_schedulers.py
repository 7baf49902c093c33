"""Schedulers of diffusers that look for their time steps on the host: told or not.

All programs are invented. ``# !XLA109`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, told

TOP = """\
import diffusers
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from diffusers import DDIMScheduler, DDPMScheduler, EulerDiscreteScheduler
"""
TRAIN = (
    TOP
    + """
def train(rows, model, path):
    device = torch_xla.device()
    scheduler = MADE
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in pl.MpDeviceLoader(rows, device):
        optimizer.zero_grad()
        noise = torch.randn_like(batch["x"])
        t = torch.randint(0, 1000, (batch["x"].shape[0],), device=device)
        noisy = scheduler.add_noise(batch["x"], noise, t)AT
        (model(noisy, t) - noise).pow(2).mean().backward()
        optimizer.step()
        torch_xla.sync()
"""
)
SAMPLE = (
    TOP
    + """
class Sampler:
    def __init__(self, model):
        self.device = torch_xla.device()
        self.model = model.to(self.device)
        self.scheduler = MADE
    def sample(self, n):
        self.scheduler.set_timesteps(nDEVICE)AT
        x = torch.randn(1, 3, 8, 8, device=self.device)
        for t in self.scheduler.timesteps:
            x = self.scheduler.step(self.model(x, t), t, x).prev_sample
            torch_xla.sync()
        return x
"""
)


def training(made, *, told):
    return TRAIN.replace("MADE", made).replace("AT", "  # !XLA109" if told else "")


def sampling(made, device, *, told):
    text = SAMPLE.replace("MADE", made).replace("DEVICE", device)
    return text.replace("AT", "  # !XLA109" if told else "")


PROGRAMS = {
    "noise that is looked up": training("EulerDiscreteScheduler.from_pretrained(path)", told=True),
    "noise by another name": training("diffusers.UniPCMultistepScheduler()", told=True),
    "noise of a table": training("DDPMScheduler(num_train_timesteps=1000)", told=False),
    "time steps on the device": sampling("DDIMScheduler()", ", device=self.device", told=True),
    "time steps on the host": sampling("DDIMScheduler()", "", told=False),
    "steps that do not ask": sampling(
        "EulerDiscreteScheduler()", ", device=self.device", told=False
    ),
    "a scheduler of the program": sampling("make_scheduler()", ", device=self.device", told=False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_schedulers_of_diffusers(name):
    text = PROGRAMS[name]
    assert told("XLA109", text) == marks_of("XLA109", text)
