"""What an engine keeps in attributes is asked as what a function keeps in names.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

from rule_helpers import found, marks

HEAD = """\
import argparse
import copy

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
import torch_xla.distributed.parallel_loader as xpl
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.data import DataLoader

"""


def check(text, *wanted):
    """Whether the findings of some rules stand where they are marked."""
    told = {(row, code) for row, code in found(HEAD + text) if code in wanted}
    assert told == {(row, code) for row, code in marks(HEAD + text) if code in wanted}


ENGINE = """\
class Engine:
    def __init__(self, net, loader):
        self.net = net
        self.loader = loader

    def work(self, rank):
        device = torch_xla.device()
        {move}
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in xpl.MpDeviceLoader(self.loader, device):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(x), y).backward()
            xm.optimizer_step(optimizer)

    def fit(self):
        xmp.spawn(self.work)


def main(net, loader):
    Engine(net, loader).fit()
"""


def test_a_model_that_an_engine_is_given_is_one_for_the_cores_of_a_process():
    check(ENGINE.format(move="self.net.to(device)  # !XLA424"), "XLA424")
    check(ENGINE.format(move="self.net = copy.deepcopy(self.net).to(device)"), "XLA424")


WORKER = """\
class Engine:
    def __init__(self, net, loader):
        self.net = net
        self.loader = loader

    def fit(self):
        device = torch_xla.device()
        self.net.to(device){mark}
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in xpl.MpDeviceLoader(self.loader, device):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(x), y).backward()
            xm.optimizer_step(optimizer)


{made}
loader = DataLoader(rows, batch_size=8)


def worker(rank):
    {own}
    Engine({given}, loader).fit()


if __name__ == "__main__":
    xmp.spawn(worker)
"""


def test_a_model_of_the_module_that_each_core_puts_into_an_engine():
    shared = {"made": "net = nn.Linear(8, 8)", "own": "torch.manual_seed(0)", "given": "net"}
    check(WORKER.format(mark="  # !XLA424", **shared), "XLA424")
    own = {"made": "", "own": "own = nn.Linear(8, 8)", "given": "own"}
    check(WORKER.format(mark="", **own), "XLA424")


def test_arguments_of_a_trainer_that_an_object_parses_or_is_given():
    check(
        """\
from transformers import HfArgumentParser, TrainingArguments


class Run:
    def __init__(self):
        self.parser = HfArgumentParser((Options, TrainingArguments))
        self.options, self.training_args = self.parser.parse_args_into_dataclasses()

    def folder(self):
        if self.training_args.overwrite_output_dir:  # !XLA905
            return self.options.overwrite_output_dir


class Other:
    def __init__(self, args: TrainingArguments, more: Options):
        self.args = args
        self.more = more

    def folder(self):
        return self.args.overwrite_output_dir or self.more.overwrite_output_dir  # !XLA905
""",
        "XLA905",
    )


def test_arguments_taken_from_what_a_parser_gives_by_their_place():
    check(
        """\
from transformers import HfArgumentParser, TrainingArguments

parser = HfArgumentParser((Options, TrainingArguments))
options = parser.parse_args_into_dataclasses()[0]
args = parser.parse_args_into_dataclasses()[1]
both = parser.parse_args_into_dataclasses()
last = parser.parse_args_into_dataclasses()[-1]
if args.overwrite_output_dir:  # !XLA905
    print(options.overwrite_output_dir, both.overwrite_output_dir, last.overwrite_output_dir)
""",
        "XLA905",
    )


SEEDED = """\
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM, set_seed


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default={default})
    parser.add_argument("--config")
    return parser.parse_args()


class Run:
    def run(self):
        self.args = parse_args()
        self.accelerator = Accelerator()
        if self.args.seed is not None:
            set_seed(self.args.seed)
        config = AutoConfig.from_pretrained(self.args.config)
        self.net = AutoModelForCausalLM.from_config(config){mark}
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.loader = DataLoader(rows, batch_size=8)
        self.net, self.optimizer, self.loader = self.accelerator.prepare(
            self.net, self.optimizer, self.loader
        )
        for batch in self.loader:
            self.accelerator.backward(self.net(**batch).loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            xm.mark_step()


def _mp_fn(index):
    Run().run()
"""


def test_a_seed_of_settings_that_an_object_keeps():
    check(SEEDED.format(default="None", mark="  # !XLA426"), "XLA426")
    check(SEEDED.format(default="0", mark=""), "XLA426")


LOADED = """\
class Rows(torch.utils.data.Dataset):
    def __init__(self, files, **settings):
        self.files = files
        self.settings = settings

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return torch.load(self.files[i])


class Engine:
    def __init__(self, net, files):
        self.net = net
        self.rows = {rows}
        self.loader = DataLoader(self.rows, batch_size=8, drop_last=True){mark}

    def fit(self):
        device = torch_xla.device()
        net = self.net().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in xpl.MpDeviceLoader(self.loader, device):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            xm.optimizer_step(optimizer)


def worker(rank, files):
    Engine(Net, files).fit()


if __name__ == "__main__":
    xmp.spawn(worker, args=(files,))
"""


def test_a_dataset_that_an_object_keeps_may_be_a_part():
    check(LOADED.format(rows="Rows(files)", mark="  # !XLA402"), "XLA402")
    own = "Rows(files, replicas=xr.world_size(), rank=xr.global_ordinal())"
    check(LOADED.format(rows=own, mark=""), "XLA402")


CLIPPED = """\
def step(net, optimizer):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0){mark}
    xm.optimizer_step(optimizer)


