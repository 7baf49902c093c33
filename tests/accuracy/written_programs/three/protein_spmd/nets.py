import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keep = (~pad)[:, None, None, :]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class Trunk(nn.Module):
    def __init__(self, vocab, d, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocab, d, padding_idx=0)
        self.pos = nn.Parameter(torch.zeros(1, length, d))
        self.layers = nn.ModuleList([Layer(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)

    def forward(self, ids, pad):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x, pad)
        return self.norm(x)


class FoldHead(nn.Module):
    name, target = "ss", "ss"

    def __init__(self, d, classes=8):
        super().__init__()
        self.proj = nn.Linear(d, classes)

    def forward(self, h):
        return self.proj(h)

    def loss(self, out, batch):
        return F.cross_entropy(out.flatten(0, 1), batch["ss"].flatten(), ignore_index=-1)

    def score(self, out, batch):
        known = batch["ss"].ne(-1)
        right = out.argmax(-1).eq(batch["ss"])
        return right[known].float().mean()


class ExposureHead(nn.Module):
    name, target = "rsa", "rsa"

    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(d, 1)

    def forward(self, h):
        return self.proj(h).squeeze(-1).sigmoid()

    def loss(self, out, batch):
        w = (~batch["pad"]).float()
        per_site = F.huber_loss(out, batch["rsa"], reduction="none", delta=0.2)
        return (per_site * w).sum() / w.sum().clamp_min(1.0)

    def score(self, out, batch):
        w = (~batch["pad"]).float()
        return ((out - batch["rsa"]).abs() * w).sum() / w.sum()


def build_heads(d):
    return nn.ModuleDict({h.name: h for h in (FoldHead(d), ExposureHead(d))})
