"""Lengths that are read from the device, row by row: where they cut, each makes a new graph."""

from __future__ import annotations

from rule_helpers import found, marks

LENGTHS = """
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)

    def forward(self, x, lengths):
        x = self.conv(x)
        mask = torch.ones_like(x)
        for i, n in enumerate(lengths.tolist()):
            mask[i, :, :, n:] = 0  # !XLA205
        parts = []
        for row, n in zip(x, lengths.cpu().numpy()):
            parts.append(row[:, :, :n])  # !XLA201
        for i, length in enumerate(lengths):
            length = length.item()
            mask[i].narrow(2, length, mask[i].size(2) - length).fill_(0)  # !XLA201
            mask[i, :, :, length:].fill_(0)  # !XLA205
        sizes = lengths.tolist()
        for i in range(len(sizes)):
            mask[i, :, :, sizes[i]:] = 0  # !XLA205
        total = sum(row[:, :k].sum() for row, k in zip(x, sizes))  # !XLA201
        for i, (row, n) in enumerate(zip(x, sizes)):
            row[:, n:] = i  # !XLA205
        return x.sum() * mask.sum() + total + sum(part.sum() for part in parts)


class Healthy(nn.Module):
    def forward(self, x, sizes=(1, 2)):
        for i, n in enumerate(sizes):
            x[i, :n] = 0
            x[i, n:] = 1
        for n, row in zip([2, 4, 8], x):
            row[:, n:] = 1
        for i, n in enumerate(x.shape):
            x[..., n // 2 :] = i
        known = [2, 3]
        for i in range(2):
            x[i, known[i]:] = 0
        return x


def train(loader):
    device = xm.xla_device()
    model = Masked().to(device)
    other = Healthy().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, lengths in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = model(x, lengths) + other(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
"""


def test_lengths_of_rows():
    told = {(row, code) for row, code in found(LENGTHS) if code in {"XLA201", "XLA205"}}
    assert told == marks(LENGTHS)


def test_lengths_read_once_are_one_graph():
    program = LENGTHS.replace("for x, lengths in pl.MpDeviceLoader(loader, device):", "if True:")
    program = program.replace("def train(loader):", "def train(x, lengths):")
    told = {code for _, code in found(program)}
    assert not told & {"XLA201", "XLA205"}
