"""Files that are opened and cut on the host, a detector's boxes after the loop, weights tied."""

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pictures(Dataset):
    def __init__(self, names, labels):
        self.names = names
        self.labels = labels

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        image = Image.open(self.names[index]).convert("RGB").resize((64, 64))
        pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), self.labels[index]


class Autoencoder(nn.Module):
    def __init__(self, width=256, rate=0.1):
        super().__init__()
        self.rate = rate
        self.encode = nn.Linear(3 * 64 * 64, width)
        self.decode = nn.Linear(width, 3 * 64 * 64)
        self.classify = nn.Linear(width, 10)

    def forward(self, images):
        hidden = F.relu(self.encode(images.flatten(1)))
        hidden = F.dropout(hidden, self.rate, training=self.training)
        return self.decode(hidden).view_as(images), self.classify(hidden)


def fit(model, batches, optimizer):
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        restored, scores = model(images)
        loss = F.mse_loss(restored, images) + F.cross_entropy(scores, labels)
        loss.backward()
        xm.optimizer_step(optimizer)


def check(model, batches):
    model.eval()
    with torch.no_grad():
        hits = sum((model(images)[1].argmax(1) == labels).sum() for images, labels in batches)
    return xm.mesh_reduce("hits", int(hits), sum)


def worker(index, names, labels, epochs):
    torch.manual_seed(0)
    device = torch_xla.device()
    model = Autoencoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Pictures(names, labels)
    sampler = DistributedSampler(
        data, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=True
    )
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=8, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        fit(model, batches, optimizer)
        hits = check(model, batches)
        xm.master_print(f"epoch {epoch}: {hits} of {len(data)}")
    xm.save(model.state_dict(), "autoencoder.pt")


if __name__ == "__main__":
    torch_xla.launch(worker, args=(["a.png", "b.png"], [0, 1], 3))
