"""GPT-2's pre-training on made-up text: every word predicts the next."""

import argparse

import torch
import torch_xla
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--vocabulary", type=int, default=50304)
parser.add_argument("--bfloat16", action="store_true", help="activations and products in bfloat16")
options = parser.parse_args()

device = torch_xla.device()
config = GPT2Config(
    vocab_size=options.vocabulary, attn_implementation="eager",
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)  # fmt: skip
model = GPT2LMHeadModel(config).to(device).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
for _ in range(20):
    words = torch.zeros(options.batch_size, options.length, dtype=torch.long).to(device)
    following = torch.zeros(options.batch_size, options.length, dtype=torch.long).to(device)
    optimizer.zero_grad()
    with torch.autocast("xla", dtype=torch.bfloat16, enabled=options.bfloat16):
        logits = model(input_ids=words, use_cache=False).logits
    torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten()).backward()
    optimizer.step()
    torch_xla.sync()
