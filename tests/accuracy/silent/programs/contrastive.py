"""A contrastive loss over all cores: the gathered rows have no gradient."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch.nn import functional as F


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, _ in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        left = F.normalize(model(x), dim=1)
        right = F.normalize(model(x + 0.1), dim=1)
        everyone = xm.all_gather(right)  # fault
        own = torch.tensor([index * len(x)]).to(device)
        wanted = torch.arange(len(x), device=device) + own
        loss = F.cross_entropy(left @ everyone.T, wanted)
        loss.backward()
        xm.optimizer_step(optimizer)


if __name__ == "__main__":
    torch_xla.launch(main)
