"""Where a finding names one of several, it is the first in the file, in every run."""

import pytest

from tests.lint.rule_helpers import rows
from xladoctor.lint import engine
from xladoctor.lint.sources import Source

CLASSES = (
    "GPT2LMHeadModel",
    "OPTForCausalLM",
    "BigBirdForCausalLM",
    "BertForMaskedLM",
)


def test_of_several_classes_that_tie_their_weights_the_first_is_named():
    choices = "\n".join(
        f"    if name == {name!r}:\n        model = {name}(config)" for name in CLASSES
    )
    program = f"""\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import {", ".join(CLASSES)}


def train(name, config, batches):
    device = torch_xla.device()
{choices}
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
"""
    result = engine.lint(Source("train.py", program), engine.LintOptions())
    [finding] = [one for one in result.findings if one.code == "XLA306"]
    assert CLASSES[0] in finding.message
    rows = [place.row for place in finding.related]
    assert rows == sorted(rows)
    assert len(rows) == len(CLASSES)


NANO = """\
import torch
import torch_xla.core.xla_model as xm

from {where} import GPT, {config}

device = xm.xla_device()
model = GPT({config}(n_layer=12, n_head=12, n_embd=768))
model.to(device)
optimizer = {optimizer}
for x, y in batches():
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
"""
OWN = "model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), 'xla')"


@pytest.mark.parametrize(
    ("where", "config", "optimizer", "told"),
    [
        ("model", "GPTConfig", OWN, True),
        ("model", "GPTConfig", "torch.optim.AdamW(model.parameters())", True),
        ("model", "GPTConfig", "torch.optim.AdamW(head.parameters())", False),
        ("nets", "GPTConfig", OWN, False),
        ("model", "Config", OWN, False),
    ],
)
def test_nano_gpts_model_ties_its_weights_wherever_it_is_copied(where, config, optimizer, told):
    program = NANO.format(where=where, config=config, optimizer=optimizer)
    assert rows(program, "XLA306") == ([8] if told else [])
