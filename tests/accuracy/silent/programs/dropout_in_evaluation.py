"""The functional dropout does not know that the model evaluates."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from common import Net, shares
from torch.nn import functional as F


class Dropping(Net):
    def forward(self, x):
        hidden = self.norm(self.body(x)).relu()
        return self.head(F.dropout(hidden, 0.1))  # fault


def main(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Dropping().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch_xla.manual_seed(1 + index)
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
    model.eval()
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(shares(), device):
            right += (model(x).argmax(1) == y).sum()
    total = xm.all_reduce("sum", right).item()
    xm.master_print(total)


if __name__ == "__main__":
    torch_xla.launch(main)
