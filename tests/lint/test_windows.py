"""Models that are run on the windows of a picture. ``# !XLA212`` marks what has to be found."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def tiled(model, picture, size, stride):
    height, width = picture.shape[-2:]
    whole = torch.zeros_like(picture)
    for top in {rows}:
        for left in {columns}:
            tile = picture[..., top : top + size, left : left + size]
            {run}
            {then}
    return whole


def measure(loader, net):
    device = torch_xla.device()
    net = net.to(device).eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for picture in pl.MpDeviceLoader(loader, device):
            total += tiled(net, picture, 96, 48).mean()
    return total.item()
"""
ROWS, COLUMNS = "range(0, height - size + 1, stride)", "range(0, width - size + 1, stride)"
PLACE = "[..., top:top + size, left:left + size]"
RUN = f"whole{PLACE} += model(picture{PLACE})"
MARK = "  # !XLA212"


@pytest.mark.parametrize(
    ("rows_", "columns", "run", "then", "mark"),
    [
        (ROWS, COLUMNS, RUN, "pass", MARK),
        (ROWS, COLUMNS, RUN, "torch_xla.sync()", ""),
        (ROWS, COLUMNS, RUN, "print(whole.sum().item())", ""),
        ("range(0, 2)", "range(0, 2)", RUN, "pass", ""),
        (ROWS, COLUMNS, "whole += model(picture)", "pass", ""),
        (ROWS, "[0]", RUN, "pass", ""),
        (ROWS, COLUMNS, RUN.replace("model(", "torch.relu("), "pass", ""),
    ],
)
def test_windows_of_one_graph(rows_, columns, run, then, mark):
    program = PROGRAM.format(rows=rows_, columns=columns, run=run + mark, then=then)
    assert [(row, "XLA212") for row in rows(program, "XLA212")] == sorted(marks(program))


def test_windows_that_are_cut_before():
    run = "whole += model(tile).mean()"
    program = PROGRAM.format(rows=ROWS, columns=COLUMNS, run=run + MARK, then="pass")
    assert [(row, "XLA212") for row in rows(program, "XLA212")] == sorted(marks(program))
