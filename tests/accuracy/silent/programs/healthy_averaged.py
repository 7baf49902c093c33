"""An average of the weights beside the training, evaluated at the end."""

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
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    for x, y in pl.MpDeviceLoader(shares(), device):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        average.update_parameters(model)
    average.eval()
    right = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in pl.MpDeviceLoader(shares(), device):
            right += (average(x).argmax(1) == y).sum()
    total = xm.all_reduce("sum", right).item()
    xm.master_print(total)


if __name__ == "__main__":
    torch_xla.launch(main)
