"""One core, a plain loader, uploads and the end of the graph by hand."""

import time

import torch
import torch_xla
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x)


def train_epoch(model, optimizer, data, targets, device):
    running = torch.zeros((), device=device)
    for _ in range(200):
        optimizer.zero_grad()
        predicted = model(data)
        loss = nn.functional.mse_loss(predicted, targets)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        running += loss.detach()
    return running.item() / 200


def evaluate(model, loader, device):
    model.eval()
    squared = torch.zeros((), device=device)
    with torch.no_grad():
        for data, targets in loader:
            squared += ((model(data) - targets) ** 2).mean()
            torch_xla.sync()
    return squared.item() / len(loader)


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = Regressor().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = torch.randn(256, 32, device=device)
    targets = torch.randn(256, 1, device=device)
    test_set = TensorDataset(torch.randn(256, 32), torch.randn(256, 1))
    from torch_xla.distributed.parallel_loader import MpDeviceLoader

    test_loader = MpDeviceLoader(DataLoader(test_set, batch_size=64, drop_last=True), device)
    for epoch in range(3):
        started = time.time()
        loss = train_epoch(model, optimizer, data, targets, device)
        error = evaluate(model, test_loader, device)
        print(f"{epoch}: {loss:.3f} {error:.3f} in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
