"""What TRL's Trainers make of answers of all lengths (XLA209)."""

import pytest

from tests.lint.rule_helpers import rows

PROGRAM = """\
import torch_xla
from transformers import AutoModelForCausalLM
from trl import {name}Config, {name}Trainer

from pairs import Padded, answers

print(torch_xla.device())
args = {name}Config("out", max_length=512{more})
trainer = {name}Trainer(  # here
    model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args, train_dataset=answers(){given}
)
trainer.train()
"""


@pytest.mark.parametrize(
    ("name", "more", "given", "told"),
    [
        ("DPO", "", "", True),
        ("Reward", "", "", True),
        ("DPO", ", pad_to_multiple_of=8", "", True),
        ("DPO", ", pad_to_multiple_of=128", "", False),
        ("DPO", "", ", data_collator=Padded()", False),
        ("GRPO", "", "", False),
    ],
)
def test_each_batch_is_padded_to_its_longest_answer(name, more, given, told):
    program = PROGRAM.format(name=name, more=more, given=given)
    row = 1 + next(at for at, line in enumerate(program.splitlines()) if line.endswith("# here"))
    assert rows(program, "XLA209") == ([row] if told else [])
