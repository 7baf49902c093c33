"""What models of transformers do in each forward pass on XLA, by their classes: told or not.

They read attention masks on the host, or slice what is shorter than their window. All programs are
invented. ``# !XLA109`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks_of, told

TRAIN = """\
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers import BertModel, GPT2Config, GPT2LMHeadModel
TOP
def main(args, loader):
    device = torch_xla.device()
    model = MADE
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = model(CALL).loss
        loss.backward()
        xm.optimizer_step(optimizer)
"""
MASK = 'batch["ids"], attention_mask=batch["mask"]'
CLASSIFIER = """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel.from_pretrained("bert-base-uncased")
        self.head = nn.Linear(768, 2)
    def forward(self, ids, mask):
        hidden = self.bert(ids, mask).pooler_output  # !XLA109
        return self.head(hidden)
"""
COLLATE = """
def collate(rows, tokenizer):
    return tokenizer([row["text"] for row in rows], padding="max_length", return_tensors="pt")
"""
WITHOUT = """
def collate(rows, tokenizer):
    return tokenizer(rows, padding="max_length", return_attention_mask=False)
"""
WRAPPED = """
def adapt(model):
    model = get_peft_model(model, LoraConfig(r=8))
    return model
"""


def program(made, call=MASK, top="", *, told=True):
    text = TRAIN.replace("MADE", made).replace("CALL", call).replace("TOP", top)
    return text.replace(").loss", ").loss  # !XLA109") if told else text


PROGRAMS = {
    "a new model": program("GPT2LMHeadModel(GPT2Config(n_layer=2))"),
    "a checkpoint by its name": program('AutoModelForCausalLM.from_pretrained("gpt2")'),
    "one that an option names": program("AutoModelForCausalLM.from_pretrained(args.model)"),
    "with adapters": program(
        'adapt(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("x/Llama-3-8B")))',
        top=WRAPPED,
    ),
    "a batch of a tokenizer": program(
        'AutoModelForMaskedLM.from_pretrained("roberta-base")', "**batch", COLLATE
    ),
    "a batch without masks": program(
        'AutoModelForMaskedLM.from_pretrained("roberta-base")', "**batch", WITHOUT, told=False
    ),
    "a batch that is written out": program(
        "GPT2LMHeadModel(GPT2Config())",
        '**{"input_ids": batch[0], "labels": batch[0]}',
        COLLATE,
        told=False,
    ),
    "a module around it": program(
        "Classifier()", 'batch["ids"], batch["mask"]', CLASSIFIER, told=False
    ),
    "no mask": program("GPT2LMHeadModel(GPT2Config())", 'batch["ids"]', told=False),
    "four dimensions": program(
        "GPT2LMHeadModel(GPT2Config())",
        'batch["ids"], attention_mask=batch["mask"][:, None, None, :]',
        told=False,
    ),
    "attention that is written out": program(
        'AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="eager")', told=False
    ),
    "that of encoders asks all the same": program(
        'AutoModelForMaskedLM.from_pretrained("bert-base-uncased", attn_implementation="eager")'
    ),
    "a kind that does not ask": program(
        'AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m")', told=False
    ),
    "under a Trainer, where it is made": """
import torch_xla.core.xla_model as xm
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
def _mp_fn(index):
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    rows = load().map(lambda row: tokenizer(row["text"], padding="max_length", max_length=128))
    model = AutoModelForCausalLM.from_pretrained("gpt2")  # !XLA109
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
""",
    "under a Trainer, an encoder": """
import torch_xla.core.xla_model as xm
from transformers import AutoTokenizer, BertForMaskedLM, Trainer, TrainingArguments
def _mp_fn(index):
    tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    rows = load().map(lambda row: tokenizer(row["text"], padding="max_length", max_length=128))
    model = BertForMaskedLM.from_pretrained("bert-base-uncased")
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()  # !XLA109
""",
    "a model of the program": program("nn.Linear(8, 8)", told=False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_masks_of_transformers(name):
    text = PROGRAMS[name]
    assert told("XLA109", text) == marks_of("XLA109", text)


SLICED = """
import torch
import torch.nn as nn
import torch_xla
block_size = 256
class GPT(nn.Module):
    def generate(self, ids, n):
        for _ in range(n):
            logits = self(ids[:, -block_size:])[:, -1, :]  # !XLA322
            ids = torch.cat((ids, logits.argmax(-1, keepdim=True)), dim=1)
        return ids
    def careful(self, ids, n):
        for _ in range(n):
            window = ids if ids.size(1) <= block_size else ids[:, -block_size:]
            ids = torch.cat((ids, self(window).argmax(-1)[:, -1:]), dim=1)
        return ids
def main():
    device = torch_xla.device()
    model = GPT().to(device)
    start = torch.zeros((1, 1), dtype=torch.long, device=device)
    return model.generate(start, 100), model.careful(start, 100)
main()
"""
WINDOWS = {
    "texts that grow": SLICED,
    "a checkpoint with a window": program(
        'AutoModelForCausalLM.from_pretrained("google/gemma-2-2b")', 'batch["ids"]'
    ),
    "one without": program('AutoModelForCausalLM.from_pretrained("google/gemma-2b")', told=False),
    "a new model": program(
        "transformers.MistralForCausalLM(transformers.MistralConfig(hidden_size=64))",
        'batch["ids"]',
    ),
    "a new model without a window": program(
        "transformers.MistralForCausalLM(transformers.MistralConfig(sliding_window=None))",
        told=False,
    ),
    "no cache": program(
        'AutoModelForCausalLM.from_pretrained("google/gemma-2-2b")',
        'batch["ids"], use_cache=False',
        told=False,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_slices_from_behind(name):
    text = WINDOWS[name].replace("!XLA109", "!XLA322")
    assert told("XLA322", text) == marks_of("XLA322", text)
