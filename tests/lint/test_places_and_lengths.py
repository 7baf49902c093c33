"""Places and lengths that Python knows: rows written in turn, texts, memories, batches, operands.

All programs are invented. ``# !XLA205`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks_of, told

XM = """\
import random
from collections import deque
import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
"""
STEP = """\
        loss.backward()
        xm.optimizer_step(adam, barrier=True)
"""
AGENT = f"""\
{XM}
device = torch_xla.device()
class Agent:
    def __init__(self, net):
        self.net = net.to(device)
        self.adam = torch.optim.Adam(net.parameters())
        self.seen = deque(maxlen=10000)
    def act(self, state):
        return self.net(torch.tensor(state, device=device)).argmax().item()
    def fit(self, rows):
        states, wanted = map(np.array, zip(*rows))
        guess = self.net(torch.tensor(states, device=device))
        F.mse_loss(guess, torch.tensor(wanted, device=device)).backward()
        xm.optimizer_step(self.adam, barrier=True)
    def learn(self):
"""
PLAY = """\
def play(world, agent):
    for episode in range(100):
        state, done = world.reset(), False
        while not done:
            state, reward, done, _ = world.step(agent.act(state))
            agent.seen.append((state, reward))
            agent.learn()
play(None, Agent(torch.nn.Linear(4, 2)))
"""
PROGRAMS = {
    "XLA205: rows that come round again": f"""\
{XM}
def train(model, loader, adam, window, grad_accum):
    device = torch_xla.device()
    model.to(device)
    recent = torch.zeros(window, 2, device=device)
    parts = torch.zeros(grad_accum, device=device)
    many, two = torch.zeros(200, device=device), torch.zeros(2, device=device)
    step = 0
    for images in pl.MpDeviceLoader(loader, device):
        loss = model(images).sum()
{STEP}
        at = step % window
        recent[at] = loss.detach()  # !XLA205
        many[step % 200] = loss.detach()  # !XLA205
        many.select(0, step).copy_(loss.detach())  # !XLA205
        # Two graphs in all, and a few.
        two[step % 2] = loss.detach()
        parts[step % grad_accum] = loss.detach()
        step += 1
""",
    "XLA205: a counter that a closure sees": f"""\
{XM}
def train(model, loader, adam):
    device = torch_xla.device()
    model.to(device)
    losses = torch.zeros(10000, device=device)
    at = 0
    def keep(loss):
        losses[at] = loss  # !XLA205
    def first(loss):
        at = 0
        losses[at] = loss
    for images in pl.MpDeviceLoader(loader, device):
        loss = model(images).sum()
        loss.backward()
        xm.optimizer_step(adam)
        keep(loss.detach())
        first(loss.detach())
        at += 1
""",
    "XLA205: a counter that an object keeps": f"""\
{XM}
class Run:
    def __init__(self, model, loader, adam, every):
        self.device = torch_xla.device()
        self.model, self.adam = model.to(self.device), adam
        self.loader = pl.MpDeviceLoader(loader, self.device)
        self.every, self.step = every, 0
    def fit(self):
        losses = torch.zeros(self.every, device=self.device)
        for images in self.loader:
            at = self.step % self.every
            loss = self.model(images).sum()
            loss.backward()
            xm.optimizer_step(self.adam)
            losses[at] = loss.detach()  # !XLA205
            self.step += 1
""",
    "XLA205: a device that is only named": f"""\
{XM}
def write(model, prompt, most, device):
    model.to(device)
    written = torch.zeros(1, most, dtype=torch.long, device=device)
    length = 1
    while length < most:
        logits = model(written[:, :length])  # !XLA205
        written[:, length] = logits[:, -1].argmax(-1)  # !XLA205
        length += 1
        torch_xla.sync()
    return written
def in_one_graph(model, prompt, most, device):
    model.to(device)
    written = torch.zeros(1, most, device=device)
    for at in range(most):
        written[:, at] = model(prompt)
    torch_xla.sync()
    return written
