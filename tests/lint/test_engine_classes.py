"""Trainer classes, strategies and loggers of research code: what their conditions mean."""

from __future__ import annotations

from rule_helpers import found, marked, rows

from xladoctor.lint import run
from xladoctor.lint.engine import LintOptions

HANDED_ON = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from vendor import names


def barrier():
    xm.rendezvous("log")


def note(*args, **kwargs):
    _write(print, *args, **kwargs)


def _write(write, *args, **kwargs):
    if kwargs.pop("sync", False):
        barrier()
    write(*args, kwargs)


def train(index, model, loader):
    device = xm.xla_device()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    note(key=names.START, sync=True)
    for images in loader:
        optimizer.zero_grad()
        loss = model(images.to(device)).sum()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        note(key=names.LOSS, value=loss.detach(), sync=False)
    note(key=names.END, value=loss.item(), sync=True)


xmp.spawn(train, args=(None, None))
"""


def test_settings_that_are_handed_on_are_not_what_stands_beside_them():
    """``sync=False`` is equal on all cores, whatever ``value=`` is."""
    told = {code for _, code in found(HANDED_ON)}
    assert not told & {"XLA405", "XLA423"}


def test_a_core_number_that_is_handed_on_still_decides_alone():
    program = HANDED_ON.replace("key=names.START, sync=True", "key=names.START, sync=index == 0")
    assert "XLA405" in {code for _, code in found(program)}


def test_a_meeting_in_every_step_is_told_through_helpers():
    program = HANDED_ON.replace(
        '    if kwargs.pop("sync", False):\n        barrier()', "    barrier()"
    )
    assert rows(program, "XLA423") == [9]


EARLY = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from flags import read_flags


def mean(value):
    world_size = xr.world_size()
    if world_size > 1:
        total = value.clone()
        total = xm.all_reduce(xm.REDUCE_SUM, total)
        return total / world_size
    return value


def mean_of_several(value):
    world_size = xr.world_size()
    if world_size < 2:
        return value
    return xm.all_reduce(xm.REDUCE_SUM, value) / world_size


def score(model, loader, reduce):
    losses = []
    with torch.no_grad():
        for images in loader:
            losses.append(model(images).mean())
    return torch.stack(losses).mean()


def train(index, flags):
    device = xm.xla_device()
    model = flags.model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = pl.MpDeviceLoader(flags.train, device)
    held_out = pl.MpDeviceLoader(flags.test, device)
    for epoch in range(10):
        for images in loader:
            optimizer.zero_grad()
            model(images).sum().backward()
            xm.optimizer_step(optimizer)
        reached = REDUCED
        if reached.item() < 0.1:
            break  # here


xmp.spawn(train, args=(read_flags(),))
"""


def test_reduced_where_there_are_several_cores_is_reduced():
    """A core that has no other differs from none."""
    for reduce in ("mean", "mean_of_several"):
        program = EARLY.replace("REDUCED", f"{reduce}(score(model, held_out, {reduce}))")
        assert rows(program, "XLA420") == []


def test_a_score_that_nobody_reduces_still_ends_one_core_alone():
    program = EARLY.replace("REDUCED", "score(model, held_out, mean)")
    assert rows(program, "XLA420") == marked(program)
    # What is reduced is thrown away.
    program = EARLY.replace("    return total / world_size\n", "    return value\n")
    program = program.replace("REDUCED", "mean(score(model, held_out, mean))")
    assert rows(program, "XLA420") == marked(program)


KEPT_MODULE = """
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from flags import make_loader, make_model


class Engine:
    def __init__(self, model):
        self.model = model
        self.xm = None
        self.device = "cpu"
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, images):
        self.optimizer.zero_grad()
        self.model(images.to(self.device)).sum().backward()
        if self.xm is None:
            self.optimizer.step()  # here
        else:
            self.xm.optimizer_step(self.optimizer)

    def fit(self, loader):
        for images in loader:
            self.step(images)


def put(engine, device):
    engine.device = device
    engine.model.to(device)
    engine.xm = xm


def work(index, flags):
    engine = Engine(make_model(flags))
    put(engine, xm.xla_device())
    engine.fit(make_loader(flags))


xmp.spawn(work, args=(None,))
"""


def test_a_module_that_an_object_keeps_is_none_on_other_devices():
    assert rows(KEPT_MODULE, "XLA302") == []
    turned = KEPT_MODULE.replace("if self.xm is None:", "if self.xm is not None:")
    assert rows(turned, "XLA302") == marked(turned)


