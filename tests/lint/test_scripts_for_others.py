"""Scripts that choose another device themselves, beside a program for XLA devices.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found_in_files, marks

TRAINS = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn


def build(classes, device):
    return nn.Linear(32, classes).to(device)


class Experiment:
    def __init__(self, data):
        self.data = data

    def run(self):
        self.start()
        for self.batch in self.data:
            self.step()

    def run_on_cores(self):
        torch_xla.launch(lambda index: self.run())


def main(index, data):
    device = torch_xla.device()
    model = build(10, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in data:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        print(loss.item())  # !XLA101


if __name__ == "__main__":
    torch_xla.launch(main, args=([],))
"""
EVALUATES = """\
import argparse
import torch
from {module} import build

parser = argparse.ArgumentParser()
parser.add_argument("--device", default={default})


def main(data):
    args = parser.parse_args()
    device = torch.device(args.device)
    model = build(10, device).eval()
    total = 0.0
    with torch.no_grad():
        for images, labels in data:
            scores = model(images.to(device))
            total += torch.nn.functional.cross_entropy(scores, labels.to(device)).item(){told}
    print(total)


if __name__ == "__main__":
    main([])
"""
PLAYS = """\
import torch
from train_tpu import Experiment, build


class Mine(Experiment):
    def start(self):
        self.device = {device}
        self.model = build(10, self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self):
        loss = self.model(self.batch).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        print(loss.item()){told}


if __name__ == "__main__":
    Mine([]).run()
"""


def told(folder, files):
    """(row, code) of what XLA101 says of each file."""
    seen = found_in_files(folder, files)
    return {name: {one for one in seen[name] if one[1] == "XLA101"} for name in files}


@pytest.mark.parametrize(
    ("module", "default", "is_told"),
    [
        ("train_tpu", '"cuda" if torch.cuda.is_available() else "cpu"', False),
        ("train_tpu", '"xla"', True),
    ],
)
def test_what_a_helpers_file_is_called_is_no_word_of_the_script(tmp_path, module, default, is_told):
    mark = "  # !XLA101" if is_told else ""
    script = EVALUATES.format(module=module, default=default, told=mark)
    files = {"train_tpu.py": TRAINS, "evaluate.py": script}
    assert told(tmp_path, files) == {name: marks(text) for name, text in files.items()}


@pytest.mark.parametrize("device", ['torch.device("cpu")', '"cpu"'])
def test_a_script_whose_only_device_is_the_cpu_never_runs_on_another(tmp_path, device):
    script = PLAYS.format(device=device, told="")
    seen = found_in_files(tmp_path, {"train_tpu.py": TRAINS, "play.py": script})
    assert seen["play.py"] == set()


def test_a_script_that_takes_the_device_of_its_data_may_run_on_any(tmp_path):
    script = PLAYS.format(device="next(iter(self.data)).device", told="  # !XLA101")
    files = {"train_tpu.py": TRAINS, "play.py": script}
    assert told(tmp_path, files) == {name: marks(text) for name, text in files.items()}


def test_a_framework_chooses_the_device_whatever_else_the_script_names(tmp_path):
    script = PLAYS.format(device='"cpu"', told="")
    script = script.replace(
        "import torch\n", "import torch\nfrom accelerate import Accelerator\n", 1
    )
    seen = found_in_files(tmp_path, {"train_tpu.py": TRAINS, "play.py": script})
    assert "XLA401" in {code for _, code in seen["play.py"]}