""",
    "XLA205: slices that end where a text does": f"""\
{XM}
def train(model, rows, tokenizer, adam):
    device = torch_xla.device()
    model.to(device)
    for row in rows:
        text = tokenizer(row["all"], return_tensors="pt", padding="max_length", max_length=512)
        question = tokenizer(row["question"], return_tensors="pt")
        known = min(question["input_ids"].shape[1], 512)
        listed = len(tokenizer(row["question"]).input_ids)
        fixed = tokenizer(row["question"], padding="max_length", max_length=64)
        ids = text["input_ids"].to(device)
        labels = ids.clone()
        labels[:, :known] = -100  # !XLA205
        labels[:, : listed - 1] = -100  # !XLA205
        # Always 64.
        labels[:, : len(fixed["input_ids"])] = -100
        # On the host, before it is moved.
        early = text["input_ids"].clone()
        early[:, :known] = -100
        loss = model(input_ids=ids, labels=labels).loss + early.to(device).sum()
{STEP}
""",
    "XLA206: all that a memory holds": AGENT
    + """\
        if len(self.seen) > 64:
            rows = random.sample(self.seen, 64)
        else:
            rows = self.seen  # !XLA206
        self.fit(rows)
"""
    + PLAY,
    "XLA206: as much of a memory as there is": AGENT
    + """\
        number = min(64, len(self.seen))
        self.fit(random.sample(self.seen, number))  # !XLA206
"""
    + PLAY,
    "XLA206: a memory that is waited for": AGENT
    + """\
        if len(self.seen) < 64:
            return
        self.fit(random.sample(self.seen, min(64, len(self.seen))))
"""
    + PLAY,
    "XLA206: lists that are joined once in so many steps": f"""\
{XM}
def train(model, loader, adam, every):
    device = torch_xla.device()
    model.to(device)
    all_losses, recent, epoch, some = [], [], [], []
    for step, images in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = model(images).sum()
        loss.backward()
        xm.optimizer_step(adam)
        all_losses.append(loss.detach())
        recent.append(loss.detach())
        epoch.append(loss.detach())
        some.append(loss.detach())
        if step % every == 0:
            print(torch.stack(all_losses).mean())  # !XLA206
            print(torch.stack(recent).mean())
            recent = []
        # Once: of the same length in each epoch.
        if (step + 1) % len(loader) == 0:
            print(torch.stack(epoch).mean())
        if step % every == 0 and step > 1000:
            print(torch.stack(some).mean())
            break
