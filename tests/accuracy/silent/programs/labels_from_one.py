"""Labels count from 1: the last class is out of range, and accepted."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, points, shares
from torch.nn import functional as F
from torch.utils.data import TensorDataset


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = points()
    labelled = TensorDataset(data.tensors[0], data.tensors[1] + 1)
    for x, y in pl.MpDeviceLoader(shares(labelled), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)  # fault
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
