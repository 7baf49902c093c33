"""Optimizers whose model another function moves afterwards (XLA305), as programs are cut up.

All programs are invented. ``# !XLA305`` marks the line of the optimizer that trains nothing.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, marks_in_files, told_in_files

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
"""

LOOP = """\
        for x in batches:
            loss = self.net(x.to(self.where))
            loss.backward()
            xm.optimizer_step(self.adam, barrier=True)
"""

LOST = {
    "an optimizer of the program's own": """\
class Slow(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
def make(net, more=None):
    named = list(net.named_parameters())
    if more is not None:
        named += list(more.named_parameters())
    groups = [{"params": [p for name, p in named if "bias" not in name]}]
    return Slow(groups, lr=0.1)  # !XLA305
class Run:
    def __init__(self, net):
        self.net = net
        self.adam = make(net)
    def fit(self, batches):
        self.where = torch_xla.device()
        self.net.to(self.where)
"""
    + LOOP,
    "a setting decides about all of the training": """\
class Run:
    def __init__(self, net, adam):
        self.net, self.adam = net, adam
    def fit(self, batches):
        self.where = torch_xla.device()
        net = self.net.to(self.where)
"""
    + LOOP
    + """\
def main(ask, net, batches):
    adam = torch.optim.Adam(net.parameters())  # !XLA305
    run = Run(net, adam)
    if ask.mode == "train":
        run.fit(batches)
""",
    "one of two programs, by a setting": """\
class Run:
    def __init__(self, net):
        self.net = net
        self.adam = torch.optim.SGD(self.net.parameters(), 0.1)  # !XLA305
    def fit(self, batches):
        self.where = torch_xla.device()
        self.net.to(self.where)
"""
    + LOOP
    + """\
class Other:
    def fit(self, batches):
        print(len(batches))
def main(ask, net, batches):
    if ask.plain:
        run = Other()
    else:
        run = Run(net)
    run.fit(batches)
""",
    "the loop's method moves": """\
class Run:
    def __init__(self, net, rate):
        self.net = net
        self.adam = torch.optim.Adam(self.net.parameters(), lr=rate)  # !XLA305
    def fit(self, batches):
        self.where = torch_xla.device()
        self.net.to(self.where)
"""
    + LOOP,
    "a method of the object moves": """\
class Run:
    def __init__(self, ask):
        self.net = ask.net()
        self.adam = torch.optim.Adam(self.net.parameters())  # !XLA305
        self.where = torch_xla.device()
        self.prepare()
    def prepare(self):
        self.net.to(self.where)
    def fit(self, batches):
"""
    + LOOP,
    "a method of the object makes the optimizer": """\
class Run:
    def __init__(self, net):
        self.net = net
        self.choose()
        self.where = torch_xla.device()
        self.net.to(self.where)
    def choose(self):
        self.adam = torch.optim.Adam(self.net.parameters())  # !XLA305
    def fit(self, batches):
"""
    + LOOP,
    "an object takes both and moves one": """\
class Run:
    def __init__(self, net, adam):
        self.where = torch_xla.device()
        self.net = net.to(self.where)
        self.adam = adam
    def fit(self, batches):
"""
    + LOOP
    + """\
def main(ask, batches):
    net = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(net.parameters())  # !XLA305
    run = Run(net, adam=adam)
    run.fit(batches)
""",
    "a helper makes the optimizer": """\
def choose(net, rate):
    return torch.optim.Adam(net.parameters(), lr=rate)  # !XLA305
def fit(net, batches):
    adam = choose(net, 0.1)
    net.to(torch_xla.device())
    for x in batches:
        net(x).backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "a helper moves": """\
def place(net, where):
    net.to(where)
    return net
def fit(net, batches):
    adam = torch.optim.Adam(net.parameters())  # !XLA305
    net = place(net, torch_xla.device())
    for x in batches:
        net(x).backward()
        xm.optimizer_step(adam, barrier=True)
""",
    "a helper gives both": """\
def build(ask):
    net = ask.net()
    adam = torch.optim.Adam(net.parameters())  # !XLA305
    return net, adam
def fit(ask, batches):
    net, adam = build(ask)
    net.to(torch_xla.device())
    for x in batches:
        net(x).backward()
        xm.optimizer_step(adam, barrier=True)
""",
}

SOUND = {
    "a setting decides about the move alone": """\
class Run:
    def __init__(self, net, adam):
        self.net, self.adam = net, adam
    def place(self):
        self.where = torch_xla.device()
        self.net.to(self.where)
    def fit(self, batches):
"""
    + LOOP
    + """\
def main(ask, net, batches):
    adam = torch.optim.Adam(net.parameters())
    run = Run(net, adam)
    if ask.again:
        run.place()
    run.fit(batches)
""",
    "a list that is filled behind the move": """\
class Slow(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
def make(net):
    named = list(net.named_parameters())
    return Slow([p for _, p in named], lr=0.1)
class Run:
    def __init__(self, net):
        self.net = net
        self.place()
        self.adam = make(net)
    def place(self):
        self.where = torch_xla.device()
        self.net.to(self.where)
    def fit(self, batches):
"""
    + LOOP,
    "parameters of another model": """\
def make(net):
    named = list(net.parameters())
    named += list(torch.nn.Linear(2, 2).parameters())
    return torch.optim.Adam(named)
class Run:
    def __init__(self, net, other):
        self.net, self.other = net, other
        self.adam = make(other)
    def fit(self, batches):
        self.where = torch_xla.device()
        self.net.to(self.where)
"""
    + LOOP,
    "moved by the helper that builds": """\
def build(ask):
    net = ask.net().to(torch_xla.device())
    return net, torch.optim.Adam(net.parameters())
def fit(ask, batches):
    net, adam = build(ask)
    net.to(torch_xla.device())
""",
    "another model is moved": """\
class Run:
    def __init__(self, net, other):
        self.net, self.other = net.to(torch_xla.device()), other
        self.adam = torch.optim.Adam(self.net.parameters())
    def fit(self, batches):
        self.other.to(torch_xla.device())
""",
    "made again after the move": """\
class Run:
    def __init__(self, net):
        self.net = net
        self.choose()
        self.net.to(torch_xla.device())
        self.choose()
    def choose(self):
        self.adam = torch.optim.Adam(self.net.parameters())
""",
    "moved on a condition": """\
class Run:
    def __init__(self, net, ask):
        self.net = net
        self.adam = torch.optim.Adam(self.net.parameters())
        if ask.late:
            self.place()
    def place(self):
        self.net.to(torch_xla.device())
""",
    "each object its own": """\
class Run:
    def __init__(self, net):
        self.net = net
    def place(self):
        self.net.to(torch_xla.device())
def main(one, other):
    a, b = Run(one), Run(other)
    a.place()
    adam = torch.optim.Adam(a.net.parameters())
    b.place()
    return adam
""",
    "moved back to the host": """\
def keep(net):
    net.to("cpu")
def fit(net):
    net.to(torch_xla.device())
    adam = torch.optim.Adam(net.parameters())
    keep(net)
    return adam
""",
}


@pytest.mark.parametrize("spelling", LOST)
def test_the_optimizer_is_made_before_another_function_moves(spelling):
    program = HEAD + LOST[spelling]
    told = {(row, code) for row, code in found(program) if code == "XLA305"}
    assert told == marks(program)


@pytest.mark.parametrize("spelling", SOUND)
def test_what_is_moved_in_time_is_no_problem(spelling):
    assert "XLA305" not in {code for _, code in found(HEAD + SOUND[spelling])}


STARTED = """\
import torch_xla.distributed.xla_multiprocessing as xmp
from train import train
if __name__ == "__main__":
    xmp.spawn(train, args=({"lr": 0.1},))
"""
TRAIN = """\
import torch
import torch_xla.core.xla_model as xm
from kept import restore
def train(index, flags):
    device = xm.xla_device()
    net = torch.nn.Linear(4, 4)
    adam = torch.optim.Adam(net.parameters(), lr=flags["lr"])  # !XLA305
    restore(net, adam, device)
    for x in flags["data"]:
        adam.zero_grad()
        net(x.to(device)).sum().backward()
        xm.optimizer_step(adam, barrier=True)
"""
KEPT = """\
import torch
def restore(net, adam, device):
    saved = torch.load("last.pt", map_location="cpu")
    net.load_state_dict(saved["net"])
    net.to(device)
    adam.load_state_dict(saved["adam"])
"""


def test_an_optimizer_is_told_where_it_is_made_not_where_the_cores_start(tmp_path):
    files = {"start.py": STARTED, "train.py": TRAIN, "kept.py": KEPT}
    told = told_in_files(tmp_path, files, {"XLA305"})
    assert told == marks_in_files(files)


HOOKS = (
    HEAD
    + """\
import losses

class Margin(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.head = torch.nn.Linear(width, width)
    def trainable_parameters(self):
        return self.head.parameters()
    def forward(self, x):
        return self.head(x).sum()

class Frame:
    def __init__(self, net, ask):
        self.where = torch_xla.device()
        self.net = net.to(self.where)
        self.loss = self.make_loss(ask)
        self.adam = self.make_optimizer()
        if ask.resumed:
            self.resume(ask.resumed)
    def make_loss(self, ask):
        raise NotImplementedError
    def make_optimizer(self):
        raise NotImplementedError
    def resume(self, path):
        raise NotImplementedError

class Run(Frame):
    def __init__(self, net, ask):
        super(Run, self).__init__(net, ask)
        {late}
    def make_loss(self, ask):
        loss = {made}
        {early}
        return loss
    def make_optimizer(self):
        both = list(self.net.parameters()) + list(self.loss.{gives}())
        return torch.optim.Adam(both){mark}
    def resume(self, path):
        self.loss.load_state_dict(torch.load(path, map_location="cpu"))
        self.loss.to(self.where)
    def fit(self, batches):
        for x in batches:
            self.loss(self.net(x.to(self.where))).backward()
            xm.optimizer_step(self.adam, barrier=True)

class Other(Frame):
    def make_loss(self, ask):
        return torch.nn.MSELoss()
    def make_optimizer(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)
"""
)


@pytest.mark.parametrize("gives", ["parameters", "trainable_parameters", "get_parameters"])
@pytest.mark.parametrize("made", ["Margin(8)", "losses.__dict__[ask.loss](8)"])
def test_methods_that_a_base_class_calls_are_those_of_the_object(made, gives):
    late = {"late": "self.loss.to(self.where)", "early": "pass", "mark": "  # !XLA305"}
    early = {"late": "pass", "early": "loss = loss.to(self.where)", "mark": ""}
    for moved in (late, early, late | early | {"late": late["late"]}):
        program = HOOKS.format(made=made, gives=gives, **moved)
        assert {one for one in found(program) if one[1] == "XLA305"} == marks(program)


ENGINE = """\
import torch
import torch_xla.core.xla_model as xm

class Engine:
    def __init__(self, net, opt=None, where=None):
        {before}
        self.net = net
        self.opt = opt or torch.optim.AdamW({asked}.parameters(), lr=1e-3){mark}
        self.where = where or xm.xla_device()
        {after}

    def fit(self, batches):
        for x in batches:
            self.net(x.to(self.where)).mean().backward()
            xm.optimizer_step(self.opt, barrier=True)
"""


@pytest.mark.parametrize("asked", ["net", "self.net"])
@pytest.mark.parametrize(
    ("before", "after", "late"),
    [
        ("pass", "self.net = self.net.to(self.where)", True),
        ("pass", "self.net = net.to(self.where)", True),
        ("pass", "net.to(self.where)", True),
        ("net = net.to(xm.xla_device())", "self.net.to(self.where)", False),
        ("net.to(xm.xla_device())", "self.net.to(self.where)", False),
        ("pass", "self.net.train()", False),
    ],
)
def test_a_model_that_the_class_keeps_under_a_name_of_its_own(before, after, late, asked):
    mark = "  # !XLA305" if late else ""
    program = ENGINE.format(before=before, after=after, asked=asked, mark=mark)
    assert {one for one in found(program) if one[1] == "XLA305"} == marks(program)
