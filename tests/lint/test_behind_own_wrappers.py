"""Steps that a project's own module around torch_xla ends, and what was put on the device for it.

All programs are invented. ``# !XLA113`` marks a line on which that rule has to find something; no
other line of a program may have a finding of a code that its name asks for. A name that ends with
"healthy" is of a program in which those codes find nothing.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, told

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import common.tpu_compat as compat
from nets import Decoder
"""
TURN = """\
def fit(net, rows, adam):
    device = torch_xla.device()
    net = net.to(device)
    for turn, (seen, wanted) in enumerate(rows):
        cost = torch.nn.functional.mse_loss(net(seen.to(device)), wanted.to(device))
        cost.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
"""
READS = {
    "XLA113: a wrapper steps the optimizer, healthy": TURN
    + """\
        compat.optimizer_step(adam)
        if turn % 100 == 0:
            print(turn, norm.item())
            mean = compat.mean(cost / 2)
            mean = float(mean.cpu())
            print(mean)
""",
    "XLA113: a wrapper syncs, healthy": TURN
    + """\
        adam.step()
        compat.sync()
        if turn % 100 == 0:
            print(turn, norm.item())
""",
    "XLA113: the wrapper comes later": TURN
    + """\
        if turn % 100 == 0:
            print(turn, norm.item())  # !XLA113
        compat.optimizer_step(adam)
""",
    "XLA113: a module that says nothing of devices": TURN.replace("compat", "tools")
    + """\
        tools.sync(adam)
        if turn % 100 == 0:
            print(turn, norm.item())  # !XLA113
        xm.mark_step()
""",
    "XLA113: reduced behind the end, healthy": TURN
    + """\
        adam.step()
        xm.mark_step()
        if turn % 100 == 0:
            total = xm.all_reduce("sum", cost)
            share = total / xm.xrt_world_size()
            print(turn, share.item())
""",
    "XLA113: counts that are written to behind the end": """\
def fit(net, rows, adam):
    device = torch_xla.device()
    net = net.to(device)
    counts = torch.zeros(2, device=device)
    for turn, (seen, wanted) in enumerate(rows):
        guess = net(seen.to(device))
        guess.mean().backward()
        xm.optimizer_step(adam, barrier=True)
        counts[0] += (guess > 0).sum()
        if turn % 100 == 0:
            share = torch.sum(counts) / 100
            print(turn, share.item())  # !XLA113
""",
    "XLA113: reduced before the end": TURN
    + """\
        adam.step()
        if turn % 100 == 0:
            total = xm.all_reduce("sum", cost)
            print(turn, total.item())  # !XLA113
        xm.mark_step()
""",
    "XLA113: reduced where due, of what is not over": TURN
    + """\
        adam.step()
        xm.mark_step()
        again = net(seen.to(device)).mean()
        again.backward()
        if turn % 100 == 0:
            total = xm.all_reduce("sum", again)
            print(turn, total.item())  # !XLA113
        adam.step()
        xm.mark_step()
""",
}
LOADED = """\
def resume(saved, rate, beta1, beta2, groups):
    device = torch_xla.device()
    net = Decoder(64).to(device)
    chosen = {made}
    chosen.load_state_dict(saved)
    for state in chosen.state.values():
        for key, value in state.items():
            if torch.is_tensor(value):
                state[key] = value.to(device){mark}
    return chosen
"""


@pytest.mark.parametrize("name", READS)
def test_what_is_read_behind_the_end_of_a_step(name):
    program = HEAD + READS[name]
    assert told(name, program) == marks(program)


@pytest.mark.parametrize(
    ("made", "counts"),
    [
        ("net.configure_optimizers(0.1, rate, (beta1, beta2), 'xla')", True),
        ("net.configure_optimizer(rate, 0.1, (0.9, 0.95), 'xla')", True),
        ("net.configure_optimizers(rate, betas=(0.9, 0.95))", True),
        ("net.configure_optimizers(rate, 0.1)", False),
        ("net.configure_optimizers(rate, (0.1, 5.0))", False),
        ("torch.optim.SGD(net.parameters(), rate)", False),
    ],
)
def test_a_count_of_an_optimizer_that_a_model_configures(made, counts):
    program = HEAD + LOADED.format(made=made, mark="  # !XLA110" if counts else "")
    assert told("XLA110", program) == marks(program)
