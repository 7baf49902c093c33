"""Where Accelerate's object is made, and kept: what has it runs on every core."""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

KEPT = """
import numpy as np
import torch_xla.core.xla_model as xm
from accelerate import Accelerator


class Tagger:
    def __init__(self, net, optimizer, loader):
        self.accelerator = Accelerator()
        self.net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)

    def fit(self, epochs):
        print("begins")  # !XLA401
        for epoch in range(epochs):
            self._one_epoch()
            np.savez("losses.npz", epoch=epoch)  # !XLA406
            if self.accelerator.is_main_process:
                print("done", epoch)

    def _one_epoch(self):
        for batch in self.loader:
            loss = self.net(batch).mean()
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
"""

BUILT = """
import json
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from tqdm import tqdm


def build(settings):
    tracked = settings.tracker is not None
    return Accelerator(log_with=settings.tracker) if tracked else Accelerator()


def rows_of(settings):
    rows = []
    for row in tqdm(settings.rows):  # !XLA401
        rows.append(row)
    return rows


def main(settings, net, optimizer, loader):
    accelerator = build(settings)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    rows = rows_of(settings)
    for batch in loader:
        accelerator.backward(net(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    with open("rows.json", "w") as file:  # !XLA406
        json.dump(rows, file)
"""

GIVEN = """
import torch_xla.core.xla_model as xm
from accelerate import Accelerator


class Denoiser:
    def __init__(self, accelerator: Accelerator, net, optimizer, loader, patience):
        self.accelerator = accelerator
        self.net, self.optimizer, self.loader = accelerator.prepare(net, optimizer, loader)
        self.best, self.waited, self.patience = 1e9, 0, patience

    def train(self, epochs, every):
        self._by_epoch(epochs, every)

    def _by_epoch(self, epochs, every):
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self.net(batch).mean()
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
            score = self.accelerator.gather(loss).mean().item()
            if self.accelerator.is_main_process:
                if score < self.best:
                    self.best, self.waited = score, 0
                    self.accelerator.wait_for_everyone()  # !XLA405
                else:
                    self.waited += 1
            if (epoch + 1) % every == 0:
                self.accelerator.wait_for_everyone()
            if self.waited >= self.patience:
                return  # !XLA420
"""


@pytest.mark.parametrize("program", [KEPT, BUILT, GIVEN])
def test_what_has_the_accelerator_runs_on_every_core(program: str):
    wanted = {code for _, code in marks(program)}
    assert {one for one in found(program) if one[1] in wanted} == set(marks(program))


def test_the_one_process_of_a_plain_program_may_print():
    lines = ("import torch_xla.core.xla_model as xm", "from accelerate import Accelerator")
    for program in (KEPT, BUILT):
        plain = program.replace(lines[0], "").replace(lines[1], "from parts import Accelerator")
        assert not found(plain)


HEALTHY = """
import torch_xla.core.xla_model as xm
from accelerate import Accelerator


class Denoiser:
    def __init__(self, accelerator: Accelerator, net, optimizer, loader, patience):
        self.accelerator = accelerator
        self.net, self.optimizer, self.loader = accelerator.prepare(net, optimizer, loader)
        self.best, self.waited, self.patience = 1e9, 0, patience

    def train(self, epochs, every):
        for epoch in range(epochs):
            if not self.accelerator.is_main_process:
                self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                self.rows = read()
                self.accelerator.wait_for_everyone()
            for batch in self.loader:
                loss = self.net(batch).mean()
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
            score = self.accelerator.gather(loss).mean().item()
            if score < self.best:
                self.best, self.waited = score, 0
                self.accelerator.wait_for_everyone()
            else:
                self.waited += 1
            if self.accelerator.is_main_process:
                print("epoch", epoch, score)
            if self.waited >= self.patience:
                return
"""


def test_what_all_processes_decide_alike_is_left_alone():
    assert not [one for one in found(HEALTHY) if one[1] in {"XLA401", "XLA405", "XLA420"}]
