"""``model.module`` where the wrapper of a program for GPUs was left out (XLA801)."""

import pytest

from tests.lint.rule_helpers import rows

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pictures import batches, build


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(x)


def train(index, wrapped):
    device = torch_xla.device()
    model = {made}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(batches(), device):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        xm.optimizer_step(optimizer)
    {saved}


if __name__ == "__main__":
    torch_xla.launch(train, args=(xmp.MpModelWrapper(Net()),))
"""
SAVED = 'xm.save(model.module.state_dict(), "net.pt")'


@pytest.mark.parametrize(
    ("made", "saved", "told"),
    [
        ("Net().to(device)", SAVED, True),
        ("wrapped.to(device)", SAVED, True),
        ("nn.Sequential(nn.Linear(8, 2)).to(device)", SAVED, True),
        ("DistributedDataParallel(Net().to(device), gradient_as_bucket_view=True)", SAVED, False),
        ("build().to(device)", SAVED, False),
        ("Net().to(device)", f'if hasattr(model, "module"): {SAVED}', False),
        ("Net().to(device)", f"if torch.cuda.device_count() > 1: {SAVED}", False),
        ("Net().to(device)", 'xm.save(model.state_dict(), "net.pt")', False),
    ],
)
def test_nothing_keeps_the_model_in_module(made, saved, told):
    program = PROGRAM.format(made=made, saved=saved)
    lines = program.splitlines()
    assert [lines[row - 1].strip() for row in rows(program, "XLA801")] == ([saved] if told else [])


def test_a_class_may_have_one_of_its_own():
    program = PROGRAM.format(made="Net().to(device)", saved=SAVED)
    assert rows(program.replace("self.head", "self.module"), "XLA801") == []
