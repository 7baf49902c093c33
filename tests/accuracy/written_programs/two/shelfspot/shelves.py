"""Photos of shop shelves with boxes of products (one class)."""
import json
import os

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

MOST_BOXES = 120
STRIDE = 4

_photo = v2.Compose(
    [
        v2.Resize(512, max_size=896, antialias=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.47, 0.44, 0.41), (0.26, 0.25, 0.26)),
    ]
)


class Shelves(Dataset):
    def __init__(self, root, part):
        self.root = root
        with open(os.path.join(root, part + ".json")) as f:
            self.items = json.load(f)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        raw = decode_jpeg(read_file(os.path.join(self.root, item["file"])), mode=ImageReadMode.RGB)
        photo = _photo(raw)
        scale = photo.shape[-1] / raw.shape[-1]
        boxes = torch.tensor(item["boxes"], dtype=torch.float32).reshape(-1, 4) * scale
        keep = (boxes[:, 2] - boxes[:, 0]) > 2
        return photo, boxes[keep][:MOST_BOXES]


def fit_boxes(boxes):
    out = torch.zeros(MOST_BOXES, 4)
    out[: len(boxes)] = boxes
    return out, len(boxes)


def stack_photos(samples):
    photos, boxes = zip(*samples)
    height = max(p.shape[1] for p in photos)
    width = max(p.shape[2] for p in photos)
    height, width = (-(-side // 32) * 32 for side in (height, width))
    canvas = torch.zeros(len(photos), 3, height, width)
    for i, photo in enumerate(photos):
        canvas[i, :, : photo.shape[1], : photo.shape[2]] = photo
    fitted, counts = zip(*map(fit_boxes, boxes))
    return canvas, torch.stack(fitted), torch.tensor(counts)


def loaders(root, batch, rank, world, workers):
    train, valid = Shelves(root, "train"), Shelves(root, "valid")
    common = dict(num_workers=workers, collate_fn=stack_photos)
    mixed = DistributedSampler(train, world, rank, shuffle=True, drop_last=True)
    fixed = DistributedSampler(valid, world, rank, shuffle=False)
    return (
        DataLoader(train, batch, sampler=mixed, drop_last=True, **common),
        DataLoader(valid, batch, sampler=fixed, **common),
    )
