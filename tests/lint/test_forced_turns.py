"""``step % 100 == 0 or force_save``: a read of every so many steps stays one."""

import pytest

from tests.lint.rule_helpers import rows

LOOP = """import torch_xla
import torch_xla.core.xla_model as xm


def train(args, model, optimizer, loader, {flag}):
    for step, batch in enumerate(loader):
        loss = model(batch.to(torch_xla.device()))
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        if step % args.log_every == 0 or {flag}:
            print(float(loss.cpu()))
"""


@pytest.mark.parametrize("flag", ["force_save", "is_last", "should_stop", "checkpoint_now"])
def test_what_is_true_now_and_then(flag):
    assert rows(LOOP.format(flag=flag), "XLA101") == []


@pytest.mark.parametrize("flag", ["is_main", "rank_zero", "chatty"])
def test_what_may_be_true_on_every_step(flag):
    assert rows(LOOP.format(flag=flag), "XLA101") == [12]
