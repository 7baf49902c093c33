"""Sizes that the data decides, and layers that run on the CPU, as people write them."""

from __future__ import annotations

from rule_helpers import found, marks

SIZES = """
import torch
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x, lengths, labels):
        h = self.first(x)
        count = int((labels > 0).sum())
        best = h.view(-1).topk(count).values  # !XLA201
        parts = torch.split(h, lengths.tolist())  # !XLA201
        sizes = lengths.tolist()
        more = h.split(sizes, dim=0)  # !XLA201
        rows = [place for place in range(len(labels)) if labels[place] > 0]
        chosen = h[rows]  # !XLA201
        total = sum(sizes)
        flat = torch.zeros(total, 4, device=x.device)  # !XLA201
        even = [place for place in range(len(labels)) if place % 2 == 0]
        half = h[even]
        three = h.topk(3).values
        pair = h.split(2)
        known = half.sum() + three.sum() + flat.sum()
        return best.sum() + parts[0].sum() + more[0].sum() + chosen.sum() + known


def train(loader, optimizer):
    device = torch_xla.device()
    model = Net().to(device)
    for x, lengths, labels in pl.MpDeviceLoader(loader, device):
        model(x, lengths, labels).backward()
        optimizer.step()
"""


def test_parts_whose_number_is_read():
    assert {mark for mark in found(SIZES) if mark[1] == "XLA201"} == marks(SIZES)


LAYERS = """
import torch
import torch.nn as nn
import torchaudio
import torchvision.transforms as T
import torchvision.transforms.functional as TF
import torch_xla
import torch_xla.distributed.parallel_loader as pl


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.mel = torchaudio.transforms.MelSpectrogram(16000)
        self.both = nn.Sequential(
            torchaudio.transforms.MFCC(16000), torchaudio.transforms.AmplitudeToDB()
        )
        self.sharp = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Upsample(scale_factor=2, mode="bicubic"))
        self.smooth = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Upsample(scale_factor=2))
        self.turn = T.RandomRotation(10)

    def forward(self, wave, image):
        mel = self.mel(wave)  # !XLA501
        both = self.both(wave)  # !XLA501
        large = self.sharp(image) + self.smooth(image)  # !XLA501
        turned = TF.rotate(image, 30)  # !XLA501
        again = self.turn(image)  # !XLA501
        back = torch.istft(torch.complex(wave, wave), 400)  # !XLA501
        flipped = TF.hflip(image)
        images = turned.sum() + again.sum() + flipped.sum() + large.sum()
        return mel.sum() + both.sum() + back.sum() + images


def train(loader, optimizer):
    device = torch_xla.device()
    model = Front().to(device)
    for wave, image in pl.MpDeviceLoader(loader, device):
        model(wave, image).backward()
        optimizer.step()
"""


def test_layers_of_other_packages_and_layers_within_layers():
    assert {mark for mark in found(LAYERS) if mark[1] == "XLA501"} == marks(LAYERS)


MASKS = """
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


def best_only(logits, share, filling):
    ordered, places = torch.sort(logits, descending=True)
    too_much = ordered.softmax(-1).cumsum(-1) > share
    too_much[..., 1:] = too_much[..., :-1].clone()
    too_much[..., 0] = 0
    leave = too_much.scatter(1, places, too_much)
    logits[leave] = filling  # !XLA204
    wider = F.pad(too_much, (0, 1))
    logits[wider[:, 1:]] = filling  # !XLA204
    counts = torch.zeros_like(places).scatter(1, places, 1)
    return logits[counts]


@torch.no_grad()
def sample(model, tokens, steps):
    device = torch_xla.device()
    model = model.to(device)
    tokens = tokens.to(device)
    for _ in range(steps):
        logits = best_only(model(tokens), 0.9, -1e4)
        tokens = torch.multinomial(logits.softmax(-1), 1)
        xm.mark_step()
    return tokens
"""


def test_masks_stay_masks_through_what_moves_their_elements():
    assert {mark for mark in found(MASKS) if mark[1] in {"XLA202", "XLA204"}} == marks(MASKS)
