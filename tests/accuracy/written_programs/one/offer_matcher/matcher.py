import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import AutoModel


class OfferEncoder(nn.Module):
    """Mean of the last layer, projected to the unit sphere."""

    def __init__(self, base, size=256):
        super().__init__()
        self.text = AutoModel.from_pretrained(base, add_pooling_layer=False)
        self.project = nn.Linear(self.text.config.hidden_size, size)

    def forward(self, input_ids, attention_mask, **_):
        hidden = self.text(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-6)
        return F.normalize(self.project(pooled), dim=-1)


class PairScorer(nn.Module):
    def __init__(self, encoder, size=256, drop=0.15):
        super().__init__()
        self.encoder, self.drop = encoder, drop
        self.wide, self.score = nn.Linear(4 * size, size), nn.Linear(size, 2)

    def features(self, a, b):
        both = torch.cat([a, b, (a - b).abs(), a * b], dim=-1)
        return F.dropout(both, self.drop)

    def forward(self, left, right, labels=None):
        rows = self.features(self.encoder(**left), self.encoder(**right))
        logits = self.score(F.dropout(F.gelu(self.wide(rows)), 0.1, self.training))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
