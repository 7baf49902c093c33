"""Names that a program picks by the release that runs: what they are today.

All programs are invented.
"""

from __future__ import annotations

import pytest
from model_helpers import marked, model_of
from rule_helpers import told_in_files

HEAD = """
import operator
import torch_xla
import torch_xla.core.xla_model as xm
from importlib import import_module
try:
    from torch_xla import runtime as xr
except ImportError:
    xr = None


def pick(what, *places):
    for owner, name in places:
        if owner is not None and hasattr(owner, name):
            return getattr(owner, name)
    raise ImportError(what)


def first_of(module, *names):
    found = (getattr(module, name, None) for name in names)
    return next(one for one in found if one is not None)


def from_modules(places):
    for module, name in places:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue


def patched(module, name, made):
    setattr(module, name, lambda *given: made(getattr(module, name)))
    return made


def both(*places):
    return places


"""
SYNC = "torch_xla.sync"
MARK = "torch_xla.core.xla_model.mark_step"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('pick("sync", (torch_xla, "sync"), (xm, "mark_step"))', SYNC),
        ('pick("sync", (xm, "mark_step"), (torch_xla, "sync"))', SYNC),
        ('pick("rank", (xr, "global_ordinal"), (xm, "get_ordinal"))',
         "torch_xla.runtime.global_ordinal"),
        ('pick("step", (xm, "optimizer_step"))', "torch_xla.core.xla_model.optimizer_step"),
        ('first_of(xm, "mark_the_step", "mark_step")', MARK),
        ('from_modules([("torch_xla", "sync"), ("torch_xla.core.xla_model", "mark_step")])', SYNC),
        ('getattr(torch_xla, "sync", None) or xm.mark_step', SYNC),
        ('getattr(torch_xla, "sync", xm.mark_step)', SYNC),
        ('getattr(torch_xla, "sync", lambda: None)', SYNC),
        ('getattr(xr, "world_size", None) or getattr(xm, "xrt_world_size", lambda: 1)',
         "torch_xla.runtime.world_size"),
        ('torch_xla.sync if hasattr(torch_xla, "sync") else xm.mark_step', SYNC),
        ("torch_xla.sync if settings.new else xm.mark_step", SYNC),
        ("torch_xla.sync if settings.each else xm.optimizer_step", None),
        ('getattr(xm, "get_ordinal", None) or xr.global_ordinal',
         "torch_xla.runtime.global_ordinal"),
        ('pick("sync", (torch_xla, "sync"), (print, "flush"))', None),
        ('both((torch_xla, "sync"), (xm, "mark_step"))', None),
        ('getattr(torch_xla, "sync", None) and xm.mark_step', None),
        ('getattr(torch_xla, "sync", None) or print', None),
        ('getattr(xm, "get_ordinal", None)', None),
        ('patched(xm, "optimizer_step", print)', None),
        ("xm.xla_device() or torch_xla.device", None),
    ],
)  # fmt: skip
def test_what_a_name_means(written, meant):
    model = model_of(f"{HEAD}\nfound = {written}\nfound  # <- here\n")
    assert model.name(marked(model, "here")) == meant
    assert model.name(model.tree.assigned_once(marked(model, "here"))) == meant


@pytest.mark.parametrize(
    ("first", "then", "meant"),
    [
        ("from torch_xla import sync as end", "end = xm.mark_step", SYNC),
        ("end = xr.global_ordinal", "end = xm.get_ordinal", "torch_xla.runtime.global_ordinal"),
        ("from torch_xla import sync as end", "end = print", None),
        ("end = torch_xla.sync", "end = xm.rendezvous", None),
    ],
)
def test_what_is_tried(first, then, meant):
    tried = f"try:\n    {first}\nexcept (ImportError, AttributeError):\n    {then}"
    model = model_of(f"{HEAD}\n{tried}\nend  # <- here\n")
    assert model.name(marked(model, "here")) == meant


COMPAT = """
import torch_xla
import torch_xla.core.xla_model as _xm


def _pick(what, *places):
    for owner, name in places:
        if hasattr(owner, name):
            return getattr(owner, name)
    raise ImportError(what)


sync = _pick("sync", (torch_xla, "sync"), (_xm, "mark_step"))
_step = _pick("step", (_xm, "optimizer_step"))
mesh_reduce = getattr(_xm, "mesh_reduce", None)


def cleared():
    return None


def optimizer_step(optimizer):
    _step(optimizer)
    sync()
"""
TRAIN = """
import time
import torch
import torch_xla
from torch.utils.data import DataLoader


def run(index, net, batches, late):
    import compat as X

    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(1000):
        optimizer.zero_grad()
        loss = net(batches[number]).sum()
        loss.backward()
        CLIP
        X.optimizer_step(optimizer)
        if number % 50 == 0:
            print(number, loss.item(), index)
            if X.mesh_reduce("late", time.time() > late, max):
                break


def alone(net, batches):
    import compat as X

    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in DataLoader(batches, batch_size=8, drop_last=True):
        optimizer.zero_grad()
        net(x.to(device)).sum().backward()
        optimizer.step()
        X.sync()


torch_xla.launch(run, args=(None, None, 0))
"""
CODES = {"XLA113", "XLA301", "XLA303", "XLA420"}


CLIP = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("clip", "end", "expected"),
    [
        (CLIP, "X.sync()", [("train.py", 18, "XLA303")]),
        ("pass", "X.sync()", []),
        ("pass", "X.cleared()", [("train.py", 35, "XLA301")]),
    ],
)
def test_a_module_that_picks_for_the_program(tmp_path, clip, end, expected):
    written = TRAIN.replace("CLIP", clip).replace("X.sync()", end)
    files = {"compat.py": COMPAT, "train.py": written}
    assert sorted(told_in_files(tmp_path, files, CODES)) == expected
