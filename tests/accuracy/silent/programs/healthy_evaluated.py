"""The accuracy of all cores decides what is kept."""

import tempfile

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
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
    model.eval()
    right, seen = torch.zeros((), device=device), torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(shares(), device):
            right += (model(x).argmax(1) == y).sum()
            seen += len(y)
    right, seen = xm.all_reduce("sum", [right, seen])
    xm.master_print(f"accuracy {(right / seen).item():.3f}")
    xm.save(model.state_dict(), f"{tempfile.gettempdir()}/xladoctor-healthy.pt")


if __name__ == "__main__":
    torch_xla.launch(main)
