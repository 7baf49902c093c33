"""TorchTPU: the device is named tpu, a process for each core, the step compiled."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

CORES = 8


def train(rank, epochs):
    dist.init_process_group("tpu_dist", rank=rank, world_size=CORES)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(net.to("tpu"))
    fast = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = datasets.MNIST("data", transform=transforms.ToTensor())
    sampler = DistributedSampler(dataset, num_replicas=CORES, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=4, drop_last=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(fast(images.to("tpu")), labels.to("tpu"))
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=CORES)
    mp.spawn(train, args=(5,), nprocs=CORES)
