"""Two models, two optimizers, and a latent that each core draws for itself."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import shares
from torch import nn
from torch.nn import functional as F


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    maker = nn.Linear(8, 16).to(device)
    judge = nn.Linear(16, 1).to(device)
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
    of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
    torch_xla.manual_seed(1 + index)
    for x, _ in pl.MpDeviceLoader(shares(), device):
        made = maker(torch.randn(len(x), 8, device=device))
        of_judge.zero_grad()
        loss = F.softplus(judge(made.detach())).mean() + F.softplus(-judge(x)).mean()
        loss.backward()
        xm.optimizer_step(of_judge)
        of_maker.zero_grad()
        loss = F.softplus(-judge(made)).mean()
        loss.backward()
        xm.optimizer_step(of_maker)


if __name__ == "__main__":
    torch_xla.launch(main)
