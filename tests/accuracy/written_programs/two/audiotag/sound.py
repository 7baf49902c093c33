"""Clips, labels and loaders of the bird-sound tagger."""
import csv
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

HOP = 320


class ClipFolder(Dataset):
    """Log-mel patches (mels x frames), computed beforehand; clips last from 2 to 20 seconds."""

    def __init__(self, root, listing, classes, crop=None):
        self.root = Path(root)
        self.classes = classes
        self.crop = crop
        with open(self.root / listing) as f:
            self.rows = list(csv.DictReader(f))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        mel = np.load(self.root / row["file"]).astype(np.float32)
        if self.crop and mel.shape[1] > self.crop:
            start = random.randrange(mel.shape[1] - self.crop)
            mel = mel[:, start : start + self.crop]
        target = torch.zeros(self.classes)
        for tag in row["tags"].split():
            target[int(tag)] = 1.0
        return {"mel": torch.from_numpy(mel), "target": target}


def batch_clips(clips):
    frames = max(clip["mel"].shape[1] for clip in clips)
    frames += -frames % 16
    mel = torch.zeros(len(clips), clips[0]["mel"].shape[0], frames)
    length = torch.zeros(len(clips), dtype=torch.long)
    for i, clip in enumerate(clips):
        n = clip["mel"].shape[1]
        mel[i, :, :n] = clip["mel"]
        length[i] = n
    return {"mel": mel, "length": length, "target": torch.stack([c["target"] for c in clips])}


def loader_for(data, opts, rank, world, training):
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=training, drop_last=training)
    return DataLoader(
        data,
        batch_size=opts["batch_size"],
        sampler=sampler,
        collate_fn=batch_clips,
        num_workers=opts["workers"],
        drop_last=training,
        persistent_workers=True,
    )
