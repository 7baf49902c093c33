"""Training and evaluation in functions of their own, a schedule, the best weights kept."""

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CONFIG = {"epochs": 10, "batch_size": 64, "lr": 1e-3, "seed": 42, "classes": 20}


class Classifier(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.hidden = nn.Linear(256, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        return self.out(F.gelu(self.norm(self.hidden(x))))


def make_loader(inputs, targets, shuffle):
    dataset = TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))
    sampler = DistributedSampler(
        dataset, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=shuffle
    )
    return DataLoader(
        dataset, batch_size=CONFIG["batch_size"], sampler=sampler, num_workers=2, drop_last=True
    )


def train_one_epoch(model, loader, optimizer, criterion, device):
    model.train()
    total = torch.zeros(1, device=device)
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.detach()
    return total.item() / (step + 1)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = torch.zeros(1, device=device)
    seen = 0
    for inputs, targets in loader:
        outputs = model(inputs)
        correct += (outputs.argmax(dim=1) == targets).sum()
        seen += targets.size(0)
    return xm.mesh_reduce("accuracy", correct.item() / seen, np.mean)


def train_model(index, data):
    torch.manual_seed(CONFIG["seed"])
    device = torch_xla.device()
    train_loader = make_loader(data["x"], data["y"], True)
    valid_loader = make_loader(data["x_valid"], data["y_valid"], False)
    train_device_loader = pl.MpDeviceLoader(train_loader, device)
    valid_device_loader = pl.MpDeviceLoader(valid_loader, device)
    model = Classifier(512, CONFIG["classes"]).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=CONFIG["lr"])
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)
    criterion = nn.CrossEntropyLoss()
    best = 0.0
    for epoch in range(CONFIG["epochs"]):
        train_loader.sampler.set_epoch(epoch)
        train_loss = train_one_epoch(model, train_device_loader, optimizer, criterion, device)
        accuracy = evaluate(model, valid_device_loader, device)
        scheduler.step(accuracy)
        xm.master_print(f"{epoch}: {train_loss:.3f} {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            xm.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    arrays = dict(np.load("data.npz"))
    torch_xla.launch(train_model, args=(arrays,))
