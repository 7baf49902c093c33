"""Healthy programs of four cores in which a race would show: sharded, layers that run again."""

_HEAD = """\
import torch
import torch_xla
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP, checkpoint_module


"""
_TAIL = """

if __name__ == "__main__":
    torch_xla.launch(train)
"""

#: Name to the program's classes and main function, which prints each core's losses.
_MAINS = {
    # Two checkpointed blocks; the wrapper clips.
    "fsdp-blocks": """\
def train(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    blocks = [
        FSDP(checkpoint_module(torch.nn.Sequential(
            torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.GELU())).to(device))
        for _ in range(2)
    ]
    model = FSDP(torch.nn.Sequential(*blocks, torch.nn.Linear(16, 4)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 16, device=device) * (step + 2)).pow(2).mean()
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    print("core", index, losses, flush=True)
""",
    # A small vision transformer with gradient checkpointing, each block sharded and run again.
    "fsdp-transformer": """\
class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width))

    def forward(self, x):
        normed = self.before(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.after(x))


class Transformer(torch.nn.Module):
    def __init__(self, device, width=16):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 4, 4).to(device)
        self.blocks = torch.nn.Sequential(
            *[FSDP(checkpoint_module(Block(width).to(device))) for _ in range(3)])
        self.norm = torch.nn.LayerNorm(width).to(device)
        self.head = torch.nn.Linear(width, 5).to(device)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def train(index):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = FSDP(Transformer(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.1)
    random = torch.Generator().manual_seed(index)
    losses = []
    for step in range(8):
        images = torch.randn(4, 3, 16, 16, generator=random).to(device)
        labels = torch.randint(5, (4,), generator=random).to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    print("core", index, losses, flush=True)
""",
}

HEALTHY = {name: _HEAD + main + _TAIL for name, main in _MAINS.items()}
