"""Names, arguments, hooks and attributes of earlier releases that Lightning 2 has not."""

import pytest

from tests.lint.rule_helpers import rows

IMPORTS = """import pytorch_lightning as pl
import torch_xla.core.xla_model as xm
from pytorch_lightning.callbacks import Callback


"""


def module(body):
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"{IMPORTS}class Net(pl.LightningModule):\n{lines}\n"


def callback(body):
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"{IMPORTS}class Watch(Callback):\n{lines}\n"


def trained(line):
    return f"{IMPORTS}trainer = pl.Trainer(tpu_cores=8, max_epochs=3)\n{line}\n"


@pytest.mark.parametrize(
    "line",
    [
        "from pytorch_lightning.callbacks import ProgressBarBase",
        "from pytorch_lightning.callbacks.progress import ProgressBarBase",
        "from pytorch_lightning.accelerators import TPUBackend",
        "from pytorch_lightning.plugins import DDPPlugin",
        "from pytorch_lightning.utilities import XLADeviceUtils",
        "from pytorch_lightning.utilities.types import EPOCH_OUTPUT",
        "from pytorch_lightning.trainer.training_loop import TrainLoop",
        "import pytorch_lightning.utilities.cloud_io",
    ],
)
def test_names_of_earlier_releases(line):
    assert rows(f"{IMPORTS}{line}\n", "XLA901") == [6]


@pytest.mark.parametrize(
    "line",
    [
        "from pytorch_lightning.callbacks import ProgressBar, ModelCheckpoint",
        "from pytorch_lightning.accelerators import XLAAccelerator",
        "from pytorch_lightning.utilities.types import STEP_OUTPUT",
        "from lightning.pytorch.strategies import XLAStrategy",
    ],
)
def test_names_that_are_there(line):
    assert not rows(f"{IMPORTS}{line}\n", "XLA901")


@pytest.mark.parametrize(
    "argument",
    ["enable_pl_optimizer=False", "overfit_pct=0.1", "min_nb_epochs=3", "truncated_bptt_steps=9"],
)
def test_arguments_of_old_trainers(argument):
    program = f"{IMPORTS}trainer = pl.Trainer(accelerator='tpu', {argument})\n"
    assert len(rows(program, "XLA901")) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trainer.fit(net, train_dataloader=data)", "trainer.fit(net, train_dataloaders=data)"),
        ("trainer.test(net, test_dataloaders=data)", "trainer.test(net, dataloaders=data)"),
        ("trainer.validate(net, val_dataloaders=data)", "trainer.fit(net, val_dataloaders=data)"),
    ],
)
def test_arguments_of_methods(old, new):
    assert rows(trained(old), "XLA901") == [6, 7]
    assert rows(trained(new), "XLA901") == [6]


def test_a_fit_of_the_programs_own_takes_what_it_likes():
    own = "class Loop:\n    def fit(self, net, train_dataloader):\n        pass\n"
    program = f"{trained('')}\n{own}\nLoop().fit(None, train_dataloader=[])\n"
    assert len(rows(program, "XLA901")) == 1


def test_arguments_of_log():
    step = "def training_step(self, batch, i):\n    self.log('loss', 1, {}=True)\n    return 1"
    assert rows(module(step.format("sync_dist_op")), "XLA901")
    assert not rows(module(step.format("sync_dist")), "XLA901")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def on_train_epoch_end(self, outputs):", "def on_train_epoch_end(self):"),
        ("def training_step_end(self, out):", "def training_step(self, out, i):"),
        ("def validation_end(self, outputs):", "def on_validation_end(self):"),
        ("def tbptt_split_batch(self, batch, n):", "def split_batch(self, batch, n):"),
        ("def on_train_dataloader(self):", "def train_dataloader(self):"),
        (
            "def optimizer_step(self, e, i, o, c, second_order_closure):",
            "def optimizer_step(self, e, i, o, optimizer_closure=None):",
        ),
        (
            "def on_before_optimizer_step(self, optimizer, opt_idx):",
            "def on_before_optimizer_step(self, optimizer):",
        ),
    ],
)
def test_hooks_of_modules(old, new):
    assert len(rows(module(f"{old}\n    pass"), "XLA910")) == 1
    assert not rows(module(f"{new}\n    pass"), "XLA910")


def test_hooks_of_callbacks():
    old = "def on_train_epoch_end(self, trainer, pl_module, outputs):\n    pass"
    assert len(rows(callback(old), "XLA910")) == 1
    new = "def on_train_epoch_end(self, trainer, pl_module, outputs=None):\n    pass"
    assert not rows(callback(new), "XLA910")


@pytest.mark.parametrize("name", ["reset_train_dataloader()", "run_pretrain_routine(net)", "tuner"])
def test_attributes_of_trainers(name):
    assert len(rows(trained(f"trainer.{name}"), "XLA910")) == 1


def test_methods_of_modules():
    assert len(rows(module("def on_fit_start(self):\n    self.summarize()"), "XLA910")) == 1
    own = "def summarize(self):\n    pass\ndef on_fit_start(self):\n    self.summarize()"
    assert not rows(module(own), "XLA910")
