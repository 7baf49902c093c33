"""How programs ask a framework for torch_xla, and where frameworks say what the device is."""

from __future__ import annotations

import pytest
from rule_helpers import codes, rows

GUARDED = """
from transformers import Trainer
from {module} import is_torch_tpu_available

if is_torch_tpu_available():
    import torch_xla.core.xla_model as xm


class Own(Trainer):
    def is_first(self):
        return xm.is_master_ordinal() if is_torch_tpu_available() else True
"""


@pytest.mark.parametrize(
    "module", ["transformers", "transformers.file_utils", "transformers.utils"]
)
def test_the_question_that_asks_for_another_device_today(module):
    assert rows(GUARDED.format(module=module), "XLA905") == [3]


def test_what_each_module_does_with_it():
    from xladoctor.lint import engine
    from xladoctor.lint.sources import Source

    def said(module):
        result = engine.lint(Source("train.py", GUARDED.format(module=module)))
        return next(item.message for item in result.findings if item.code == "XLA905")

    assert "ImportError" in said("transformers.file_utils")
    assert "False" in said("transformers.utils")


@pytest.mark.parametrize(
    "line",
    [
        "from transformers.utils import is_torch_xla_available as is_torch_tpu_available",
        "from .compat import is_torch_tpu_available",
        "from utils import is_torch_tpu_available",
        """try:
    from transformers import is_torch_tpu_available
except ImportError:
    is_torch_tpu_available = bool""",
    ],
)
def test_other_questions(line):
    program = GUARDED.replace("from {module} import is_torch_tpu_available", line)
    assert rows(program, "XLA905") == []


def test_programs_of_the_other_device():
    native = "import torch_tpu\n" + GUARDED.format(module="transformers.utils")
    assert rows(native, "XLA905") == []


def test_a_program_without_xla():
    plain = """
    from transformers.utils import is_torch_tpu_available

    print(is_torch_tpu_available())
    """
    assert codes(plain) == []


def test_the_question_of_accelerate():
    asked = """
    import torch_xla
    from accelerate import Accelerator
    from accelerate.utils import {name}

    if {name}():
        accelerator = Accelerator()
    """
    assert rows(asked.format(name="is_tpu_available"), "XLA906") == [4]
    assert rows(asked.format(name="is_torch_xla_available"), "XLA906") == []


LOADED = """
import torch
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments


class Own(Trainer):
    def resume(self, path):
        self.optimizer.load_state_dict(torch.load(path, map_location={args}))


def main(path):
    accelerator = Accelerator()
    args = TrainingArguments("out")
    first = torch.load(path, map_location={accelerator})
    second = torch.load(path, map_location={own})
    return first, second
"""


def test_loading_onto_the_device_that_a_framework_names():
    there = LOADED.format(
        args="self.args.device", accelerator="accelerator.device", own="args.device"
    )
    assert rows(there, "XLA720") == [10, 16, 17]
    host = LOADED.format(args='"cpu"', accelerator='"cpu"', own='torch.device("cpu")')
    assert rows(host, "XLA720") == []
    plain = there.replace("import torch_xla.core.xla_model as xm\n", "")
    assert rows(plain, "XLA720") == []


SAVED = """
import torch
import torch_xla.core.xla_model as xm
from transformers import Trainer


class Own(Trainer):
    def keep(self, folder):
        if self.is_world_process_zero():
            torch.save(self.optimizer.state_dict(), folder + "/optimizer.pt")
            torch.save(self.lr_scheduler.state_dict(), folder + "/scheduler.pt")

    def one_step(self, inputs):
        self.training_step(self.model, inputs)
        xm.optimizer_step(self.optimizer, barrier=True)
"""


def test_saving_an_optimizer_of_the_device():
    assert rows(SAVED, "XLA721") == [10]


def test_saving_an_optimizer_otherwise():
    assert rows(SAVED.replace("torch.save(self.opt", "xm.save(self.opt"), "XLA721") == []
    elsewhere = SAVED.replace("xm.optimizer_step(self.optimizer, barrier=True)", "xm.mark_step()")
    assert rows(elsewhere, "XLA721") == []


STEPS = """
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from torch.utils.data import DataLoader


def one_step(model, x, y, optimizer, criterion, accelerator):
    loss = criterion(model(x), y)
    {test}
        return None
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()


def main(dataset):
    accelerator = Accelerator()
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset, batch_size=4, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        one_step(model, x, y, optimizer, nn.MSELoss(), accelerator)


def _mp_fn(index):
    main(range(5))
"""


