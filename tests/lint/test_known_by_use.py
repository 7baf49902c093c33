"""What nobody has read, and no name tells, is a model or an optimizer by what is done with it.

All programs are invented. ``# !XLA721`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

from rule_helpers import found, marks

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

from project import build

"""


def check(text, *wanted):
    """Whether the findings of some rules stand where they are marked."""
    told = {(row, code) for row, code in found(HEAD + text) if code in wanted}
    assert told == {(row, code) for row, code in marks(HEAD + text) if code in wanted}


GIVEN_TOGETHER = """\
def train(parts, steppers, loader, device):
    painter, critic = parts
    first, second = steppers
    painter.train()
    for images in loader:
        fakes = painter(images.to(device))
        score = critic(fakes).mean()
        score.backward()
        xm.optimizer_step(first)
    if xm.is_master_ordinal():
        torch.save({"first": first.state_dict()}, "x.pt")  # !XLA721
"""


def test_what_takes_a_step_is_an_optimizer_whatever_it_is_called():
    check(GIVEN_TOGETHER, "XLA721")


OWN_STEPS = """\
def train(painter, stepper, loader, device):
    for images in loader:
        stepper.zero_grad()
        score = painter(images.to(device)).mean()
        score.backward()
        xm.reduce_gradients(stepper)
        stepper.step()
        torch_xla.sync()
    torch.save(stepper.state_dict(), "x.pt")  # !XLA721
"""


def test_what_is_cleared_and_steps_is_an_optimizer():
    check(OWN_STEPS, "XLA721")


def test_an_environment_steps_and_is_none():
    check(
        """\
def play(painter, world, loader, device):
    for images in loader:
        world.step(painter(images.to(device)))
        torch_xla.sync()
    torch.save(world.state_dict(), "x.pt")
""",
        "XLA721",
    )


KEPT = """\
class Engine:
    def __init__(self, config):
        self.device = torch_xla.device()
        self.painter = build(config).to(self.device)
        self.stepper = build(config, self.painter)

    def work(self, loader):
        self.painter.train()
        for images in loader:
            self.stepper.zero_grad()
            score = self.painter(images.to(self.device)).mean()
            score.backward()
            xm.reduce_gradients(self.stepper)
            self.stepper.step()
            torch_xla.sync()

    def keep(self):
        torch.save(self.stepper.state_dict(), "x.pt")  # !XLA721
"""


def test_what_a_class_keeps_is_known_by_all_its_methods():
    check(KEPT, "XLA721")


def test_a_trainer_trains_and_is_no_model():
    """``trainer.train()``: nobody calls it with a batch."""
    check(
        """\
def run(trainer, loader, device):
    trainer.train()
    for images in loader:
        images.to(device)
        torch_xla.sync()
    torch.save(trainer, "x.pt")
""",
        "XLA721",
    )