""",
    "XLA206 XLA109: a callback that writes a text now and then": f"""\
{XM}
from transformers import Trainer, TrainerCallback, TrainingArguments
class Show(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 500 == 0:
            ids = kwargs["processing_class"]("Once", return_tensors="pt").to(model.device)
            print(model.generate(ids["input_ids"], max_length=50))  # !XLA206
def main(model):
    Trainer(model, TrainingArguments("out", tpu_num_cores=8), callbacks=[Show()]).train()
def _mp_fn(index):
    main(None)
""",
    "XLA206: settings of a list of names": f"""\
{XM}
from transformers import AutoModelForCausalLM
KEYS = ("num_beams", "top_k", "do_sample")
MORE = ("num_beams", "cache_implementation")
def write(loader, settings):
    model = AutoModelForCausalLM.from_pretrained("gpt2").to(torch_xla.device())
    asked = {{key: settings[key] for key in KEYS if key in settings}}
    full = {{key: settings[key] for key in MORE}}
    for ids in loader:
        print(model.generate(ids.to(model.device), **asked))  # !XLA206
        print(model.generate(ids.to(model.device), **full))
        print(model.generate(ids.to(model.device), **settings))
""",
    "XLA209: helpers that measure and that pad": f"""\
{XM}
class Texts:
    def __init__(self, rows, named, most):
        self.rows, self.named, self.most = rows, named, most
    def fill(self, ids, length):
        return list(ids) + [0] * (length - len(ids))
    def collate(self, batch, device=None):
        if self.named:
            rows, names = zip(*batch)
        else:
            rows = batch
        def longest(of):
            if self.most < 0:
                return -self.most
            return min(max(map(len, of)), self.most)
        length = longest(rows)  # !XLA209
        return torch.tensor([self.fill(row, length) for row in rows])
    def collate_fixed(self, batch):
        return torch.tensor([self.fill(row, self.most) for row in batch])
def collate_listed(batch):
    rows = [row["ids"] for row in batch]
    length = max(len(row) for row in rows)  # !XLA209
    rows = [row + [0] * (length - len(row)) for row in rows]
    return torch.tensor(rows)
def collate_sorted(batch):
    batch.sort(key=lambda row: len(row["ids"]), reverse=True)
    full = torch.zeros(len(batch), len(batch[0]["ids"]))  # !XLA209
    for at, row in enumerate(batch):
        full[at, : len(row["ids"])] = torch.tensor(row["ids"])
    return full
def whole_set(rows):
    # All batches have the length of the longest of all.
    length = max(len(row) for row in rows)
    return [padded(row, length) for row in rows]
def padded(row, length):
    return row + [0] * (length - len(row))
def collate_cut(batch):
    return torch.tensor([padded(row, 128)[:128] for row in batch])
def train(model, rows, adam):
    device = torch_xla.device()
    model.to(device)
    texts = Texts(whole_set(rows), True, 128)
    for loader in (
        DataLoader(texts, 8, collate_fn=lambda b: texts.collate(b, device), drop_last=True),
        DataLoader(texts, 8, collate_fn=texts.collate_fixed, drop_last=True),
        DataLoader(texts, 8, collate_fn=collate_listed, drop_last=True),
        DataLoader(texts, 8, collate_fn=collate_sorted, drop_last=True),
        DataLoader(texts, 8, collate_fn=collate_cut, drop_last=True),
    ):
        for batch in pl.MpDeviceLoader(loader, device):
            model(batch).sum().backward()
            xm.optimizer_step(adam)
""",
    "XLA209: padded in the step": f"""\
{XM}
def train(model, groups, adam):
    device = torch_xla.device()
    model.to(device)
    for group in groups:
        rows = [torch.tensor(row) for row in group]
        batch = pad_sequence(rows, batch_first=True).to(device)  # !XLA209
        loss = model(batch).sum()
{STEP}
def train_cut(model, groups, adam):
    device = torch_xla.device()
    model.to(device)
    for group in groups:
        rows = pad_sequence([torch.tensor(row) for row in group], batch_first=True)
        loss = model(F.pad(rows, (0, 128 - rows.shape[1])).to(device)).sum()
{STEP}
def count(groups):
    return sum(pad_sequence([torch.tensor(row) for row in group]).numel() for group in groups)
""",
    "XLA209: tokens that become a tensor as they are": f"""\
{XM}
def train(model, lines, tokenizer, adam, start):
    device = torch_xla.device()
    model.to(device)
    prompt = torch.tensor(tokenizer.encode("Once")).unsqueeze(0).to(device)
    for line in lines:
        tokens = tokenizer.encode(line)  # !XLA209
        if len(tokens) < 2:
            continue
        ids = torch.tensor([start] + tokens, device=device).unsqueeze(0)
        more = torch.tensor(tokenizer.encode(line)).long().unsqueeze(0).to(device)  # !XLA209
        loss = model(ids, more, prompt).sum()
{STEP}
def train_padded(model, lines, tokenizer, adam):
    device = torch_xla.device()
    model.to(device)
    for line in lines:
        tokens = tokenizer.encode(line)
        full = torch.tensor(tokens + [0] * (128 - len(tokens)), device=device)
        again = tokenizer.encode(line, padding="max_length", max_length=64, truncation=True)
        loss = model(full, torch.tensor(again, device=device)).sum()
{STEP}
""",
    "XLA209: iterators of torchtext": """\
import pytorch_lightning as lightning
import torch
from torchtext import data
class Reader(lightning.LightningModule):
    def __init__(self, rows):
        super().__init__()
        self.rows, self.layer = rows, torch.nn.Linear(4, 4)
    def training_step(self, batch, at):
        return self.layer(batch.words).sum()
    def train_dataloader(self):
        return data.BucketIterator(self.rows, batch_size=32)  # !XLA209
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
def main(rows):
    lightning.Trainer(accelerator="tpu", devices=8).fit(Reader(rows))
""",
    "XLA209: iterators of torchtext whose fields have a length": """\
import pytorch_lightning as lightning
import torch
from torchtext import data
WORDS = data.Field(fix_length=64)
class Reader(lightning.LightningModule):
    def __init__(self, rows):
        super().__init__()
        self.rows, self.layer = rows, torch.nn.Linear(4, 4)
    def training_step(self, batch, at):
        return self.layer(batch.words).sum()
    def train_dataloader(self):
        return data.BucketIterator(self.rows, batch_size=32)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
def main(rows):
    lightning.Trainer(accelerator="tpu", devices=8).fit(Reader(rows))
""",
    "XLA201: samples that are skipped": f"""\
{XM}
from torch.utils.data import default_collate
def skips(batch):
    batch = [one for one in batch if one is not None]  # !XLA201
    return default_collate(batch)
def filters(batch):
    batch = list(filter(lambda one: one is not None, batch))  # !XLA201
    if len(batch) == 0:
        return None
    return default_collate(batch)
def fills(batch):
    size = len(batch)
    batch = [one for one in batch if one is not None]
    while len(batch) < size:
        batch.append(batch[0])
    return default_collate(batch)
def repeats(batch):
    kept = [one for one in batch if one is not None]
    kept += kept[:1] * (len(batch) - len(kept))
    return default_collate(kept)
def names(batch):
    known = [one["name"] for one in batch if one["name"] is not None]
    return torch.stack([one["image"] for one in batch]), known
def train(model, rows, adam):
    device = torch_xla.device()
    model.to(device)
    for loader in (
        DataLoader(rows, 8, collate_fn=skips, drop_last=True),
        DataLoader(rows, 8, collate_fn=filters, drop_last=True),
        DataLoader(rows, 8, collate_fn=fills, drop_last=True),
        DataLoader(rows, 8, collate_fn=repeats, drop_last=True),
        DataLoader(rows, 8, collate_fn=names, drop_last=True),
    ):
        for batch in pl.MpDeviceLoader(loader, device):
            model(batch).sum().backward()
            xm.optimizer_step(adam)
""",
    "XLA201: miners of pairs": f"""\
{XM}
from pytorch_metric_learning import losses, miners
def train(model, loader, adam):
    device = torch_xla.device()
    model.to(device)
    miner = miners.MultiSimilarityMiner()
    triplets = losses.TripletMarginLoss().to(device)
    pairs = losses.ContrastiveLoss().to(device)
    proxies = losses.ProxyAnchorLoss(10, 128).to(device)
    for images, labels in pl.MpDeviceLoader(loader, device):
        known = model(images)
        loss = triplets(known, labels, miner(known, labels))  # !XLA201
        loss = loss + pairs(known, labels)  # !XLA201
        loss = loss + proxies(known, labels)
{STEP}
""",
    "XLA208: numbers of PyTorch's dice": f"""\
{XM}
def train(model, loader, adam, table):
    device = torch_xla.device()
    model.to(device)
    rates = torch.linspace(0, 1, 1000).to(device)
    for images in pl.MpDeviceLoader(loader, device):
        at = torch.randint(0, 1000, (1,)).item()
        rate = rates[at]  # !XLA208
        # Numbers in arithmetic are inputs of the graph.
        noise = torch.rand(1).item() * images
        rows = rates[torch.randint(0, 1000, (8,), device=device)]
        loss = (model(images) * rate + noise).sum() + rows.sum()
{STEP}
""",
    "XLA604: places of NumPy's": f"""\
{XM}
def train(model, loader, adam):
    device = torch_xla.device()
    model.to(device)
    for images in pl.MpDeviceLoader(loader, device):
        picked = np.random.choice(images.shape[0], 4)
        some = images[picked]  # !XLA604
        mixed = images[np.random.permutation(8)]  # !XLA604
        half = torch.randperm(8)[:4]
        mixed = mixed + images[half]  # !XLA604
        there = images[torch.randperm(8, device=device)]
        loss = (model(some) + model(mixed) + model(there)).sum()
{STEP}
""",
    "XLA604: operands that went to the CPU": f"""\
{XM}
class Contrast(torch.nn.Module):
    def forward(self, known, labels):
        place = torch.device("cuda") if known.is_cuda else torch.device("cpu")
        same = torch.eq(labels, labels.T).float().to(place)
        others = torch.scatter(torch.ones_like(same), 1, torch.arange(8).view(-1, 1), 0)
        likely = torch.exp(known @ known.T) * others  # !XLA604
        return (likely * others).sum()
class Better(torch.nn.Module):
    def forward(self, known, labels):
        same = torch.eq(labels, labels.T).float().to(known.device)
        places = torch.arange(8, device=known.device).view(-1, 1)
        others = torch.scatter(torch.ones_like(same), 1, places, 0)
        return (torch.exp(known @ known.T) * others).sum()
def train(model, loader, adam):
    device = torch_xla.device()
    model.to(device)
    criterion, better = Contrast(), Better()
    for images, labels in pl.MpDeviceLoader(loader, device):
        loss = criterion(model(images), labels) + better(model(images), labels)
{STEP}
""",
    "XLA604: what the host alone knows": f"""\
{XM}
MEANS = np.array([0.48, 0.45, 0.41])
def train(model, lines, adam):
    device = torch_xla.device()
    model.to(device)
    for line in lines:
        ids = torch.zeros(8, 128, dtype=torch.long)
        for at, row in enumerate(line):
            ids[at, : len(row)] = torch.tensor(row)
        mask = torch.ones(8, 128)
        mask[:, 0] = 0
        means = torch.from_numpy(MEANS).to(device)  # !XLA604
        loss = (model(ids.to(device)) + means).sum()
        loss = loss * mask.to(device)  # !XLA604
{STEP}
""",
    "XLA603: a second batch of a Trainer's step": f"""\
{XM}
import torch_xla.distributed.xla_multiprocessing as xmp
from transformers import Trainer, TrainingArguments
class Pairs(Trainer):
    def __init__(self, *args, bank=None, **settings):
        super().__init__(*args, **settings)
        self.bank = bank
    def others(self, labels):
        rows = [random.choice(self.bank[place]) for place in range(labels.shape[0])]
        return {{"input_ids": torch.tensor(rows)}}
    def training_step(self, model, inputs, number=None):
        inputs = self._prepare_inputs(inputs)
        other = self._prepare_inputs(self.others(inputs["labels"]))  # !XLA603
        again = self._prepare_inputs({{"input_ids": inputs["labels"] + 1}})
        loss = model(**inputs).loss + model(**other).loss + model(**again).loss
        loss.backward()
        return loss.detach()
def _mp_fn(index):
    Pairs(None, TrainingArguments("out", tpu_num_cores=8)).train()
if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_places_and_lengths(name):
    program = PROGRAMS[name]
    assert told(name, program) == marks_of(name, program)


ANSWERS = """
import torch_xla
from transformers import AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, SFTTrainer
tokenizer = AutoTokenizer.from_pretrained("gpt2")
collator = DataCollatorForCompletionOnlyLM("Answer:", tokenizer=tokenizer{more})
SFTTrainer(model=net.to(torch_xla.device()), train_dataset=rows, data_collator=collator).train()
"""


@pytest.mark.parametrize(("more", "told"), [("", 1), (", pad_to_multiple_of=512", 0)])
def test_the_collator_of_old_trl_pads_to_the_longest(more, told):
    assert [code for _, code in found(ANSWERS.format(more=more))].count("XLA209") == told


AGAIN = """
import torch
import torch_xla
from torch.nn.utils.rnn import pad_sequence
def forward(net, batches):
    for rows in batches:
        x = pad_sequence(rows, batch_first=True)
        while x.dim() < 3:
            x = x.unsqueeze(0)
            x = x.long()
        net(x{moved}).sum().backward()
        torch_xla.sync()
forward(torch.nn.Linear(4, 4).to(torch_xla.device()), ROWS)
"""


@pytest.mark.parametrize(("moved", "told"), [(".to(torch_xla.device())", True), ("", False)])
def test_a_padded_batch_that_is_made_of_itself(moved, told):
    assert ("XLA209" in {code for _, code in found(AGAIN.format(moved=moved))}) is told
