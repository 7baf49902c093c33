"""Lengths that nobody chose: default collators, pictures, inputs and targets of one batch."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

MAPPED = """
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments, default_data_collator


def train(net, tok, data, block_size, device=xm.xla_device()):
    def encode(rows):
        return tok(rows["text"], {how})  # !XLA209

    data = data.map(encode, batched=True)
    {made}
"""
LOADED = """loader = DataLoader(data, 1, collate_fn=default_data_collator)
    accelerator = Accelerator()
    net, loader = accelerator.prepare(net, loader)
    for batch in loader:
        accelerator.backward(net(**batch).loss)"""
TRAINER = """arguments = TrainingArguments("out")
    Trainer(net, arguments, train_dataset=data, processing_class=tok{more}).train()"""


@pytest.mark.parametrize("made", [LOADED, TRAINER.format(more="")])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("truncation=True", True),
        ("truncation=True, max_length=block_size", True),
        ('truncation=True, padding="max_length", max_length=128', False),
        ("truncation=True, **how_long", False),
    ],
)
def test_nothing_pads_what_default_collators_are_given(made: str, how: str, told: bool) -> None:
    program = MAPPED.format(how=how, made=made)
    expected = {row for row, _ in marks(program)} if told else set()
    assert set(rows(program, "XLA209")) == expected


@pytest.mark.parametrize(
    "made",
    [
        TRAINER.format(more=", data_collator=collate"),
        "data = data.map(lambda rows: cut(rows, block_size * 2))\n    " + LOADED,
        "data = data.map(make_chunks)\n    " + LOADED,
        "data = data.map(lambda rows: pad_rows(rows))\n    " + LOADED,
        "loader = DataLoader(data, 1)",
    ],
)
def test_collators_blocks_and_padding_of_the_program_are_silent(made: str) -> None:
    assert not rows(MAPPED.format(how="truncation=True", made=made), "XLA209")


PICTURES = """
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


def collate(rows):
    found = feature_extractor.{method}([row[0] for row in rows], return_tensors="pt")
    return {{"pixel_values": found["pixel_values"], "labels": [row[1] for row in rows]}}


loader = DataLoader(data, 8, collate_fn=collate, drop_last=True)
print(xm.xla_device())
"""


@pytest.mark.parametrize(
    ("method", "told"),
    [("pad", True), ("pad_and_create_pixel_mask", True), ("resize", False), ("pad_all", False)],
)
def test_pictures_are_padded_to_the_largest(method: str, told: bool) -> None:
    assert bool(rows(PICTURES.format(method=method), "XLA209")) is told


TWO = """
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


def collate(rows):
    waves = [row[0] for row in rows]
    texts = [row[1] for row in rows]
    long_wave = {wave}
    long_text = max(len(text) for text in texts)  # !XLA209
    x = torch.zeros(len(rows), long_wave, 80)
    y = torch.zeros(len(rows), long_text)
    kept = torch.zeros(len(rows), long_wave)
    for place, (wave, text) in enumerate(zip(waves, texts)):
        x[place, : len(wave)] = wave
        y[place, : len(text)] = text
        kept[place, : len(wave)] = 1
    return x, y, kept


loader = DataLoader(data, 8, collate_fn=collate, drop_last=True)
print(xm.xla_device())
"""


def test_inputs_and_targets_have_a_length_of_their_own() -> None:
    program = TWO.format(wave="max(len(wave) for wave in waves)  # !XLA209")
    assert {x for x in found(program) if x[1] == "XLA209"} == marks(program)
    one = TWO.format(wave="1024")
    assert {x for x in found(one) if x[1] == "XLA209"} == marks(one)


PICKED = """
import torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader


def collate(rows):
    long_wave = max(rows, key=lambda row: row[0].size(0))[0]
    long_text = max(rows, key=lambda row: len(row[1]))[1]
    width = long_wave.size(0)  # !XLA209
    length = len(long_text)  # !XLA209
    x = torch.zeros(len(rows), width, long_wave.size(1))
    y = torch.zeros(len(rows), length)
    return x, y


loader = DataLoader(data, 8, collate_fn=collate, drop_last=True)
print(xm.xla_device())
"""


def test_the_longest_of_each_kind_is_picked() -> None:
    assert {x for x in found(PICKED) if x[1] == "XLA209"} == marks(PICKED)
