"""GPT-2's pre-training on made-up text: every word predicts the next."""

import argparse

import torch
import torch_xla
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--vocabulary", type=int, default=50304)
parser.add_argument("--bfloat16", action="store_true", help="all in bfloat16 but the weights kept")
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
    kept = dict(model.named_parameters())
    used = {name: one.bfloat16() for name, one in kept.items()} if options.bfloat16 else kept
    mask = torch.ones(options.batch_size, options.length, dtype=torch.long, device=device)
    inputs = {"input_ids": words, "attention_mask": mask, "use_cache": False}
    logits = torch.func.functional_call(model, used, kwargs=inputs, tie_weights=True).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten()).backward()
    optimizer.step()
    torch_xla.sync()