SETTINGS = """
import argparse
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def run(args, model, loader):
    device = xm.xla_device()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, images in enumerate(loader):
        if step >= args.most:
            continue
        model(images.to(device)).sum().backward()
        if (step + 1) % args.every == 0:
            xm.optimizer_step(optimizer, barrier=True)
            optimizer.zero_grad()


def work(index, read, model, loader):
    args = argparse.Namespace(**read)
    args.rank = xr.global_ordinal()
    args.device = xm.xla_device()
    run(args, model, loader)


def main():
    xmp.spawn(work, args=(vars(read_arguments()), None, None))
"""


def test_a_core_number_among_settings_makes_no_other_setting_differ():
    assert not {"XLA405", "XLA420"} & {code for _, code in found(SETTINGS)}


def test_the_core_number_among_settings_still_differs():
    program = SETTINGS.replace("(step + 1) % args.every == 0", "args.rank == 0")
    assert rows(program, "XLA405") == [18]


def test_a_number_that_is_checked_leaves_no_core_behind():
    program = """
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp
    import torch_xla.runtime as xr


    def work(index):
        rank, cores = xr.global_ordinal(), xr.world_size()
        if rank < 0 or rank >= max(cores, 1):
            raise ValueError("no such core")
        xm.rendezvous("checked")  # here


    xmp.spawn(work)
    """
    assert rows(program, "XLA405") == []
    program = program.replace('raise ValueError("no such core")', "return")
    assert rows(program, "XLA405") == marked(program)


def test_a_print_that_another_module_replaces_is_quiet(tmp_path):
    """``builtins`` is one for all files of a program, also for those that import neither."""
    (tmp_path / "quiet.py").write_text(
        "import builtins\n\n\n"
        "def only_on(master):\n"
        "    said = builtins.print\n\n"
        "    def print(*args, **kwargs):\n"
        "        if master:\n"
        "            said(*args, **kwargs)\n\n"
        "    builtins.print = print\n"
    )
    (tmp_path / "parts.py").write_text("def describe(model):\n    print(model)\n")
    main = (
        "import torch_xla.core.xla_model as xm\n"
        "import torch_xla.distributed.xla_multiprocessing as xmp\n"
        "import torch_xla.runtime as xr\n"
        "from parts import describe\n"
        "from quiet import only_on\n\n\n"
        "def work(index, model):\n"
        "    only_on(xr.global_ordinal() == 0)\n"
        "    describe(model.to(xm.xla_device()))\n\n\n"
        "xmp.spawn(work, args=(None,))\n"
    )
    (tmp_path / "main.py").write_text(main)
    assert "XLA401" not in _codes_of(tmp_path)
    (tmp_path / "quiet.py").write_text("def only_on(master):\n    pass\n")
    assert "XLA401" in _codes_of(tmp_path)


def _codes_of(folder):
    results = run.lint_files(sorted(folder.glob("*.py")), run.Plan(LintOptions()), jobs=1)
    return {item.code for one in results if one.result for item in one.result.findings}


PARTIAL = """
import functools

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, DistributedSampler
import torch_xla.runtime as xr

loader_of = functools.partial(DataLoader, num_workers=4, drop_last=True)


class Data:
    def __init__(self, flags):
        self.make = functools.partial(DataLoader, batch_size=flags.size, SAMPLED)
        self.images = flags.images

    def batches(self):
        return self.make(self.images, shuffle=True)  # second


def work(index, flags):
    device = torch_xla.device()
    model = flags.model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = loader_of(flags.texts, batch_size=4, shuffle=True)  # first
    sampler = DistributedSampler(flags.rest, xr.world_size(), xr.global_ordinal())
    third = loader_of(flags.rest, batch_size=4, sampler=sampler)
    for loader in (first, third):
        for batch in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            model(batch).sum().backward()
            xm.optimizer_step(optimizer)
    for batch in pl.MpDeviceLoader(Data(flags).batches(), device):
        optimizer.zero_grad()
        model(batch).sum().backward()
        xm.optimizer_step(optimizer)


torch_xla.launch(work, args=(None,))
"""


def test_loaders_that_a_partial_makes():
    program = PARTIAL.replace("SAMPLED", "num_workers=2")
    assert rows(program, "XLA402") == [*marked(program, "# second"), *marked(program, "# first")]
    # ``drop_last`` is among what the first partial gives.
    assert rows(program, "XLA203") == marked(program, "# second")


def test_what_the_partial_is_given_counts():
    program = PARTIAL.replace("SAMPLED", "sampler=flags.sampler, drop_last=True")
    assert rows(program, "XLA402") == marked(program, "# first")
    assert rows(program, "XLA203") == []
