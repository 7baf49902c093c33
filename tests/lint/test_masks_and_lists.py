"""Masks, lists, uploads and decoders as people write them: all of one program, told or not."""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marked, marks, rows

MASKS = """
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.nn.utils.rnn import pack_padded_sequence

NAMES = ("plane", "car", "bird")


def valid_of(x, least):
    valid = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
    valid |= x.sum(1) > least
    return valid


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x, lengths):
        self.ignored = x.eq(0)
        kept = x[~self.ignored]  # !XLA202
        packed = pack_padded_sequence(x, lengths, batch_first=True)  # !XLA201
        return self.last(x) + kept.mean()


def train(loader, optimizer):
    device = torch_xla.device()
    model = Net().to(device)
    correct = list(0.0 for _ in range(10))
    total = [0] * 10
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        out = model(x, y)
        valid = valid_of(x, 3)
        out.sum().backward()
        parts = {"all": out, "valid": valid}
        some = parts["all"][valid]  # !XLA202
        rest = out[torch.logical_not(valid).to(device)]  # !XLA202
        host = np.array([1, 2]) > 1
        chosen = out[:, host]  # !XLA202
        for i in range(4):
            label = y[i]
            total[label] += 1  # !XLA108
        optimizer.step()
        weighted = out * valid.float()[:, None]
        places = out[valid.long()]
        counts = (valid & valid).int() + 1
        again = out[counts]
        sizes = NAMES[0], total[2]
"""


def test_masks_and_lists():
    told = [(row, code) for row, code in found(MASKS) if code in {"XLA202", "XLA201", "XLA108"}]
    assert set(told) == {mark for mark in marks(MASKS) if mark[1] in {"XLA202", "XLA201", "XLA108"}}


def test_no_fix_for_a_mask_of_the_host():
    program = """
    import numpy as np
    import torch_xla

    def train(model, loader, optimizer):
        device = torch_xla.device()
        model.to(device)
        for x in loader:
            x = x.to(device)
            model(x).sum().backward()
            optimizer.step()
            x[np.array([1, 2]) > 1] = 0
    """
    assert rows(program, "XLA204") == [12]


AGENT = """
import random
import numpy as np
import torch
import torch_xla.core.xla_model as xm

device = xm.xla_device()


class Agent:
    def __init__(self, net, optimizer):
        self.net = net.to(device)
        self.optimizer = optimizer
        self.memory = []

    def act(self, state):
        state = torch.FloatTensor(state).unsqueeze(0).to(device)  # !XLA603
        with torch.no_grad():
            return self.net(state).max(1)[1]

    def learn(self):
        states, rewards = zip(*random.sample(self.memory, 8))
        states = torch.FloatTensor(np.stack(states)).to(device)  # !XLA603
        weights = torch.FloatTensor(8, 4).to(device)
        loss = (self.net(states) - weights).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        xm.mark_step()

    def train(self, env):
        while True:
            self.memory.append(env.step(self.act(env.state)))
            self.learn()
"""


def test_uploads_of_each_function():
    assert set(rows(AGENT, "XLA603")) == {row for row, code in marks(AGENT) if code == "XLA603"}


MADE = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import segmentation_models_pytorch as smp
import timm
from efficientnet_pytorch import EfficientNet


def main(index, loader):
    device = torch_xla.device()
    model = {made}
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for x in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        model(x).sum().backward()
        xm.optimizer_step(optimizer)


torch_xla.launch(main, args=(None,))
"""


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ('smp.Unet("resnet34", encoder_weights="imagenet", classes=1)', True),
        ('smp.DeepLabV3Plus(encoder_name="resnet34")', True),
        ('smp.from_pretrained("folder")', False),
        ('EfficientNet.from_pretrained("efficientnet-b4", num_classes=5)', True),
        ('EfficientNet.from_pretrained("efficientnet-b4")', False),
        ('timm.create_model("resnet18", pretrained=True); model.reset_classifier(4)', True),
        ('timm.create_model("resnet18", pretrained=True)', False),
    ],
)
def test_what_comes_without_weights(made, told):
    assert ("XLA426" in codes(MADE.format(made=made))) is told


def test_weight_norm_runs_on_the_host():
    program = """
    import torch_xla
    from torch.nn import Conv1d
    from torch.nn.utils import weight_norm, spectral_norm

    def train(loader, optimizer):
        device = torch_xla.device()
        layer = weight_norm(Conv1d(3, 4, 3)).to(device)
        other = spectral_norm(Conv1d(3, 4, 3)).to(device)
        for x in loader:
            x = x.to(device)
            (layer(x) + layer(x + 1) + other(x)).sum().backward()
            optimizer.step()
    """
    assert rows(program, "XLA501") == [8]  # once, however often it is called


CONTRAST = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm


class Contrast(nn.Module):
    def forward(self, features, labels):
        {device}
        labels = labels.view(-1, 1)
        same = torch.eq(labels, labels.T).float().to(device)  # here
        return -(same * (features @ features.T)).mean()


def train(loader, model, optimizer):
    criterion = Contrast()
    for x, y in loader:
        loss = criterion(model(x.to(torch_xla.device())), y.to(torch_xla.device()))
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
"""


@pytest.mark.parametrize(
    "device",
    [
        'device = torch.device("cuda") if features.is_cuda else torch.device("cpu")',
        """if features.is_cuda:
            device = torch.device("cuda")
        else:
            device = torch.device("cpu")""",
        'device = torch.device("cpu")',
    ],
)
def test_what_is_not_on_a_gpu_is_not_on_the_cpu(device):
    program = CONTRAST.replace("{device}", device)
    assert rows(program, "XLA101") == marked(program)


@pytest.mark.parametrize(
    "device",
    ["device = features.device", "device = torch_xla.device()", 'device = torch.device("xla")'],
)
def test_a_loss_that_stays_where_its_features_are(device):
    assert rows(CONTRAST.replace("{device}", device), "XLA101") == []