def test_a_core_that_leaves_before_the_step_of_accelerate():
    assert rows(STEPS.format(test="if not torch.isfinite(loss):"), "XLA405") == [14]


def test_all_cores_leave_together():
    gathered = "if not torch.isfinite(accelerator.gather(loss)).all():"
    assert rows(STEPS.format(test=gathered), "XLA405") == []
    assert rows(STEPS.format(test="if accelerator.num_processes == 1:"), "XLA405") == []


TOKENS = """
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 4)

    def forward(self, x):
        return self.last(x)


def write(model, length, device):
    out = torch.zeros(1, length, dtype=torch.long, device=device)
    for at in range(length):
        token = out[:, at]  # here
        scores = model(token)
        {ends}
    return out.cpu()


def grow(model, length, device):
    out = torch.zeros(1, 1, dtype=torch.long, device=device)
    for at in range(length):
        last = out[:, -1:]
        new = model(last).argmax(-1)
        out = torch.cat([out, new], dim=1)
        {ends}
    return out


@torch.no_grad()
def show(prompts):
    device = torch_xla.device()
    model = Net().to(device)
    model.eval()
    for prompt in prompts:
        model(torch.zeros(1, 3, device=device))
        print(write(model, 10, device))
        print(grow(model, 10, device).shape)
"""


def test_tokens_one_graph_each():
    each = TOKENS.format(ends="xm.mark_step()")
    assert 20 in rows(each, "XLA205")
    assert rows(each, "XLA206") == [31]
    assert 23 not in rows(each, "XLA101")  # read once, behind many graphs


def test_tokens_in_one_graph():
    whole = TOKENS.format(ends="pass")
    assert rows(whole, "XLA205") == rows(whole, "XLA206") == []
    assert 23 in rows(whole, "XLA101")


def test_data_of_files_that_are_split():
    program = """
    import torch
    import torch_xla
    import torch_xla.distributed.parallel_loader as pl
    from torch.utils.data import DataLoader, Dataset, random_split

    class Waves(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.load(f"{index}.pt")

    def loaders(data, whole):
        if whole:
            train, rest = data, None
        else:
            train, rest = random_split(data, [7, 1])
        return DataLoader(train, batch_size=2, drop_last=True{more})

    def run(model, optimizer):
        device = torch_xla.device()
        model.to(device)
        for x in pl.MpDeviceLoader(loaders(Waves(), True), device):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """
    assert rows(program.replace("{more}", ""), "XLA606") == [19]
    assert rows(program.replace("{more}", ", num_workers=4"), "XLA606") == []


LISTED = """
import numpy as np
import torch.nn as nn
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(loader, optimizer):
    device = torch_xla.device()
    model = nn.Linear(3, 4).to(device)
    losses, seen = [], {}
    kept = []
    for x, y in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        kept.append(loss.detach())
        seen[len(kept)] = loss.detach()
    print(np.mean(kept))
    print(np.array([x, y]))
    return np.mean([one.item() for one in kept]), np.array(seen), np.mean([1.0, 2.0])
"""


def test_numpy_of_a_list_of_device_tensors():
    assert rows(LISTED, "XLA105") == [20, 21]
    plain = LISTED.replace("import torch_xla\n", "").replace("torch_xla.device()", '"cuda"')
    assert "XLA105" not in codes(
        plain.replace("import torch_xla.distributed.parallel_loader as pl", "")
    )


@pytest.mark.parametrize(
    ("source", "row"),
    [
        ("from transformers.file_utils import is_torch_tpu_available{0}\n", 2),
        ("from transformers import Trainer, is_torch_tpu_available{0}\n", 2),
    ],
)
def test_a_helper_that_only_asks_for_a_tpu_fails_at_its_import(source: str, row: int):
    helper = "import torch\n" + source.format("")
    used = helper + "def cores(args):\n    return 8 if is_torch_tpu_available() else args.n_gpu\n"
    assert rows(used, "XLA905") == [row]
    assert codes(helper) == []  # it may hand the name on, in a program that never asks


def test_a_helper_whose_question_still_exists_is_told_nothing():
    source = """\
import torch
from transformers.utils import is_torch_tpu_available
def cores(args):
    return 8 if is_torch_tpu_available() else args.n_gpu
"""
    assert codes(source) == []
