# Class conditional DDPM on Oxford flowers, 64x64, 8 cores.
import argparse
import copy
import itertools
import json
import math
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torchvision
from diffusers import UNet2DModel
from torch.utils.data import ConcatDataset, DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T

import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


@dataclass
class Shot:
    image: torch.Tensor
    species: torch.Tensor

    @property
    def count(self):
        return self.image.shape[0]


def shoot(rows):
    images, species = zip(*rows)
    return Shot(image=torch.stack(images), species=torch.tensor(species))


class Noising(torch.nn.Module):
    """Cosine schedule and the weights of min-SNR."""

    def __init__(self, steps, gamma=5.0):
        super().__init__()
        u = torch.linspace(0, 1, steps + 1)
        f = torch.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
        abar = (f[1:] / f[0]).clamp(1e-5, 0.9999)
        snr = abar / (1 - abar)
        self.steps = steps
        self.register_buffer("signal", abar.sqrt())
        self.register_buffer("sigma", (1 - abar).sqrt())
        self.register_buffer("weight", snr.clamp(max=gamma) / snr)

    def draw(self, image):
        n = image.shape[0]
        t = torch.randint(0, self.steps, (n,), device=image.device)
        eps = torch.randn_like(image)
        a, s = self.signal[t].view(n, 1, 1, 1), self.sigma[t].view(n, 1, 1, 1)
        return dict(sample=a * image + s * eps, timestep=t), eps

    def loss(self, pred, eps, timestep):
        per = (pred - eps).pow(2).flatten(1).mean(1)
        return (per * self.weight[timestep]).mean()


def unet(classes):
    return UNet2DModel(
        sample_size=64,
        in_channels=3,
        out_channels=3,
        layers_per_block=2,
        block_out_channels=(128, 256, 384, 512),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        num_class_embeds=classes + 1,
    )


def flowers(root):
    tf = T.Compose([T.Resize(72), T.RandomCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    get = lambda split: torchvision.datasets.Flowers102(root, split=split, transform=tf, download=True)
    return ConcatDataset([get("train"), get("test")]), get("val")


def epochs(batches, sampler):
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield batches


@torch.no_grad()
def follow(shadow, model, decay):
    for a, b in zip(shadow.parameters(), model.parameters()):
        a.lerp_(b, 1 - decay)


def held_out(net, noising, batches, limit):
    net.eval()
    sums, n = 0, 0
    for shot in itertools.islice(batches, limit):
        inputs, eps = noising.draw(shot.image)
        pred = net(**inputs, class_labels=shot.species).sample
        sums = sums + F.mse_loss(pred, eps) * shot.count
        n += shot.count
    net.train()
    return sums.item() / n


def main(index, args):
    rank, world = xr.global_ordinal(), xr.world_size()
    device = xm.xla_device()
    train, val = flowers(args.root)
    sampler = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, drop_last=True)
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler, collate_fn=shoot, num_workers=4, drop_last=True)
    batches = pl.MpDeviceLoader(loader, device)
    val_batches = pl.MpDeviceLoader(DataLoader(val, batch_size=args.batch, collate_fn=shoot, num_workers=4), device)

    torch.manual_seed(args.seed)
    net = unet(args.classes).to(device)
    ema = copy.deepcopy(net).requires_grad_(False)
    noising = Noising(args.diffusion_steps).to(device)
    torch.manual_seed(args.seed + rank)
    xm.set_rng_state(args.seed + 1000 * rank)
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, betas=(0.9, 0.99))
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        with open(os.path.join(args.out, "args.json"), "w") as f:
            json.dump(vars(args), f)

    net.train()
    skipped, running = 0, torch.zeros((), device=device)
    stream = itertools.chain.from_iterable(epochs(batches, sampler))
    for step, shot in zip(range(1, args.steps + 1), stream):
        inputs, eps = noising.draw(shot.image)
        blank = torch.rand(shot.count, device=device) < args.drop_label
        species = torch.where(blank, args.classes, shot.species)
        optimizer.zero_grad()
        pred = net(**inputs, class_labels=species).sample
        loss = noising.loss(pred, eps, inputs["timestep"])
        loss.backward()
        xm.reduce_gradients(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        optimizer.step()
        if norm > args.wild:
            skipped += 1
        else:
            follow(ema, net, min(args.decay, step / (step + 10)))
        running = running * 0.99 + loss.detach() * 0.01

        if step % args.check:
            continue
        xm.mark_step()
        if rank == 0:
            value = held_out(net, noising, val_batches, args.val_batches)
            print(f"{step}: train {running.item():.4f} held out {value:.4f} wild steps {skipped}", flush=True)
            state = {"step": step, "args": vars(args), "net": net.state_dict(), "ema": ema.state_dict()}
            torch.save(state, os.path.join(args.out, f"{step:07d}.pt"))
        xm.rendezvous("check")


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--root", default="/tmp/flowers")
    p.add_argument("--out", default="/tmp/flowers-ddpm")
    p.add_argument("--classes", type=int, default=102)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=200_000)
    p.add_argument("--check", type=int, default=5000)
    p.add_argument("--val-batches", type=int, default=16)
    p.add_argument("--diffusion-steps", type=int, default=1000)
    p.add_argument("--drop-label", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--decay", type=float, default=0.9995)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--wild", type=float, default=25.0)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


if __name__ == "__main__":
    xmp.spawn(main, args=(options(),))
