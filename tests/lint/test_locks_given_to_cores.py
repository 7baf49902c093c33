"""Objects that are given to the cores and cannot be sent to them. ``# !XLA408``: to be found."""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

START = """
import argparse
import multiprocessing
import threading
import types
import tensorboardX
import torch.multiprocessing as mp
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


def work(index, given):
    return given.net.to(torch_xla.device())


def begin(net, options):
    lock = xmp.MpSerialExecutor()
    wrapped = xmp.MpModelWrapper(net)
    {before}
    xmp.spawn(work, args=({given},){how}){mark}
    {behind}


if __name__ == "__main__":
    begin(None, argparse.Namespace())
"""
MARK = "  # !XLA408"


@pytest.mark.parametrize(
    ("before", "given", "how"),
    [
        ("pass", "wrapped", ', start_method="fork"'),
        ("pass", "lock", ""),
        ("pass", "xmp.MpModelWrapper(net)", ""),
        ("options.net = wrapped", "options", ""),
        ('options["net"] = xmp.MpModelWrapper(net)', "options", ""),
        ('options = {"net": wrapped, "lr": 0.1}', "options", ""),
        ("options = types.SimpleNamespace(net=wrapped)", "options", ""),
        ("pass", "argparse.Namespace(lock=lock)", ""),
        ("queue = multiprocessing.Queue()", "queue", ', start_method="fork"'),
        ('queue = mp.get_context("spawn").SimpleQueue()', "queue", ""),
        ("pass", "threading.Event()", ""),
        ("writer = SummaryWriter()", "writer", ""),
        ("pass", "tensorboardX.SummaryWriter()", ""),
        ('log = open("log.txt", "w")', "log", ""),
        ("options.bar = tqdm(total=8)", "options", ""),
    ],
)
def test_what_cannot_be_copied(before, given, how):
    program = START.format(before=before, given=given, how=how, behind="pass", mark=MARK)
    assert [(row, "XLA408") for row in rows(program, "XLA408")] == sorted(marks(program))


@pytest.mark.parametrize(
    ("before", "given", "how", "behind"),
    [
        ("pass", "wrapped", ", nprocs=1", "pass"),
        ("pass", "options", "", "options.net = wrapped"),
        ("options.net = net", "options", "", "pass"),
        ("options = load()", "options", "", "pass"),
        ("other = options; other.size = 3", "other", "", "pass"),
        ("queue = multiprocessing.Queue()", "queue", ", nprocs=1", "pass"),
        ("queue = multiprocessing.Manager().Queue()", "queue", "", "pass"),
        ('options.log = open("log.txt").read()', "options", "", "pass"),
    ],
)
def test_what_can(before, given, how, behind):
    program = START.format(before=before, given=given, how=how, behind=behind, mark="")
    assert rows(program, "XLA408") == []


@pytest.mark.parametrize(("method", "mark"), [("", MARK), (', start_method="fork"', MARK)])
def test_an_inner_function_that_is_forked_is_pickled_too(method, mark):
    program = f"""
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp


def begin(net):
    def work(index):
        return net.to(torch_xla.device())

    xmp.spawn(work{method}){mark}
"""
    assert [(row, "XLA408") for row in rows(program, "XLA408")] == sorted(marks(program))


@pytest.mark.parametrize(("how", "mark"), [("", MARK), (", debug_single_process=True", "")])
def test_the_same_of_launch(how, mark):
    program = f"""
import multiprocessing
import torch_xla


def work(index, queue):
    queue.put(torch_xla.device())


if __name__ == "__main__":
    torch_xla.launch(work, args=(multiprocessing.Queue(),){how}){mark}
"""
    assert [(row, "XLA408") for row in rows(program, "XLA408")] == sorted(marks(program))
