"""Batches whose shapes change: collate functions, tokenizers, loaders of helpers, drawn sizes."""

from __future__ import annotations

import pytest
from rule_helpers import found, marked, marks, rows, told_in_files

COLLATE = """
import random
import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
from torch.utils.data import DataLoader


{body}


def loader(data):
    device = torch_xla.device()
    return DataLoader(data, batch_size=8, drop_last=True, num_workers=2, collate_fn=collate), device
"""

LONGEST = {
    "sorted by length": """
def collate(rows):
    rows.sort(key=lambda row: len(row), reverse=True)
    wide = len(rows[0])  # here
    out = torch.zeros(len(rows), wide)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out
""",
    "sorted lengths": """
def collate(rows):
    lengths, order = torch.sort(torch.LongTensor([len(row[0]) for row in rows]), descending=True)
    wide = lengths[0]  # here
    text = torch.LongTensor(len(rows), wide)
    text.zero_()
    return text
""",
    "item of a tensor": """
def collate(rows):
    lengths = torch.tensor([row.shape[0] for row in rows])
    wide = lengths.max().item()  # here
    return torch.full((len(rows), wide), 0)
""",
    "kept in a loop": """
def collate(rows):
    wide = 0
    for row in rows:
        wide = max(wide, len(row))  # here
    return torch.zeros(len(rows), wide)
""",
    "of NumPy": """
def collate(rows):
    wide = np.max([len(row) for row in rows])  # here
    return torch.tensor(np.stack([np.pad(row, (0, wide - len(row))) for row in rows]))
""",
    "the longest row": """
def collate(rows):
    wide = len(max(rows, key=len))  # here
    return torch.stack([F.pad(row, (0, wide - len(row))) for row in rows])
""",
    "one that is picked": """
def width(row):
    return row[0].size(1)


def collate(rows):
    widest = max(rows, key=width)[0]
    high = widest.size(0)
    wide = widest.size(1)  # here
    return torch.zeros(len(rows), 1, high, wide)
""",
    "lengths that are gathered": """
def collate(rows):
    lengths = []
    for row in rows:
        lengths.append(row.size(0))
    out = torch.zeros(len(rows), max(lengths))  # here
    return out
""",
    "cut to the shortest": """
def collate(rows):
    short = min(row.shape[-1] for row in rows)  # here
    return torch.stack([row[:, :short] for row in rows])
""",
    "of a list that a loop fills": """
def collate(rows):
    texts, marks = [], []
    for row in rows:
        ids = row["encoding"]["ids"][0]
        texts.append(ids)
        marks.append(row["mark"])
    wide = max(ids.shape[0] for ids in texts)  # here
    out = []
    for ids in texts:
        missing = wide - ids.shape[0]
        out.append(torch.cat([ids, torch.full((missing,), 0)]))
    return torch.stack(out), torch.tensor(marks)
""",
    "of lengths of a list that a loop fills": """
def collate(rows):
    texts = []
    for place, row in enumerate(rows):
        texts.append([1, *row["ids"]])
    wide = max(map(len, texts))  # here
    return torch.tensor([text + [0] * (wide - len(text)) for text in texts])
""",
    "of a list that a helper fills": """
def together(rows, blank):
    texts = list()
    for ids, mark in rows:
        texts.append(ids)
    lengths = [len(ids) for ids in texts]
    wide = max(lengths)  # here
    return torch.stack([F.pad(ids, (0, wide - len(ids)), value=blank) for ids in texts])


def collate(rows):
    return together(rows, 0)
""",
}


@pytest.mark.parametrize("name", LONGEST)
def test_a_length_of_the_batch_however_it_is_computed(name):
    program = COLLATE.format(body=LONGEST[name])
    assert rows(program, "XLA209") == marked(program)


ONE_LENGTH = {
    "rows of one size": """
def collate(rows):
    out = torch.zeros(len(rows), len(rows[0]))
    for place, row in enumerate(rows):
        out[place] = row
    return out
""",
    "rounded": """
def collate(rows):
    lengths = torch.tensor([len(row) for row in rows])
    wide = (lengths.max().item() + 63) // 64 * 64
    return torch.zeros(len(rows), wide)
""",
    "a setting": """
WIDE = 512


def collate(rows):
    lengths = [len(row) for row in rows]
    return torch.zeros(len(rows), WIDE), torch.tensor(lengths)
""",
    "each row drawn": """
def collate(rows):
    parts = []
    for row in rows:
        first = random.randint(0, len(row) - 64)
        parts.append(row[first : first + 64])
    return torch.stack(parts)
""",
    "a list of samples that are padded one by one": """
def collate(rows, size=512):
    texts = []
    for row in rows:
        texts.append(F.pad(row, (0, size - len(row))))
    wide = max(len(text) for text in texts)
    return torch.stack([torch.cat([text, torch.zeros(wide - len(text))]) for text in texts])
""",
    "a list that is filled of itself": """
def collate(rows):
    texts = []
    for text in texts:
        texts.append(text)
    return torch.zeros(len(rows), max(len(text) for text in texts))
""",
    "a list that a loop over settings fills": """
def collate(rows, sizes=(64, 128)):
    marks = []
    for size in sizes:
        marks.append(torch.ones(size))
    wide = max(len(mark) for mark in marks)
    return torch.zeros(len(rows), wide)
""",
}


