"""A small centre-point detector."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from shelves import MOST_BOXES, STRIDE


def conv(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class Centers(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down1 = nn.Sequential(conv(3, width, 2), conv(width, width, 2))
        self.down2 = nn.Sequential(conv(width, 2 * width, 2), conv(2 * width, 2 * width))
        self.down3 = nn.Sequential(conv(2 * width, 4 * width, 2), conv(4 * width, 4 * width))
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.heat, self.size = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 2, 1)
        nn.init.constant_(self.heat.bias, -3.0)

    def forward(self, photos):
        a = self.down1(photos)
        b = self.down2(a)
        c = self.down3(b)
        x = F.silu(self.up2(c) + b)
        x = F.silu(self.up1(x) + a)
        return self.heat(x).squeeze(1), F.softplus(self.size(x))


def grid_of(heat):
    rows = torch.arange(heat.size(1), device=heat.device, dtype=torch.float32)
    cols = torch.arange(heat.size(2), device=heat.device, dtype=torch.float32)
    return rows.view(1, 1, -1, 1), cols.view(1, 1, 1, -1)


def render(heat, boxes, counts):
    """Gaussian targets, and for each cell the size of the nearest box."""
    rows, cols = grid_of(heat)
    boxes = boxes / STRIDE
    w, h = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    cx, cy = boxes[..., 0] + w / 2, boxes[..., 1] + h / 2
    real = torch.arange(MOST_BOXES, device=heat.device) < counts.unsqueeze(1)
    spread = (torch.minimum(w, h) / 6).clamp(min=0.8)[..., None, None]
    far = (cols - cx[..., None, None]) ** 2 + (rows - cy[..., None, None]) ** 2
    bells = torch.exp(-far / (2 * spread**2)) * real[..., None, None]
    target, owner = bells.max(dim=1)
    sizes = torch.stack([w, h], dim=1)
    flat = owner.flatten(1).unsqueeze(1).expand(-1, 2, -1)
    return target, sizes.gather(2, flat).view(-1, 2, *heat.shape[1:])


def detection_loss(outputs, boxes, counts):
    heat, size = outputs
    target, want = render(heat, boxes, counts)
    prob = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
    hit = (target > 0.95).float()
    pos = -hit * (1 - prob) ** 2 * prob.log()
    neg = -(1 - hit) * (1 - target) ** 4 * prob**2 * (1 - prob).log()
    n = hit.sum().clamp(min=1)
    near = (target > 0.3).float().unsqueeze(1)
    box = ((size - want).abs() * near).sum() / near.sum().clamp(min=1)
    return (pos + neg).sum() / n, box


def peaks(outputs, k=MOST_BOXES):
    heat, size = outputs
    prob = heat.sigmoid()
    top = F.max_pool2d(prob.unsqueeze(1), 3, 1, 1).squeeze(1)
    score, at = torch.where(prob == top, prob, torch.zeros_like(prob)).flatten(1).topk(k)
    y, x = at // heat.size(2), at % heat.size(2)
    w, h = size.flatten(2).gather(2, at.unsqueeze(1).expand(-1, 2, -1)).unbind(1)
    return score, torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=-1) * STRIDE


def found(outputs, boxes, counts, at_least=0.5, sure=0.3):
    """How many boxes a confident detection covers, and how many boxes there are."""
    score, guess = peaks(outputs)
    low = torch.maximum(guess[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(guess[:, :, None, 2:], boxes[:, None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = lambda b: (b[..., 2:] - b[..., :2]).prod(-1)
    iou = inter / (area(guess)[:, :, None] + area(boxes)[:, None] - inter).clamp(min=1e-6)
    covered = ((iou > at_least) & (score > sure)[:, :, None]).any(1)
    real = torch.arange(MOST_BOXES, device=boxes.device) < counts.unsqueeze(1)
    return (covered & real).sum(), real.sum()
