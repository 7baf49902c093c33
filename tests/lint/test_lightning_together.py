"""What all cores of a Lightning program have to do together, and what one does alone."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, rows

PROGRAM = """
import pytorch_lightning as pl
import torch
import torch.nn.functional as F


class Keeper(pl.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if torch.isnan(outputs["loss"]):
            trainer.should_stop = True  # !XLA420

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.save_checkpoint("all.ckpt")
        if trainer.is_global_zero:
            trainer.save_checkpoint("first.ckpt")  # !XLA405


class Gan(pl.LightningModule):
    def __init__(self, painter, critic):
        super().__init__()
        self.automatic_optimization = False
        self.painter, self.critic = painter, critic
        self.seen = []

    def training_step(self, batch, batch_idx):
        g_opt, d_opt = self.optimizers()
        fake = self.painter(torch.randn(len(batch), 32, device=self.device))
        told = self.critic(fake.detach())
        d_loss = F.softplus(told).mean() + F.softplus(-self.critic(batch)).mean()
        d_opt.zero_grad()
        self.manual_backward(d_loss)
        torch.nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)  # !XLA303
        d_opt.step()
        g_loss = F.softplus(-self.critic(fake)).mean()
        g_opt.zero_grad()
        self.manual_backward(g_loss)
        self.clip_gradients(g_opt, gradient_clip_val=0.5)  # !XLA303
        g_opt.step()
        self.seen.append(d_loss)  # !XLA315
        self.lr_schedulers().step(d_loss)  # !XLA419
        if self.global_rank == 0:
            every = self.all_gather(d_loss)  # !XLA405
            self.log("d", d_loss, sync_dist=True, on_step=False)  # !XLA405

    def on_validation_epoch_end(self):
        score = torch.stack(self.seen).mean()
        self.log("score", score, sync_dist=True)
        mean = self.all_gather(score).mean()
        if mean < 0.1:
            self.trainer.should_stop = True
        if self.trainer.callback_metrics["score"] < 0.2:
            self.trainer.should_stop = True
        if score < 0.3:
            self.trainer.should_stop = True  # !XLA420

    def configure_optimizers(self):
        one = torch.optim.Adam(self.painter.parameters(), 1e-4)
        other = torch.optim.Adam(self.critic.parameters(), 1e-4)
        return [one, other], [torch.optim.lr_scheduler.ReduceLROnPlateau(one)]


def main(painter, critic, data):
    trainer = pl.Trainer(accelerator="tpu", devices=8, callbacks=[Keeper()])
    trainer.fit(Gan(painter, critic), data)
    if trainer.is_global_zero:
        trainer.save_checkpoint("after.ckpt")
"""
ASKED = {"XLA303", "XLA315", "XLA405", "XLA419", "XLA420"}


def told(text):
    return {item for item in found(text) if item[1] in ASKED}


def test_what_one_core_does_alone_is_told():
    assert told(PROGRAM) == marks(PROGRAM)


@pytest.mark.parametrize("old", ["devices=8", 'accelerator="tpu"'])
def test_one_core_or_other_devices_have_nobody_to_wait_for(old):
    new = {"devices=8": "devices=1", 'accelerator="tpu"': 'accelerator="gpu"'}[old]
    text = PROGRAM.replace(old, new)
    assert {code for _, code in told(text)} & {"XLA303", "XLA419", "XLA420"} == set()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (
            "gradient_clip_val=0.5",
            'gradient_clip_val=0.5, gradient_clip_algorithm="value"',
            "XLA303",
        ),
        ("self.manual_backward(g_loss)", "pass", "XLA303"),
        ("self.seen.append(d_loss)", "self.seen.append(d_loss.detach())", "XLA315"),
        (".step(d_loss)", '.step(self.trainer.callback_metrics["score"])', "XLA419"),
        (".step(d_loss)", ".step(self.all_gather(d_loss).mean())", "XLA419"),
        ("sync_dist=True, on_step=False", "rank_zero_only=True, on_step=False", "XLA405"),
    ],
)
def test_the_way_it_is_meant_is_left_alone(old, new, code):
    line = next(row for row, text in enumerate(PROGRAM.splitlines(), 1) if old in text)
    text = PROGRAM.replace(old, new)
    if code == "XLA303" and new == "pass":
        line = next(row for row, one in enumerate(text.splitlines(), 1) if "clip_gradients" in one)
        text = text.replace("self.manual_backward(d_loss)", "pass")
    assert line in {row for row, _ in told(PROGRAM)} or code == "XLA303"
    assert line not in rows(text, code)


def test_clipping_behind_the_reduction_of_automatic_optimization_is_left_alone():
    text = PROGRAM.replace(
        "        self.clip_gradients(g_opt, gradient_clip_val=0.5)", "        pass"
    )
    text = text.replace(
        "    def configure_optimizers(self):",
        "    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, **more):\n"
        "        self.clip_gradients(optimizer, gradient_clip_val=0.5)\n\n"
        "    def configure_optimizers(self):",
    )
    assert len(rows(text, "XLA303")) == 1


BY_HAND = """\
import torch
import lightning.pytorch as pl


class Net(pl.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.automatic_optimization = False
        self.net = net

    def training_step(self, batch, index):
        {names} = self.{asked}()
        self.manual_backward(self.net(batch).sum())
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        one.step()


trainer = pl.Trainer(accelerator="tpu", devices=8)
trainer.fit(Net(NET), DATA)
"""


@pytest.mark.parametrize("names", ["one", "one, two", "[one, two]"])
@pytest.mark.parametrize(("asked", "told"), [("optimizers", [14]), ("parts", [])])
def test_optimizers_that_a_module_takes_apart_are_lightnings_too(names, asked, told):
    assert rows(BY_HAND.format(names=names, asked=asked), "XLA303") == told