@pytest.mark.parametrize("name", ONE_LENGTH)
def test_batches_of_one_length_are_left_alone(name):
    program = COLLATE.format(body=ONE_LENGTH[name])
    assert not {code for _, code in found(program)} & {"XLA208", "XLA209"}


DRAWN = """
def collate(rows):
    wide = random.randint(100, 200)
    return torch.stack([row[:, :wide] for row in rows])  # here
"""


def test_a_batch_of_a_drawn_size():
    program = COLLATE.format(body=DRAWN)
    assert rows(program, "XLA208") == marked(program)


KEPT_SIZE = """
import random
import torch
import torch.nn.functional as F
import torch_xla
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, files):
        self.files = files
        self.side = 416
        self.seen = 0

    def __getitem__(self, index):
        return self.files[index]

    def collate(self, pictures):
        if self.seen % 10 == 0:
            self.side = random.choice(range(320, 608, 32))
        self.seen += 1
        parts = [F.interpolate(one[None], size=self.side)[0] for one in pictures]  # here
        return torch.stack(parts)


def loader(files):
    data = Pictures(files)
    device = torch_xla.device()
    return DataLoader(data, batch_size=8, drop_last=True, num_workers=2, collate_fn=data.collate)
"""


def test_a_size_that_the_dataset_draws_for_its_batches():
    assert rows(KEPT_SIZE, "XLA208") == marked(KEPT_SIZE)


def test_a_size_that_never_changes():
    same = KEPT_SIZE.replace("self.side = random.choice(range(320, 608, 32))", "pass")
    assert rows(same, "XLA208") == []


SCALES = """
import random
import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(model, loader, optimizer, base):
    device = torch_xla.device()
    model = model.to(device)
    for x in pl.MpDeviceLoader(loader, device):
        wide = random.randrange(base // 2, base * 2) // 32 * 32
        factor = wide / max(x.shape[2:])
        shape = [int(np.ceil(side * factor / 32) * 32) for side in x.shape[2:]]
        x = F.interpolate(x, size=shape, mode="bilinear")  # !XLA208
        weight = np.random.beta(1.0, 1.0)
        mixed = weight * x
        half = F.interpolate(mixed, size=(mixed.shape[2] // 2, mixed.size(3) // 2))
        model(half).sum().backward()
        optimizer.step()
"""


def test_sizes_that_are_computed_of_a_drawn_one():
    told = {mark for mark in found(SCALES) if mark[1] == "XLA208"}
    assert told == marks(SCALES)


TOKENS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("bert")


def encoded(text, device):
    return tokenizer(text, return_tensors="pt")["input_ids"].to(device)  # !XLA209


def prompt(text, device):
    return tokenizer(text, return_tensors="pt")["input_ids"].to(device)


class Rows:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        return self.tokenizer.pad({"input_ids": rows}, return_tensors="pt")  # !XLA209


class Fixed:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        return self.tokenizer.pad(rows, padding="max_length", max_length=64, return_tensors="pt")


def loaders(data):
    one = DataLoader(data, batch_size=4, drop_last=True, collate_fn=Fixed(tokenizer))
    return one, DataLoader(data, batch_size=4, drop_last=True, collate_fn=Rows(tokenizer))


def train(model, loader, optimizer):
    device = torch_xla.device()
    model.to(device)
    for texts in loader:
        again = model(prompt("one and the same", device)).mean()
        (model(encoded(texts[0], device)).mean() + again).backward()
        xm.optimizer_step(optimizer)
        xm.mark_step()
"""


def test_texts_that_are_tokenized_in_a_helper():
    assert {mark for mark in found(TOKENS) if mark[1] == "XLA209"} == marks(TOKENS)


LOADERS = """
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

KEEP = False


def made(data, workers):
    settings = {"batch_size": 64, "shuffle": True, "num_workers": workers}
    if workers:
        settings["persistent_workers"] = True
    train_loader = DataLoader(data, **settings)  # !XLA203
    whole = dict(batch_size=64, shuffle=True, num_workers=2)
    whole["drop_last"] = True
    return train_loader, DataLoader(data, **whole)


