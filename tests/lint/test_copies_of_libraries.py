"""A project that holds a copy of a library which the rules know as it is installed."""

from __future__ import annotations

import textwrap

from tests.lint.rule_helpers import told_in_files

#: A library like transformers, which takes TPUs where they are there.
COPY = {
    "pyproject.toml": "",
    "src/transformers/__init__.py": "from .trainer import Trainer, is_torch_tpu_available\n",
    "src/transformers/modeling_utils.py": "",
    "src/transformers/trainer.py": """
from .collators import collate

def is_torch_tpu_available():
    try:
        import torch_xla.core.xla_model as xm
        return True
    except ImportError:
        return False

if is_torch_tpu_available():
    import torch_xla.core.xla_model as xm

class Trainer:
    def __init__(self, model, args, data_collator=collate):
        self.model, self.data_collator = model.to(args.device), data_collator

    def train(self, loader, optimizer):
        for batch in loader:
            loss = self.model(**batch)
            loss.backward()
            if is_torch_tpu_available():
                xm.optimizer_step(optimizer)
            else:
                optimizer.step()
            print(loss.item())
""",
    "src/transformers/collators.py": "def collate(samples):\n    return samples\n",
}
#: An example of it that has no word of TPUs, as people write them for GPUs.
EXAMPLE = """
from dataclasses import dataclass
from transformers import AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("any")

@dataclass
class Collator:
    tokenizer: AutoTokenizer
    padding: str = "longest"

    def __call__(self, samples):
        return self.tokenizer.pad(samples, padding=self.padding, return_tensors="pt")

collate = Collator(tokenizer)
trainer = Trainer(model=None, args=TrainingArguments("out"), data_collator=collate)
trainer.train()
if trainer.is_world_master():
    print("done")
"""
ASKED = {"XLA101", "XLA103", "XLA209", "XLA905"}


def test_an_example_is_judged_as_if_the_library_were_installed(tmp_path):
    told = told_in_files(tmp_path, COPY | {"examples/run.py": EXAMPLE}, ASKED)
    assert {name for name, *_ in told} == {"src/transformers/trainer.py"}


def test_the_copy_itself_is_told_what_it_does_on_every_step(tmp_path):
    told = told_in_files(tmp_path, COPY, ASKED)
    assert ("src/transformers/trainer.py", 26, "XLA101") in told


def test_an_example_for_tpus_is_still_told(tmp_path):
    for_tpus = EXAMPLE.replace(
        "if trainer", "tpu_num_cores = 8\n\ndef _mp_fn(index):\n    pass\n\nif trainer"
    )
    told = told_in_files(tmp_path, COPY | {"examples/run.py": for_tpus}, ASKED)
    assert ("examples/run.py", 13, "XLA209") in told


def test_what_newer_releases_have_lost_is_told_where_no_copy_is(tmp_path):
    program = {"run.py": EXAMPLE + "\ndef _mp_fn(index):\n    pass\n"}
    assert any(code == "XLA905" for *_, code in told_in_files(tmp_path / "alone", program, ASKED))
    told = told_in_files(tmp_path / "beside", COPY | program, ASKED)
    assert not any(name == "run.py" and code == "XLA905" for name, _, code in told)


LIGHTNING = textwrap.dedent(
    """
    from pytorch_lightning import Trainer
    from pytorch_lightning.strategies import TPUSpawnStrategy

    trainer = Trainer(tpu_cores=8, strategy=TPUSpawnStrategy())
    """
)


def test_a_release_of_lightning_is_asked_for_none_of_a_newer_one(tmp_path):
    copy = {
        "pytorch_lightning/__init__.py": "",
        "pytorch_lightning/trainer/__init__.py": "",
        "pytorch_lightning/strategies.py": "class TPUSpawnStrategy:\n    pass\n",
        "pytorch_lightning/old.py": f"import pytorch_lightning as pl{LIGHTNING}",
        "tests/test_tpu.py": LIGHTNING,
    }
    assert told_in_files(tmp_path / "copy", copy, {"XLA901"}) == set()
    alone = {"test_tpu.py": LIGHTNING}
    assert {code for *_, code in told_in_files(tmp_path / "alone", alone, {"XLA901"})}


def test_a_module_of_that_name_is_the_programs_own(tmp_path):
    """``transformers/`` with blocks of the program's own model is no copy: what it does is seen."""
    files = {
        "transformers/__init__.py": "from .blocks import score\n",
        "transformers/blocks.py": "def score(out):\n    return out.sum().item()\n",
        "train.py": textwrap.dedent(
            """
            import torch
            import torch_xla.core.xla_model as xm
            from transformers import score

            device = xm.xla_device()
            model = torch.nn.Linear(4, 4).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = torch.utils.data.DataLoader([], batch_size=4, drop_last=True)
            for batch in loader:
                out = model(batch.to(device))
                out.sum().backward()
                xm.optimizer_step(optimizer)
                total = score(out)
            """
        ),
    }
    told = told_in_files(tmp_path, files, {"XLA101"})
    assert any(name == "transformers/blocks.py" for name, *_ in told)
