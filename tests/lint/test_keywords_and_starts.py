"""Keywords that nothing takes, what starts the cores, what is there only if it is asked for.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

HEAD = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

"""


def check(text, *wanted, target=None):
    """Whether the findings of some rules stand where they are marked."""
    given = {} if target is None else {"target": target}
    told = {(row, code) for row, code in found(HEAD + text, **given) if code in wanted}
    assert told == {(row, code) for row, code in marks(HEAD + text) if code in wanted}


KEYWORDS = {
    "a scheduler": "plan = StepLR(optimizer, 1, verbose=True)  # !XLA801",
    "another one, asked not to": "plan = ReduceLROnPlateau(optimizer, verbose=False)  # !XLA801",
    "a typing error": "batches = DataLoader(data, droplast=True)  # !XLA801",
    "the norm's other function": (
        "torch.nn.utils.clip_grad_norm_(model.parameters(), clip_value=1.0)  # !XLA801"
    ),
    "what a device loader hands on": (
        "from torch_xla.distributed.parallel_loader import MpDeviceLoader\n"
        "feed = MpDeviceLoader(DataLoader(data), device, drop_last=True)  # !XLA801\n"
        "more = MpDeviceLoader(DataLoader(data), device, loader_prefetch_size=4)"
    ),
    "one of two loaders": (
        "import torch_xla.distributed.parallel_loader as pl\n"
        "Feed = pl.MpDeviceLoader if data.parts > 1 else pl.ParallelLoader\n"
        "feed = Feed(DataLoader(data), device=device)  # !XLA801"
    ),
    "a setting of older releases": (
        "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP\n"
        "model = FSDP(model, mark_step_on_finalization=True)  # !XLA801"
    ),
    "a dictionary": "settings = {'verbose': True}  # !XLA801\nStepLR(optimizer, 1, **settings)",
    "right ones": (
        "StepLR(optimizer, step_size=1, gamma=0.5)\nDataLoader(data, drop_last=True, num_workers=2)"
    ),
    "a loader of the program": (
        "class DataLoader:\n    def __init__(self, data, droplast):\n        pass\n\n"
        "DataLoader([], droplast=True)"
    ),
    "where it is caught": (
        "try:\n    plan = StepLR(optimizer, 1, verbose=True)\nexcept TypeError:\n"
        "    plan = StepLR(optimizer, 1)"
    ),
}


@pytest.mark.parametrize("line", KEYWORDS.values(), ids=KEYWORDS)
def test_keywords_that_torch_does_not_take(line):
    check(f"device = torch_xla.device()\n{line}\n", "XLA801")


def test_a_scheduler_that_a_class_of_settings_chose():
    check(
        """
class Settings:
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau
    scheduler_params = dict(
        mode="min",
        verbose=False,  # !XLA801
    )
    other_params = dict(mode="min", patience=2)


class Fitter:
    def __init__(self, model, config):
        self.model = model.to(torch_xla.device())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = config.scheduler(self.optimizer, **config.scheduler_params)
        self.other = config.scheduler(self.optimizer, **config.other_params)
""",
        "XLA801",
    )


def test_what_an_older_torch_still_took():
    line = "device = torch_xla.device()\nStepLR(optimizer, 1, verbose=True)\n"
    assert "XLA801" not in {code for _, code in found(HEAD + line, target=(2, 6))}
    assert (
        rows("import torch\n\ntorch.optim.lr_scheduler.StepLR(o, 1, verbose=True)\n", "XLA801")
        == []
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from torch._six import inf", True),
        ("inf = torch._six.inf", True),
        ("values = torch.symeig(matrix)", True),
        ("spectrum = torch.rfft(signal, 1)", True),
        ("values = torch.linalg.eigh(matrix)", False),
        ("try:\n    from torch._six import inf\nexcept ImportError:\n    inf = 1", False),
    ],
)
def test_what_torch_lost(line, told):
    text = f"{HEAD}device = torch_xla.device()\n{line}\n"
    assert ("XLA801" in {code for _, code in found(text)}) is told
    assert rows(f"import torch\n{line}\n", "XLA801") == []  # no program for XLA devices


STATES = """
def resume(model, path, loader):
    device = torch_xla.device()
    model.to(device)
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3{more})
    optimizer.load_state_dict(torch.load(path, map_location="cpu"))
    for state in optimizer.state.values():
        for key, value in state.items():
            if torch.is_tensor(value){test}:
                state[key] = value.to(device)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
        torch_xla.sync()
"""


