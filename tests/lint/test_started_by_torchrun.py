"""Scripts that torchrun starts on each core, and pictures that each core writes.

All programs are invented. ``# !XLA406`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

TRAINER = """\
import torch_xla.core.xla_model as xm
{backend}
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

if __name__ == "__main__":
    net = AutoModelForSequenceClassification.from_pretrained("bert-base-cased"){net}
    trainer = Trainer(model=net, args=TrainingArguments("out", optim="adamw_torch_xla"))
    trainer.train()
    scores = trainer.evaluate()
    with open("scores.txt", "w") as file:{write}
        print("written"){shown}
        file.write(str(scores))
"""
PICTURES = """\
import os
import torch_xla
import torch_xla.core.xla_model as xm

def draw(index, pipe, folder):
    picture = pipe("a pond")[0]
    {saved}

torch_xla.launch(draw, args=(PIPE, "out"))
"""
SPLIT = """\
import os
from optimum.neuron import NeuronModelForCausalLM, NeuronTrainer, NeuronTrainingArguments
from transformers import AutoModelForCausalLM, AutoTokenizer

PARTS = {parts}
print("begins"){shown}
settings = NeuronTrainingArguments(output_dir="out", tensor_parallel_size=PARTS)
if not os.path.exists("widened"):
    wide = AutoModelForCausalLM.from_pretrained("gpt2")
    wide.resize_token_embeddings(60000)
    wide.save_pretrained("widened"){saved}
net = NeuronModelForCausalLM.from_pretrained("widened", settings.trn_config)
NeuronTrainer(model=net, args=settings, train_dataset=ROWS).train()
"""
ASKED = {"XLA401", "XLA406", "XLA426"}


def told(program):
    return {(row, code) for row, code in found(program) if code in ASKED}


def test_a_trainer_whose_script_makes_the_backend_known():
    program = TRAINER.format(
        backend="import torch_xla.distributed.xla_backend",
        net="  # !XLA426",
        write="  # !XLA406",
        shown="  # !XLA401",
    )
    assert told(program) == set(marks(program))


def test_a_trainer_that_one_process_runs():
    program = TRAINER.format(backend="", net="", write="", shown="")
    assert told(program) == set()


@pytest.mark.parametrize(
    "saved",
    [
        'picture.save("pond.png")  # !XLA406',
        'picture.save(os.path.join(folder, "pond.jpg"), quality=90)  # !XLA406',
        'picture.save(f"{folder}/pond.webp")  # !XLA406',
        'picture.save(f"{folder}/pond-{index}.png")',
        'picture.save(os.path.join(folder, str(xm.get_ordinal()), "pond.png"))',
        'picture.save("pond")',
        'if index == 0: picture.save("pond.png")',
    ],
)
def test_pictures_of_all_cores(saved):
    program = PICTURES.format(saved=saved)
    assert told(program) == set(marks(program))


def test_a_model_that_is_split_over_cores_has_a_process_on_each():
    program = SPLIT.format(parts=2, shown="  # !XLA401", saved="  # !XLA406")
    assert told(program) == marks(program)
    assert told(SPLIT.format(parts=1, shown="", saved="")) == set()


JOINS = """
import argparse
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend


{decorator}
def teach(net, batches):
    dist.init_process_group("xla")
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in batches:
        net(x.to(device)).sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


def whole(net, batches):
    print("begins"){mark}
    teach(net, batches)
"""


@pytest.mark.parametrize(
    ("decorator", "mark"),
    [("", "  # !XLA401"), ("@torch.enable_grad()", "  # !XLA401"), ("@cluster.task(cores=8)", "")],
)
def test_what_calls_the_function_that_joins_runs_on_each_core_too(decorator, mark):
    text = JOINS.format(decorator=decorator, mark=mark)
    assert told(text) == set(marks(text))


JOINED = """\
import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp

def train():
    dist.init_process_group("xla", init_method="xla://")
    print("trains"){each}

def work(index):
    train()

if __name__ == "__main__":
    print("begins"){script}
    {start}
"""


def test_what_joins_a_group_in_a_program_that_starts_the_cores_itself():
    each = "  # !XLA401"
    program = JOINED.format(each=each, script=each, start="work(0)")
    assert told(program) == marks(program)
    program = JOINED.format(each=each, script="", start="xmp.spawn(work)")
    assert told(program) == marks(program)


def test_a_path_that_is_made_of_itself():
    saved = "folder = folder % index\n    folder = folder.format(index)\n    picture.save(folder)"
    assert told(PICTURES.format(saved=saved)) == set()
    saved = 'path = "%d.png"\n    path = path % index\n    picture.save(path)'
    assert told(PICTURES.format(saved=saved)) == set()


ASKING = """\
import argparse
import os
from pathlib import Path
from datasets import load_dataset, load_from_disk
from optimum.neuron import NeuronTrainer, NeuronTrainingArguments
from transformers import AutoTokenizer

{asks}

def prepare(args):
    folder = Path(args.cache) / "blocks"
    if folder.exists():
        return load_from_disk(str(folder))
    rows = load_dataset(args.rows)
    rows.save_to_disk(str(folder)){saved}
    return rows

def main():
    args = argparse.ArgumentParser().parse_args()
    words = AutoTokenizer.from_pretrained(args.net)
    rows = prepare(args)
    settings = NeuronTrainingArguments(args.out, tensor_parallel_size=args.parts)
    trainer = NeuronTrainer(args=settings, train_dataset=rows)
    trainer.train()
    trainer.save_model(args.out)
    words.save_pretrained(args.out){saved}
    if FIRST:
        words.save_pretrained("beside")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("asks", "several"),
    [
        ('FIRST = int(os.environ.get("RANK", "0")) == 0', True),
        ('COUNT = int(os.environ["WORLD_SIZE"])\nFIRST = os.environ["LOCAL_RANK"] == "0"', True),
        ('FIRST = os.getenv("LOCAL_RANK", "0") == "0"', True),
        ('FIRST = False\nos.environ["WORLD_SIZE_OF_TESTS"]', False),
        ("FIRST = False", False),
    ],
)
def test_a_script_for_neuron_that_asks_which_process_it_is(asks, several):
    program = ASKING.format(asks=asks, saved="  # !XLA406" if several else "")
    assert told(program) == marks(program)
