"""Weights that the Trainer of transformers shards: no core has a model of its own."""

from __future__ import annotations

import json

import pytest

from xladoctor.cli.app import main
from xladoctor.lint.launches import Launches
from xladoctor.lint.looked import Looked

TUNE = """\
import torch_xla
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def tune(rows):
    args = TrainingArguments("out")
    net = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig())
    Trainer(net, args, train_dataset=rows).train()

def _mp_fn(index):
    tune(ROWS)

if __name__ == "__main__":
    torch_xla.launch(_mp_fn)
"""
SHARDED = TUNE.replace('"out"', '"out", fsdp="full_shard auto_wrap", fsdp_config={"xla": True}')
START = "from tune import tune\n\nif __name__ == '__main__':\n    tune()\n"
FSDP = "--output_dir out --fsdp full_shard --fsdp_config fsdp.json"
CASES = {
    "nobody says": ({}, True),
    "its own arguments": ({"tune.py": SHARDED}, False),
    "its own arguments, off": ({"tune.py": SHARDED.replace('"full_shard auto_wrap"', '""')}, True),
    "a script": ({"run.sh": f"python tune.py {FSDP}\n"}, False),
    "a script without it": ({"run.sh": "python tune.py --output_dir out\n"}, True),
    "several lines": (
        {"run.sh": 'python3 -u tune.py \\\n  --lr 1 \\\n  --fsdp "full_shard offload" \\\n -x\n'},
        False,
    ),
    "one of two": ({"a.sh": f"python tune.py {FSDP}\n", "b.sh": "python tune.py --lr 1\n"}, True),
    "another file": ({"a.sh": f"python other.py {FSDP}\n"}, True),
    "beside another file": ({"a.sh": f"python tune.py {FSDP}\npython score.py --lr 1\n"}, False),
    "what imports it": ({"go.py": START, "a.sh": f"python3.11 src/go.py {FSDP}\n"}, False),
    "a module": ({"a.sh": f"python -m tune {FSDP}\n"}, False),
    "a launcher": ({"a.sh": f"python xla_spawn.py --num_cores 8 tune.py {FSDP}\n"}, False),
    "an array": ({"a.sh": f'o=(\n  {FSDP}\n)\npython tune.py "${{o[@]}}"\n'}, False),
    "an array without it": ({"a.sh": 'o=(\n  --lr 1\n)\npython tune.py "${o[@]}"\n'}, True),
    "a comment": ({"a.sh": f"# python tune.py {FSDP}\n"}, True),
    "an option of that name": ({"a.sh": "python tune.py --fsdp_config fsdp.json\n"}, True),
}


@pytest.mark.parametrize("case", CASES)
def test_adapters_of_models_that_are_sharded_are_the_same_on_all_cores(case, capsys, tmp_path):
    files, told = CASES[case]
    for name, text in {"pyproject.toml": "", "tune.py": TUNE, **files}.items():
        (tmp_path / name).write_text(text)
    assert main(["lint", str(tmp_path), "--output-format", "json"]) in {0, 1}
    found = {item["code"] for item in json.loads(capsys.readouterr().out)}
    assert ("XLA426" in found) is told


def test_what_scripts_start_is_said_for_each_file(tmp_path):
    (tmp_path / "a.sh").write_text(f"torchrun --nproc_per_node 4 a.py {FSDP}\npython b.py\n")
    files = Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).files
    assert files == (("a", True), ("b", False))
