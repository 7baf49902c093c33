"""DistributedDataParallel over torch_xla's process group."""

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, models, transforms


def _mp_fn(index, epochs):
    dist.init_process_group("xla", init_method="xla://")
    torch.manual_seed(1)
    device = torch_xla.device()
    model = models.resnet18(num_classes=10).to(device)
    model = DDP(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = datasets.CIFAR10("data", transform=transforms.ToTensor())
    sampler = DistributedSampler(
        dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), shuffle=True
    )
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=4, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        xm.master_print(f"epoch {epoch} is done")


if __name__ == "__main__":
    torch_xla.launch(_mp_fn, args=(10,))