@pytest.mark.parametrize("optimizer", ["AdamW", "NAdam", "Adagrad"])
def test_a_count_of_steps_that_is_moved_is_read_in_every_step(optimizer):
    text = HEAD + STATES.format(optimizer=optimizer, more="", test="")
    at = next(i for i, line in enumerate(text.splitlines(), 1) if "state[key]" in line)
    assert rows(text, "XLA110") == [at]


@pytest.mark.parametrize(
    ("optimizer", "more", "test"),
    [
        ("SGD", ", momentum=0.9", ""),
        ("AdamW", ", capturable=True", ""),
        ("AdamW", "", " and key != 'step'"),
    ],
)
def test_states_without_a_count_on_the_device(optimizer, more, test):
    text = HEAD + STATES.format(optimizer=optimizer, more=more, test=test)
    assert rows(text, "XLA110") == []


SPAWNED = """
def train(index):
    model = torch.nn.Linear(4, 4).to(xm.xla_device())


{start}
"""


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("xmp.spawn(train)", True),
        ("torch_xla.launch(train)", True),
        ("xmp.spawn(train, start_method='spawn')", True),
        ("def main():\n    xmp.spawn(train)\n\n\nmain()", True),
        ("if os.environ.get('TPU'):\n    xmp.spawn(train)", True),
        ("xmp.spawn(train, start_method='fork')", False),
        ("xmp.spawn(train, nprocs=1)", False),
        ("if __name__ == '__main__':\n    xmp.spawn(train)", False),
        ("def main():\n    xmp.spawn(train)\n\n\nif __name__ == '__main__':\n    main()", False),
        ("get_ipython().system('pip list')\nxmp.spawn(train)", False),
    ],
)
def test_processes_that_come_to_their_own_start_again(start, told):
    assert bool(rows(HEAD + SPAWNED.format(start=start), "XLA408")) is told


SEEDED = """
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM
from accelerate.utils import set_seed


def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default={seed})
    parser.add_argument("--path", type=str{required})
    args = parser.parse_args()
    accelerator = Accelerator()
    {seeding}
    if args.path:
        model = AutoModelForCausalLM.from_pretrained(args.path)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("gpt2"))  # made here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    import torch_xla

    main(None)
"""
ASKED = "if args.seed is not None:\n        set_seed(args.seed)"


@pytest.mark.parametrize(
    ("seed", "seeding", "required", "told"),
    [
        ("None", ASKED, "", True),
        ("None", "if args.seed:\n        set_seed(args.seed)", "", True),
        ("42", ASKED, "", False),
        ("None", "set_seed(args.seed or 42)", "", False),
        ("None", ASKED, ", required=True", False),
    ],
)
def test_a_seed_that_nobody_asked_for_makes_nothing_equal(seed, seeding, required, told):
    text = HEAD + SEEDED.format(seed=seed, seeding=seeding, required=required)
    assert bool(rows(text, "XLA426")) is told


def test_a_sampler_whose_seed_is_the_core_s_number():
    check(
        """
class Trainer:
    def setup(self, data):
        self.device = torch_xla.device()
        rank = dist.get_rank()
        self.seed_offset = rank
        world = dist.get_world_size()
        self.mixed = DistributedSampler(data, num_replicas=world, rank=rank,
                                        seed=self.seed_offset)  # !XLA448
        self.alike = DistributedSampler(data, num_replicas=world, rank=rank, seed=7)
        self.plain = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=False,
                                        seed=self.seed_offset)

    def step(self, optimizer):
        xm.optimizer_step(optimizer)
""",
        "XLA448",
    )


def test_who_asks_for_its_number_is_one_of_several():
    check(
        """
from engine import Engine


class Trainer(Engine):
    def setup(self):
        self.is_main = xm.get_ordinal() == 0
        self.device = xm.xla_device()

    def save(self):
        if not self.is_main:
            return
        xm.save({"model": self.model.state_dict()}, "net.pt")  # !XLA405

    def keep(self):
        xm.save({"model": self.model.state_dict()}, "net.pt")


def on_a_gpu(model, batch):
    model.cuda()
    if xm.is_master_ordinal():
        print(model(batch.cuda()))
    print("done")
""",
        "XLA405",
        "XLA401",
    )


