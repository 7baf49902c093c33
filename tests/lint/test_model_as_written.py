"""The model on code as people write it: every way by which a read hides, and what only looks so."""

from __future__ import annotations

import json
import textwrap

import pytest
from rule_helpers import marked, rows

from xladoctor.lint import engine, sources

HEAD = """\
import builtins
import functools
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

device = xm.xla_device()
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([], batch_size=4, drop_last=True)
"""
STEP = """\
        loss = model(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
"""


def reads(program):
    """Rows of host reads found, and rows marked ``# here``, in a program behind the head."""
    text = HEAD + textwrap.dedent(program).replace("        STEP\n", STEP)
    return rows(text, "XLA101"), marked(text)


@pytest.mark.parametrize(
    "program",
    [
        # a closure over the loss of the loop
        """
        def train():
            for x in pl.MpDeviceLoader(loader, device):
                loss = model(x).sum()
                loss.backward()
                def report():
                    return loss.item()  # here
                report()
        """,
        # comprehensions over lists and dictionaries of tensors
        """
        for x in pl.MpDeviceLoader(loader, device):
            losses = {"a": model(x).sum(), "b": model(x).mean()}
            sum(losses.values()).backward()
            shown = {name: value.item() for name, value in losses.items()}  # here
        """,
        """
        for x in pl.MpDeviceLoader(loader, device):
            parts = [model(x).sum() for _ in range(2)]
            sum(parts).backward()
            shown = [part.item() for part in parts]  # here
        """,
        # tuple unpacking of what a function gives back
        """
        def step(x):
            out = model(x)
            return out.sum(), (out.mean(), out)

        for x in pl.MpDeviceLoader(loader, device):
            loss, (mean, out) = step(x)
            loss.backward()
            print(mean.item())  # here
        """,
        # a meter, a helper of a helper, a method by way of an attribute
        """
        class Meter:
            def __init__(self):
                self.values = []

            def update(self, value):
                self.values.append(value.item())  # here

        class Trainer:
            def __init__(self):
                self.meter = Meter()

            def step(self, x):
                loss = model(x).sum()
                loss.backward()
                self.note(loss)

            def note(self, loss):
                self.meter.update(loss.detach())

            def run(self):
                for x in pl.MpDeviceLoader(loader, device):
                    self.step(x)

        Trainer().run()
        """,
        # the loader is wrapped elsewhere
        """
        def wrap(what):
            return pl.MpDeviceLoader(what, device)

        class Data:
            def __init__(self):
                self.train = wrap(loader)

        data = Data()
        for x in data.train:
            loss = model(x).sum()
            loss.backward()
            loss.item()  # here
        """,
        # partial, lambda, a function handed on
        """
        def read(scale, value):
            return scale * value.item()  # here

        half = functools.partial(read, 0.5)
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            half(loss)
        """,
        """
        show = lambda value: value.item()  # here
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            show(loss)
        """,
        # cores that are started with partial and lambda
        """
        def run(index, flags):
            for x in pl.MpDeviceLoader(loader, device):
                loss = model(x).sum()
                loss.backward()
                loss.item()  # here

        torch_xla.launch(functools.partial(run, flags={}))
        """,
        # a decorated step
        """
        def logged(function):
            @functools.wraps(function)
            def inner(*arguments):
                return function(*arguments)
            return inner

        @logged
        def step(x):
            loss = model(x).sum()
            loss.backward()
            return loss

        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            loss.item()  # here
        """,
        # use_tpu decides where the tensors are
        """
        use_tpu = True
        place = xm.xla_device() if use_tpu else torch.device("cpu")
        for x in loader:
            x = x.to(place)
            loss = model(x).sum()
            loss.backward()
            loss.item()  # here
        """,
        # while, walrus, generator
        """
        def batches():
            for x in loader:
                yield x.to(device)

        for x in batches():
            loss = model(x).sum()
            loss.backward()
            if (value := loss.item()) > 3:  # here
                pass
        """,
    ],
)
def test_a_read_is_found_where_it_hides(program):
    found, wanted = reads(program)
    assert wanted
    assert found == wanted


@pytest.mark.parametrize(
    "program",
    [
        # every N steps, by a name, by an early continue
        """
        for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
            loss = model(x).sum()
            loss.backward()
            due = step % 50 == 0
            if due:
                print(loss.item())
        """,
        """
        for step, x in enumerate(pl.MpDeviceLoader(loader, device)):
            loss = model(x).sum()
            loss.backward()
            if step % 50:
                continue
            loss.item()
        """,
        # a step closure with a partial
        """
        def log(loss):
            print(loss.item())

        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            xm.add_step_closure(log, args=(loss.detach(),))
        """,
        # what is on the host already
        """
        for x in loader:
            n = x.sum().item()
            loss = model(x.to(device)).sum()
            loss.backward()
        """,
        # after the loop
        """
        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
        print(loss.item())
        """,
        # an item of something else
        """
        class Cart:
            def item(self):
                return 1

        for x in pl.MpDeviceLoader(loader, device):
            loss = model(x).sum()
            loss.backward()
            Cart().item()
        """,
    ],
)
def test_what_only_looks_like_a_read_is_left_alone(program):
    found, _ = reads(program)
    assert found == []


def test_a_notebook_whose_loop_is_three_cells_away():
    cells = [
        HEAD,
        "def show(value):\n    print('loss', value.item())\n",
        "%matplotlib inline\n",
        "# text\n",
        (
            "for x in pl.MpDeviceLoader(loader, device):\n    loss = model(x).sum()\n"
            "    loss.backward()\n    show(loss)\n"
        ),
    ]
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    found = engine.lint(sources.from_bytes(json.dumps(document).encode(), "n.ipynb")).findings
    assert [(i.code, i.locations[0].cell) for i in found if i.code == "XLA101"] == [("XLA101", 1)]


def codes(program):
    text = HEAD + textwrap.dedent(program)
    return {item.code for item in engine.lint(sources.Source("train.py", text)).findings}


def test_print_that_is_switched_off_through_builtins():
    program = """
        def quiet(is_master):
            print_ = builtins.print

            def masked(*arguments, **options):
                if is_master:
                    print_(*arguments, **options)

            builtins.print = masked

        def run(index):
            quiet(xm.is_master_ordinal())
            print("starting")

        torch_xla.launch(run)
    """
    assert "XLA401" not in codes(program)
    assert "XLA401" in codes(program.replace("builtins.print = masked", "return masked"))


LOOP = """
    {setup}
    def run(index):
        core = torch_xla.device()
        net = {net}
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in pl.MpDeviceLoader(loader, core):
            net(x).sum().backward()
            opt.step()

    {start}
"""


def test_a_plain_step_is_right_under_spmd_and_fsdp():
    plain = "torch.nn.Linear(4, 4).to(core)"
    launched = LOOP.format(setup="", net=plain, start="torch_xla.launch(run)")
    assert "XLA302" in codes(launched)
    spmd = "import torch_xla.runtime as xr\n    xr.use_spmd()"
    assert "XLA302" not in codes(LOOP.format(setup=spmd, net=plain, start="run(0)"))
    fsdp = "from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP"
    wrapped = LOOP.format(setup=fsdp, net=f"FSDP({plain})", start="torch_xla.launch(run)")
    assert "XLA302" not in codes(wrapped)
