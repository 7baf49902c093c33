"""Names -> things. Everything that a config file can ask for registers itself here."""
import torch
import torch.nn as nn

_TABLE = {}


def register(kind, name=None):
    def keep(obj):
        _TABLE.setdefault(kind, {})[name or obj.__name__.lower()] = obj
        return obj
    return keep


def make(kind, spec, **extra):
    spec = dict(spec)
    cls = _TABLE[kind][spec.pop("type")]
    return cls(**spec, **extra)


@register("model")
class BagOfGrams(nn.Module):
    def __init__(self, vocab, dim, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        seen = ids.ne(0).unsqueeze(-1).float()
        return self.head((self.embed(ids) * seen).sum(1) / seen.sum(1).clamp(min=1.0))


@register("model")
class ConvText(nn.Module):
    def __init__(self, vocab, dim, classes, widths=(3, 5, 7)):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, dim, w, padding=w // 2) for w in widths)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(dim * len(widths), classes)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        pooled = [conv(x).relu().amax(dim=-1) for conv in self.convs]
        return self.head(self.drop(_cat(pooled)))


def _cat(parts):
    return torch.cat(parts, dim=1)
