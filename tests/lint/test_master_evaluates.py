"""A model that the master core alone evaluates, and all cores train: its draws are all cores'."""

from tests.lint.rule_helpers import told_in_files

NET = """\
import torch
from torch import nn


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.paint = nn.Linear(8, 8)

    def forward(self, words):
        noise = torch.randn(words.size(0), 8, device=words.device)
        return self.paint(words) + noise
"""
SCRIPT = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr

from data import pictures
from painter import Painter


def train():
    device = torch_xla.device()
    model = Painter().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    loader = pl.MpDeviceLoader(pictures(), device)
    for epoch in range(4):
{training}
        if xr.global_ordinal() == 0:
            model.eval()
            with torch.no_grad():
                for words, pixels in loader:
                    print(model(words))


def _mp_fn(index):
    train()


if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""
TRAINING = """\
        for words, pixels in loader:
            optimizer.zero_grad()
            loss = (model(words) - pixels).square().mean()
            loss.backward()
            xm.optimizer_step(optimizer)
"""


def test_what_all_cores_train_draws_alike(tmp_path):
    files = {"painter.py": NET, "train.py": SCRIPT.format(training=TRAINING)}
    assert told_in_files(tmp_path, files, {"XLA434"}) == {("painter.py", 11, "XLA434")}


def test_what_the_master_alone_runs_does_not(tmp_path):
    files = {"painter.py": NET, "train.py": SCRIPT.format(training="        torch_xla.sync()")}
    assert told_in_files(tmp_path, files, {"XLA434"}) == set()