def handed_on(data, **settings):
    train_loader = DataLoader(data, batch_size=64, shuffle=True, **settings)
    return train_loader


def short(data, size, drop=False):
    return DataLoader(data, batch_size=size, shuffle=True, num_workers=2, drop_last=drop)  # !XLA203


def full(data, size, drop=False):
    return DataLoader(data, batch_size=size, shuffle=True, num_workers=2, drop_last=drop)


def of_each_part(parts):
    return {
        name: DataLoader(parts[name], batch_size=32, shuffle=name == "train")  # !XLA203
        for name in ("train", "val")
    }


def drawn_from(data, alone):
    drawn = RandomSampler(data) if alone else DistributedSampler(data)
    return DataLoader(data, sampler=drawn, batch_size=8, num_workers=2)  # !XLA203


def in_order(data):
    return DataLoader(data, sampler=SequentialSampler(data), batch_size=8, num_workers=2)


class Parts:
    def train_batches(self):
        return DataLoader(self.first, batch_size=32, num_workers=2)  # !XLA203

    def other_batches(self):
        return DataLoader(self.second, batch_size=32, num_workers=2)


def of_a_setting(data):
    return DataLoader(data, batch_size=8, shuffle=True, num_workers=2, drop_last=KEEP)  # !XLA203


def main(data, size):
    device = xm.xla_device()
    return short(data, size), full(data, size, drop=True), of_a_setting(data)
"""


def test_what_says_that_a_loader_keeps_its_last_batch():
    assert {mark for mark in found(LOADERS) if mark[1] == "XLA203"} == marks(LOADERS)


def test_a_helper_that_makes_the_loader_for_training(tmp_path):
    files = {
        "data.py": """
from torch.utils.data import DataLoader


def make_loader(data, is_train):
    loader = DataLoader(data, batch_size=64, num_workers=2)
    return loader


def for_evaluation(data):
    return DataLoader(data, batch_size=64, num_workers=2)
""",
        "train.py": """
import torch_xla.core.xla_model as xm
from data import for_evaluation, make_loader


def build(data, more):
    device = xm.xla_device()
    train_loader = make_loader(data, is_train=True)
    val_loader = make_loader(more, is_train=False)
    return train_loader, val_loader, for_evaluation(more), device
""",
    }
    told = {place for place in told_in_files(tmp_path, files) if place[2] == "XLA203"}
    assert told == {("data.py", 6, "XLA203")}


STATIC = """
import torch
import torch_xla
from torch.utils.data import DataLoader


class Texts:
    @staticmethod
    def collate(rows):
        wide = max(row.size(0) for row in rows)  # here
        return torch.stack([torch.cat([row, row.new_zeros(wide - row.size(0))]) for row in rows])


def loader(data):
    device = torch_xla.device()
    return DataLoader(data, batch_size=8, drop_last=True, collate_fn=Texts.collate), device
"""


def test_a_static_method_that_collates():
    assert rows(STATIC, "XLA209") == marked(STATIC)


STOPPED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


def fit(rows, net, sgd, most):
    device = torch_xla.device()
    loader = DataLoader(rows, batch_size=8, shuffle=True)  # !XLA203
    for epoch in range(3):
        for n, (x, y) in enumerate(loader):
            loss = net(x.to(device), y.to(device))
            loss.backward()
            sgd.step()
            torch_xla.sync()
            {stop}
"""


@pytest.mark.parametrize(
    ("stop", "is_told"),
    [
        ("if n == 10: break", False),
        ("if n >= 100:\n                print(epoch)\n                break", False),
        ("if n > 1000: return", False),
        ("if n >= most: break", True),
        ("if n < 10: continue", True),
        ("if n % 10 == 0: print(n)", True),
        (
            "if n == 10:\n                for one in net.children():\n                    break",
            True,
        ),
    ],
)
def test_a_loop_that_stops_at_a_number_comes_to_no_last_batch(stop, is_told):
    program = STOPPED.replace("{stop}", stop)
    assert rows(program, "XLA203") == ([10] if is_told else [])


def test_a_loader_that_its_function_forgets():
    program = """
import torch_xla
from torch.utils.data import DataLoader


def get_train_dataloader(self):
    train_loader = DataLoader(self.rows, batch_size=self.size, shuffle=True)


def make(rows):
    train_loader = DataLoader(rows, batch_size=8, shuffle=True)  # !XLA203
    return {"train": train_loader, "device": torch_xla.device()}


class Fed:
    def __init__(self, rows):
        self.train_loader = DataLoader(rows, batch_size=8, shuffle=True)  # !XLA203
"""
    assert {one for one in found(program) if one[1] == "XLA203"} == marks(program)
