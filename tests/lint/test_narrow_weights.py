"""Weights that are read in bfloat16 and trained at a small rate."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import AutoModelForCausalLM

RATE = 1e-5


def train(batches, teacher):
    model = AutoModelForCausalLM.from_pretrained(
        "some/model",
        torch_dtype=torch.bfloat16,  # !XLA732
    )
    judge = AutoModelForCausalLM.from_pretrained(teacher, torch_dtype=torch.bfloat16)
    model.to(torch_xla.device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize("name", ["torch_dtype", "dtype"])
def test_a_model_that_is_read_in_bfloat16_is_told_at_its_type(name):
    text = PROGRAM.replace("torch_dtype", name)
    assert [(row, "XLA732") for row in rows(text, "XLA732")] == sorted(marks(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch_dtype=torch.bfloat16,  #", "torch_dtype=torch.float32,  #"),
        ("RATE = 1e-5", "RATE = 1e-2"),
        ("torch.optim.AdamW(", "torch.optim.SGD("),
        ("model.parameters(), lr", "get_peft_model(model).parameters(), lr"),
        (
            "import torch_xla.core",
            "import torch_xla.core.functions\nimport peft\nimport torch_xla.core",
        ),
    ],
)
def test_other_types_rates_and_adapters_are_left_alone(old, new):
    assert rows(PROGRAM.replace(old, new), "XLA732") == []


def test_a_model_that_is_only_asked_is_left_alone():
    text = PROGRAM.replace("model.parameters()", "head.parameters()")
    assert rows(text, "XLA732") == []
