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
