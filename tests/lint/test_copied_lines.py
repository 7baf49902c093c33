"""Projects that have of XLA devices what transformers' Trainer and its examples ask, copied."""

from __future__ import annotations

import json

import pytest

from xladoctor.cli.app import main
from xladoctor.lint.launches import Launches
from xladoctor.lint.looked import Looked
from xladoctor.lint.model.copied import only_copied
from xladoctor.lint.model.syntax import Tree

TRAINER = """\
import torch
from transformers import Trainer
from transformers.file_utils import is_torch_tpu_available

if is_torch_tpu_available():
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl


class PairTrainer(Trainer):
    def prediction_loop(self, dataloader, description):
        if is_torch_tpu_available():
            dataloader = pl.ParallelLoader(dataloader, [self.args.device])
        total = 0.0
        for inputs in dataloader:
            with torch.no_grad():
                loss = self.compute_loss(self.model, inputs)
            total += loss.item()
        if self.args.tpu_metrics_debug:
            xm.master_print("done")
        if self.args.fsdp_config["xla"]:
            xm.mark_step()
        return total

    def train(self):
        for inputs in self.get_train_dataloader():
            loss = self.training_step(self.model, inputs)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            if is_torch_tpu_available():
                xm.optimizer_step(self.optimizer)
            else:
                self.optimizer.step()
            print(loss.item())
"""
SCRIPT = """\
from transformers import HfArgumentParser, TrainingArguments

from pairs import PairTrainer


def main():
    [args] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    PairTrainer(model=None, args=args).train()


def _mp_fn(index):
    # For xla_spawn (TPUs)
    main()


if __name__ == "__main__":
    main()
"""


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def lint(capsys, *given):
    assert main(["lint", *map(str, given), "--output-format", "json"]) in {0, 1}
    return {item["code"] for item in json.loads(capsys.readouterr().out)}


PROJECT = {"pyproject.toml": "", "pairs.py": TRAINER, "run.py": SCRIPT}
STARTS = {
    "GPUs, by hand": ({"run.sh": "CUDA_VISIBLE_DEVICES=0 python run.py\n"}, False),
    "GPUs, by PyTorch's old launcher": (
        {"run.sh": "python -m torch.distributed.launch --nproc_per_node 4 run.py\n"},
        False,
    ),
    "GPUs, by DeepSpeed": ({"scripts/run.sh": "deepspeed run.py --fp16\n"}, False),
    "nobody says": ({}, True),
    "TPUs": ({"run.sh": "python xla_spawn.py --num_cores 8 run.py\n"}, True),
    "both": (
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=0 python run.py\n",
            "run_tpu.sh": "python xla_spawn.py --num_cores 8 run.py\n",
        },
        True,
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_copied_lines_count_unless_the_project_is_started_on_gpus(case, capsys, tmp_path):
    scripts, told = STARTS[case]
    write(tmp_path, PROJECT | scripts)
    on_gpus = Launches(Looked(0), str(tmp_path)).of(str(tmp_path)).on_gpus
    assert on_gpus is ("GPUs" in case)
    found = lint(capsys, tmp_path)
    assert ({"XLA101", "XLA303"} <= found) is told
    assert told or not found


def test_what_is_asked_for_is_linted_wherever_it_is_started(capsys, tmp_path):
    write(tmp_path, PROJECT | {"run.sh": "CUDA_VISIBLE_DEVICES=0 python run.py\n"})
    assert "XLA303" in lint(capsys, tmp_path, "--target", "torch_xla")


def test_lines_of_its_own_count_beside_scripts_for_gpus(capsys, tmp_path):
    own = (
        TRAINER
        + "\n    def place(self, use_tpu):\n        return xm.xla_device() if use_tpu else 0\n"
    )
    write(tmp_path, {"pyproject.toml": "", "pairs.py": own, "run.sh": "deepspeed run.py\n"})
    assert "XLA303" in lint(capsys, tmp_path)


OWN = {
    "an import that nothing asks for": "import torch_xla.core.xla_model as xm\n",
    "cores that it starts": SCRIPT.replace("    main()\n\n\nif", "    train(index)\n\n\nif"),
    "a setting": "import transformers\n\nuse_tpu = True\n",
    "a text": "from transformers import Trainer\n\nif Trainer.kind == 'tpu':\n    pass\n",
}


@pytest.mark.parametrize("case", OWN)
def test_what_no_line_of_transformers_says_is_the_programs_own(case):
    assert not only_copied(Tree(OWN[case]))


@pytest.mark.parametrize("text", [TRAINER, SCRIPT])
def test_what_transformers_says_is_not(text):
    assert only_copied(Tree(text))
