"""BERT's pre-training on made-up text: masked words at a fixed number of places, next sentence."""

import argparse

import torch
import torch_xla
from transformers import BertConfig, BertModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--masked", type=int, default=75, help="words to predict in a sequence")
parser.add_argument("--vocabulary", type=int, default=32000)
options = parser.parse_args()


class Pretraining(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.bert = BertModel(config)
        self.transform = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)
        )
        self.bias = torch.nn.Parameter(torch.zeros(config.vocab_size))
        self.next_sentence = torch.nn.Linear(width, 2)

    def forward(self, words, segments, places, masked, following):
        out = self.bert(input_ids=words, token_type_ids=segments)
        where = torch.nn.functional.one_hot(places, words.shape[1]).to(torch.float32)
        chosen = self.transform(where @ out.last_hidden_state)
        logits = chosen @ self.bert.embeddings.word_embeddings.weight.t() + self.bias
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), masked.flatten())
        return loss + torch.nn.functional.cross_entropy(
            self.next_sentence(out.pooler_output), following
        )


device = torch_xla.device()
config = BertConfig(vocab_size=options.vocabulary, attn_implementation="eager")
model = Pretraining(config).to(device).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
rows = options.batch_size
for _ in range(20):
    words = torch.zeros(rows, options.length, dtype=torch.long).to(device)
    segments = torch.zeros(rows, options.length, dtype=torch.long).to(device)
    places = torch.zeros(rows, options.masked, dtype=torch.long).to(device)
    masked = torch.zeros(rows, options.masked, dtype=torch.long).to(device)
    following = torch.zeros(rows, dtype=torch.long).to(device)
    optimizer.zero_grad()
    model(words, segments, places, masked, following).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    torch_xla.sync()
