"""BatchNorm whose statistics are those of all cores."""

import torch
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch.nn import functional as F


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = xf.SyncBatchNorm(32)


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Normed().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
