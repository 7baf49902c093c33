import random

import numpy as np
import torch
from torch.utils.data import Dataset, DataLoader
from torch.utils.data.distributed import DistributedSampler

BLOCK = 256


class PackedCorpus(Dataset):
    """uint16 tokens in one memmap; each sample is one block of BLOCK tokens."""

    def __init__(self, path):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.blocks = len(self.tokens) // BLOCK

    def __len__(self):
        return self.blocks

    def __getitem__(self, k):
        piece = self.tokens[k * BLOCK:(k + 1) * BLOCK].astype(np.int64)
        return torch.from_numpy(piece)


def mask_tokens(mask_id, vocab_size, share):
    def collate(rows):
        ids = torch.stack(rows)
        labels = ids.clone()
        chosen = torch.rand(ids.shape) < share
        labels[~chosen] = -100
        noise = torch.randint(vocab_size, ids.shape)
        replace = torch.rand(ids.shape)
        ids = torch.where(chosen & (replace < 0.8), torch.full_like(ids, mask_id), ids)
        ids = torch.where(chosen & (replace > 0.9), noise, ids)
        return {"input_ids": ids, "labels": labels}
    return collate


def loaders(path, batch, collate, world, rank, hold_out=0.01):
    corpus = PackedCorpus(path)
    order = list(range(len(corpus)))
    random.Random(0).shuffle(order)
    cut = int(len(order) * hold_out)
    dev = torch.utils.data.Subset(corpus, order[:cut])
    rest = torch.utils.data.Subset(corpus, order[cut:])
    sampler = DistributedSampler(rest, num_replicas=world, rank=rank, drop_last=True)
    train = DataLoader(rest, batch, sampler=sampler, collate_fn=collate, num_workers=2, drop_last=True)
    held = DataLoader(dev, batch, collate_fn=collate, num_workers=1,
                      sampler=DistributedSampler(dev, num_replicas=world, rank=rank, shuffle=False), drop_last=True)
    return train, held, sampler
