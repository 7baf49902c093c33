"""What a step over a device loader makes of texts and pictures itself (XLA603)."""

import pytest

from tests.lint.rule_helpers import rows

PROGRAM = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from transformers import AutoTokenizer, CLIPProcessor

from nets import build, pictures_and_texts

device = torch_xla.device()
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
processor = CLIPProcessor.from_pretrained("openai/clip-vit-base-patch32")
net = build().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def encode(values):
    return {encoded}


for pictures, texts in pl.MpDeviceLoader(pictures_and_texts(), device):
    optimizer.zero_grad()
    loss = net({given}).sum()
    loss.backward()
    xm.optimizer_step(optimizer)
"""
TOKENS = 'tokenizer(values, padding="max_length", max_length=32, return_tensors="pt").to(device)'
PIXELS = 'processor(images=values, return_tensors="pt").to(device)'


@pytest.mark.parametrize(
    ("encoded", "given", "row"),
    [
        (TOKENS, "encode(texts)", 17),
        (PIXELS, "encode(pictures)", 17),
        (TOKENS.replace(".to(device)", ""), "texts", None),
        (TOKENS, "texts", None),
    ],
)
def test_a_step_prepares_no_batch(encoded, given, row):
    program = PROGRAM.format(encoded=encoded, given=given)
    assert rows(program, "XLA603") == ([] if row is None else [row])


SAVES = """\
import os
import tempfile

import torch_xla
from transformers import AutoModel


def _mp_fn(index):
    model = AutoModel.from_pretrained("bert-base-uncased")
    tmp_path = {path}
    model.config.save_pretrained(tmp_path)


if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ('os.path.join("out", "tmp")', True),
        ("tempfile.mkdtemp()", False),
        ('f"out/{index}"', False),
        ("make()", False),
    ],
)
def test_a_name_that_speaks_of_temporary_files_is_what_its_line_says(path, told):
    assert rows(SAVES.format(path=path), "XLA406") == ([11] if told else [])
