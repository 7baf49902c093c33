"""Samples of many lengths: texts cut one by one; rows that a helper pads and Fabric moves."""

from __future__ import annotations

import pytest
from rule_helpers import rows

CHUNKS = """
from accelerate import Accelerator, DistributedType
from torch.utils.data import DataLoader
from transformers import default_data_collator


def main(texts, tokenizer, model, optimizer, size):
    accelerator = Accelerator()

    def in_pieces(rows):
        pieces = []
        {cut}
        return {{"input_ids": pieces, "labels": list(pieces)}}

    texts = texts.map(lambda rows: tokenizer(rows["text"]), batched=True)
    data = texts.map(in_pieces, batched=True){then}
    loader = DataLoader(data, batch_size=1, collate_fn=default_data_collator)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.distributed_type == DistributedType.{kind}:
        accelerator.wait_for_everyone()
"""
EACH = """for ids in rows["input_ids"]:
            pieces += [ids[i : i + size] for i in range(0, len(ids), size)]"""
NESTED = """pieces = [
            ids[i : i + size] for ids in rows["input_ids"] for i in range(0, len(ids), size)]"""
JOINED = """ids = sum(rows["input_ids"], [])
        pieces = [ids[i : i + size] for i in range(0, len(ids), size)]"""
WHOLE = """for ids in rows["input_ids"]:
            whole = len(ids) // size * size
            pieces += [ids[i : i + size] for i in range(0, whole, size)]"""
CHOSEN = """for ids in rows["input_ids"]:
            last = len(ids) - size
            pieces += [ids[i : i + size] for i in range(0, len(ids), size) if i <= last]"""
FILLED = """for ids in rows["input_ids"]:
            ids = ids + [tokenizer.pad_token_id] * (-len(ids) % size)
            pieces += [ids[i : i + size] for i in range(0, len(ids), size)]"""


@pytest.mark.parametrize(
    ("cut", "then", "kind", "told"),
    [
        (EACH, "", "XLA", [13]),
        (NESTED, "", "XLA", [12]),
        (EACH, '.filter(lambda row: len(row["input_ids"]) > 8)', "XLA", [13]),
        (EACH, '.filter(lambda row: len(row["input_ids"]) == size)', "XLA", []),
        (EACH, "", "FSDP", []),
        (JOINED, "", "XLA", []),
        (WHOLE, "", "XLA", []),
        (CHOSEN, "", "XLA", []),
        (FILLED, "", "XLA", []),
    ],
)
def test_texts_that_are_cut_one_by_one(cut, then, kind, told):
    assert rows(CHUNKS.format(cut=cut, then=then, kind=kind), "XLA209") == told


PADDED = """
import lightning as L
import torch


def batch_of(fabric, rows, length):
    picked = torch.randint(len(rows), (4,))
    inputs = [rows[i]["inputs"].type(torch.int64) for i in picked]

    def filled(row, value):
        return {back}

    x = torch.stack([filled(row, 0) for row in inputs])
    y = torch.stack([filled(row, 1) for row in inputs])
    x, y = fabric.to_device((x, y))
    return x, y


def train(fabric, model, optimizer, rows, length):
    for step in range(1000):
        x, y = batch_of(fabric, rows, length)
        fabric.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()


def main(rows, model, optimizer):
    fabric = L.Fabric(accelerator="tpu", devices=8)
    fabric.launch()
    model, optimizer = fabric.setup(model, optimizer)
    train(fabric, model, optimizer, rows, 256)
"""


@pytest.mark.parametrize(
    ("back", "told"),
    [
        ("torch.cat((row, torch.full((length - len(row),), value)))", [15]),
        ("torch.nn.functional.pad(row, (0, length - len(row)), value=value)", [15]),
        ("torch.full((length,), value, device=fabric.device)", []),
    ],
)
def test_rows_that_a_helper_pads_before_fabric_moves_them(back, told):
    assert rows(PADDED.format(back=back), "XLA603") == told