def test_a_step_of_torch_xla_around_what_accelerate_keeps_in_an_object():
    check(
        """
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, other):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.other = other

    def step(self):
        xm.optimizer_step(self.optimizer)  # !XLA904
        xm.optimizer_step(self.other)
""",
        "XLA904",
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", True),
        ("True", True),
        ("enabled=True", True),
        ("device", False),
        ("device, True", False),
    ],
)
def test_autocast_of_torch_xla_takes_the_device_first(given, told):
    text = f"""{HEAD}
from torch_xla.amp import autocast


def step(model, x):
    device = torch_xla.device()
    model.to(device)
    with autocast({given}):
        return model(x.to(device))
"""
    assert len(rows(text, "XLA713")) == 1  # the other says that it works on TPU alone
    assert told is _says(text, "takes the device first")


def _says(text, words):
    from xladoctor.lint import engine, sources

    result = engine.lint(sources.from_bytes(text.encode(), "use.py"), engine.LintOptions())
    return any(words in finding.message for finding in result.findings)


SETTINGS = """
from pytorch_lightning import Trainer

trainer_settings = {
    "max_epochs": 4,
    "weights_summary": "top",  # !XLA901
    "auto_lr_find": True,
    "track_grad_norm": 2,  # !XLA901
}
if torch.cuda.is_available():
    trainer_settings["gpus"] = -1
elif "TPU_NAME" in os.environ:
    trainer_settings["tpu_cores"] = 8  # !XLA901
    trainer_settings["precision"] = 16  # !XLA901
    del trainer_settings["auto_lr_find"]

other_settings = {"max_epochs": 4, "weights_summary": "top", "gpus": 1}
"""


def test_settings_for_a_trainer_that_another_file_makes():
    check(SETTINGS, "XLA901")


def test_modules_of_torch_xla_that_another_function_imports():
    check(
        """
class Engine:
    def __init__(self):
        import torch_xla.core.xla_env_vars as xenv

        self.device = torch_xla.device()

    def start(self, rank):
        os.environ[xenv.HOST_ORDINAL] = str(rank)  # !XLA801
""",
        "XLA801",
    )


def test_two_models_that_tie_in_their_constructors():
    check(
        """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight  # !XLA306


class Other(torch.nn.Module):
    def __init__(self, tie):
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8, bias=False)
        if tie:
            self.head.weight = self.embedding.weight


net = Net().to(torch_xla.device())
""",
        "XLA306",
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('get_ipython().run_cell_magic("bash", "", "echo 1\\nexport XRT_TPU_CONFIG=1\\n")', True),
        ('get_ipython().run_cell_magic("sh", "", "export XLA_USE_BF16=1")', True),
        ('get_ipython().run_cell_magic("time", "", "export = 1")', False),
        ('get_ipython().run_cell_magic("bash", "", "export TPU_DEPS_INSTALLED=true")', False),
        ('get_ipython().run_cell_magic("bash", "", text)', False),
    ],
)
def test_what_a_cell_of_a_shell_exports_ends_with_it(line, told):
    assert bool(rows(f"{HEAD}text = input()\n{line}\n", "XLA701")) is told


def test_functions_of_libraries_that_come_with_a_star():
    check(
        """
import pytorch_lightning as pl
from utilities import *


class Data(pl.LightningDataModule):
    def collate(self, batch):
        texts = pad_sequence([one["text"] for one in batch], batch_first=True)  # !XLA209
        return {"text": texts}

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=8, drop_last=True, collate_fn=self.collate)


trainer = pl.Trainer(accelerator="tpu", devices=8)
""",
        "XLA209",
    )


AGENT = """
class Agent:
    def __init__(self, net):
        self.device = xm.xla_device()
        self.net = net.to(self.device)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.memory = []

    def step(self, observation, action=None):
        observation = observation.to(self.device)
        value = self.net(observation)
        if not torch.isfinite(value).all():  # !XLA104
            return None
        return value

    def _optimize(self, log_metrics=False):
        batch = torch.stack(self.memory).to(self.device)
        loss = self.net(batch).mean()
        if loss.isnan():  # !XLA104
            return None
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        xm.mark_step()
        if not log_metrics:
            return {}
        return {"loss": loss.detach().cpu().item()}

    def learn(self, quiet=True):
        loss = self.net(torch.stack(self.memory).to(self.device)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()  # !XLA101
"""


def test_an_agent_that_another_file_lets_step_and_learn():
    check(AGENT, "XLA104", "XLA101")


def test_who_waits_for_the_first_one_does_not_write_as_well():
    check(
        """
def load(path):
    if not xm.is_master_ordinal():
        xm.rendezvous("data")
    device = xm.xla_device()
    if not os.path.exists(path):
        torch.save(torch.ones(2), path)
    if xm.is_master_ordinal():
        xm.rendezvous("data")
    return torch.load(path)
""",
        "XLA406",
    )