def first(net, optimizer):
    step(net, optimizer)


def second(net, optimizer):
    first(net, optimizer)


def third(net, optimizer):
    second(net, optimizer)


def fourth(net, optimizer):
    third(net, optimizer)


def fifth(net, optimizer):
    fourth(net, optimizer)


def main(net, loader):
    net.to(torch_xla.device())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in xpl.MpDeviceLoader(loader, torch_xla.device()):
        nn.functional.cross_entropy(net(x), y).backward()
        fifth(net, optimizer)


{start}
"""


def test_one_core_however_many_functions_are_on_the_way():
    check(CLIPPED.format(mark="", start="main(net, loader)"), "XLA303")
    spawned = "def worker(rank):\n    main(Net(), loader)\n\n\nxmp.spawn(worker)"
    check(CLIPPED.format(mark="  # !XLA303", start=spawned), "XLA303")


def test_a_trainer_that_is_declared():
    check(
        """\
import lightning.pytorch as pl


class Adapter:
    def __init__(self, trainer: pl.Trainer | None = None, other=None):
        self._trainer = trainer
        self._other = other

    def cores(self):
        return self._trainer.tpu_cores or self._other.tpu_cores  # !XLA910


def count(trainer: pl.Trainer):
    return trainer.num_gpus  # !XLA910


def fit(net, loader):
    trainer = pl.Trainer(accelerator="tpu", devices=8)
    trainer.fit(net, loader)
    return count(trainer)
""",
        "XLA910",
    )


CALLBACKS = """\
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import is_torch_xla_available


class Keep(TrainerCallback):
    def keep(self, folder, given):
        given["model"].save_pretrained(folder)
        given["tokenizer"].save_pretrained(folder){lost}

    def on_save(self, args, state, control, **kwargs):
        self.keep(args.output_dir, kwargs)

    def on_train_end(self, args, state, control, **kwargs):
        if "tokenizer" in kwargs:
            kwargs["tokenizer"].save_pretrained(args.output_dir)
        kwargs["processing_class"].save_pretrained(args.output_dir)


class Plain:
    def on_save(self, args, state, control, **kwargs):
        kwargs["tokenizer"].save_pretrained(args.output_dir)


def main(net, rows, path):
    if is_torch_xla_available():
        xm.master_print(path)
    args = TrainingArguments(path, optim="adamw_torch")
    Trainer(net, args, train_dataset=rows, callbacks=[Keep()]).train()
"""


def test_a_keyword_that_callbacks_are_not_given_any_more():
    check(CALLBACKS.format(lost="  # !XLA905"), "XLA905")


CRITIC = """\
def train(critic, optimizer, loader, device, turns):
    for x, y in {loader}:
        x = x.to(device)
        for _ in range(turns):
            optimizer.zero_grad()
            critic(x).mean().backward()
            xm.optimizer_step(optimizer){mark}


def worker(rank):
    device = torch_xla.device()
    critic = nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    train(critic, optimizer, DataLoader(rows, batch_size=8, drop_last=True), device, 5)


if __name__ == "__main__":
    xmp.spawn(worker)
"""


def test_a_few_steps_on_each_batch_of_a_device_loader():
    check(CRITIC.format(loader="xpl.MpDeviceLoader(loader, device)", mark=""), "XLA301")
    check(CRITIC.format(loader="loader", mark="  # !XLA301"), "XLA301")


def test_an_average_that_an_object_moves_itself():
    check(
        """\
from torch.optim.swa_utils import AveragedModel


class Engine:
    def __init__(self, net, loader):
        self.net = net
        self.loader = loader
        self.average = AveragedModel(net)

    def fit(self):
        device = torch_xla.device()
        self.net = self.net.to(device)
        self.average = self.average.to(device)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in xpl.MpDeviceLoader(self.loader, device):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(x), y).backward()
            xm.optimizer_step(optimizer)
            self.average.update_parameters(self.net)  # !XLA109
""",
        "XLA109",
    )
