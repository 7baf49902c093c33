"""Lines beside those that rules mean: settings of zip, other branches, lists by their keys."""

from __future__ import annotations

import pytest
from model_helpers import marked, model_of
from rule_helpers import codes, rows

LOOP = """
import random
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def train(net, optimizer, loader, log):
    device = torch_xla.device()
    net.to(device)
    batches = pl.MpDeviceLoader(loader, device)
    for {turns}:
        optimizer.zero_grad()
        {use}
        net(images).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "turns",
    [
        "images, step in zip(batches, range(len(loader)), strict=False)",
        "images, step in zip(batches, range(len(loader)))",
        "step, images in enumerate(batches, start=1)",
    ],
)
def test_the_number_of_a_turn_is_the_hosts(turns):
    told = codes(LOOP.replace("{turns}", turns).replace("{use}", "if step % 10 == 0: log(step)"))
    assert "XLA104" not in told


@pytest.mark.parametrize(
    "turns", ["images, step in zip(batches, batches, strict=True)", "images, step in batches"]
)
def test_what_a_loader_gives_beside_it_is_the_devices(turns):
    told = codes(LOOP.replace("{turns}", turns).replace("{use}", "if step % 10 == 0: log(step)"))
    assert "XLA104" in told


@pytest.mark.parametrize(
    ("use", "wrong"),
    [
        ("row = images[random.randrange(8)]; images = images + row", True),
        ("row = images[random.randrange(8)]; images = row['image']", False),
        ("images = images[random.randrange(8)]['image']", False),
    ],
)
def test_a_drawn_place_in_a_list_is_no_constant(use, wrong):
    told = codes(LOOP.replace("{turns}", "images in batches").replace("{use}", use))
    assert ("XLA208" in told) is wrong


CLOCKS = """
import time
import torch
import torch_xla


def main(net, images, simulate):
    device = torch_xla.device()
    net = net.to(device)
    images = images.to(device)
    if simulate:
        begun = time.perf_counter()
        net(images)
        torch_xla.sync(wait=True)
        ended = time.perf_counter()
        print(ended - begun)
    else:
        begun = time.perf_counter()
        net(images)
        torch_xla.sync({wait})
        ended = time.perf_counter()
        print(ended - begun)
"""


@pytest.mark.parametrize(("wait", "wrong"), [("", True), ("wait=True", False)])
def test_the_clock_of_the_other_branch_times_nothing_here(wait, wrong):
    assert ("XLA112" in codes(CLOCKS.replace("{wait}", wait))) is wrong


SHARDED = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
from mine.{module} import {name} as Wrap


def _mp_fn(index, net, loader):
    device = torch_xla.device()
    net = Wrap(net.to(device))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for images in pl.MpDeviceLoader(loader, device):
        optimizer.zero_grad()
        net(images).sum().backward()
        optimizer.step()


def main(net, loader):
    xmp.spawn(_mp_fn, args=(net, loader))
"""


@pytest.mark.parametrize(
    ("name", "wrong"), [("XlaFullyShardedDataParallel", False), ("Compressed", True)]
)
def test_a_copy_of_fsdp_reduces_as_well(name, wrong):
    text = SHARDED.replace("{module}", "wrappers").replace("{name}", name)
    assert ("XLA302" in codes(text)) is wrong


WEIGHTS = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
import torchvision
from torch import nn
from mine import Net, {call}


def _mp_fn(index, dataset):
    device = torch_xla.device()
    {make}
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, drop_last=True)
    for epoch in range(3):
        {call}({given})


xmp.spawn(_mp_fn, args=([],), start_method="fork")
"""


@pytest.mark.parametrize(
    ("call", "given", "wrong"),
    [
        ("distillation_epoch", "net, loader, optimizer", True),
        ("train", "net, optimizer", True),
        ("checkpoint", "net, optimizer, epoch", False),
    ],
)
def test_who_is_given_batches_and_an_optimizer_trains(call, given, wrong):
    text = WEIGHTS.replace("{call}", call).replace("{given}", given)
    assert ("XLA426" in codes(text.replace("{make}", "net = Net(64)"))) is wrong


@pytest.mark.parametrize(
    ("head", "wrong"),
    [
        ("head = nn.Linear(1280, 10); net.classifier[1] = head", True),
        ("head = nn.Dropout(0.1); net.classifier[1] = head", False),
    ],
)
def test_a_new_head_may_have_a_name(head, wrong):
    make = f'net = torchvision.models.mobilenet_v2(weights="DEFAULT"); {head}'
    text = WEIGHTS.replace("{call}", "train").replace("{given}", "net, loader, optimizer")
    assert ("XLA426" in codes(text.replace("{make}", make))) is wrong


SAVES = """
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


def _mp_fn(index, net, optimizer, loader, evaluate):
    device = torch_xla.device()
    best = 0.0
    for epoch in range(3):
        score = 0.0
        for images in pl.MpDeviceLoader(loader, device):
            score += net(images).sum().item()
        {meet}
        if score > best:
            best = score
            xm.save(net.state_dict(), "best.pt")


def main(*given):
    xmp.spawn(_mp_fn, args=given)
"""


@pytest.mark.parametrize(
    ("meet", "wrong"),
    [
        ("pass", True),
        # They have met, and each still has a number of its own.
        ('xm.rendezvous("epoch")', True),
        ('score = xm.mesh_reduce("score", score, sum)', False),
    ],
)
def test_a_meeting_makes_no_number_equal(meet, wrong):
    assert ("XLA405" in codes(SAVES.replace("{meet}", meet))) is wrong


ASKED = """
on_tpu = False
try:
    import torch_xla.core.xla_model as xm
    on_tpu = xm.xla_device_hw() == "TPU"
except {caught}:
    pass
"""


@pytest.mark.parametrize(
    ("caught", "wrong"), [("ImportError", True), ("Exception", False), ("TypeError", False)]
)
def test_who_is_ready_for_no_torch_xla_is_not_ready_for_a_wrong_call(caught, wrong):
    assert ("XLA801" in codes(ASKED.replace("{caught}", caught))) is wrong


STARTED_TWICE = """
import torch_xla
import torch_xla.runtime as xr
import torch_xla.distributed.xla_multiprocessing as xmp


def _mp_fn(index):
    return torch_xla.device()


def first():
    {first}
    xmp.spawn(_mp_fn)


def second():
    {second}
    xmp.spawn(_mp_fn)
"""


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ("pass", "pass", 0),
        ("pass", "print(xr.world_size())", 1),
        ("xr.world_size()", "xr.world_size()", 2),
    ],
)
def test_each_start_has_what_comes_before_it(first, second, count):
    text = STARTED_TWICE.replace("{first}", first).replace("{second}", second)
    assert len(rows(text, "XLA407")) == count


GIVEN = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend


class Rows:
    def __getitem__(self, place):
        with open(f"{place}.txt", "rb") as file:
            return torch.frombuffer(file.read(), dtype=torch.uint8)

    def __len__(self):
        return 100


def make(count):
    return torch.utils.data.DataLoader(Rows(), batch_size=8, drop_last=True, num_workers=count)


def setup(backend):
    dist.init_process_group(backend, rank=0)


def main(net, optimizer, count, backend):
    device = torch_xla.device()
    net.to(device)
    setup({backend})
    for images in pl.MpDeviceLoader(make({count}), device):
        optimizer.zero_grad()
        net(images).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("count", "backend", "wrong"),
    [("0", '"nccl"', True), ("4", '"xla"', False), ("count", "backend", False)],
)
def test_what_all_callers_give_is_known(count, backend, wrong):
    told = codes(GIVEN.replace("{count}", count).replace("{backend}", backend))
    assert ("XLA606" in told, "XLA708" in told) == (wrong, wrong)


SHOWN = """
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl


def make(rows, {parameter}):
    return torch.utils.data.DataLoader(rows, batch_size=8, drop_last=whole)


def train(net, optimizer, rows, some):
    device = torch_xla.device()
    net.to(device)
    for images in pl.MpDeviceLoader(make(rows, {given}), device):
        optimizer.zero_grad()
        net(images).sum().backward()
        optimizer.step()


{more}
"""


@pytest.mark.parametrize(
    ("parameter", "given", "more", "wrong"),
    [
        ("whole", "False", "", True),
        ("*, whole", "whole=False", "", True),
        ("whole=False", "whole=some", "", False),
        ("whole=False", "", "", True),
        ("whole", "True", "", False),
        ("whole", "some", "", False),
        ("whole", "False", "make([], True)", False),
        ("whole", "False", "make([], False)", True),
    ],
)
def test_a_setting_may_be_what_all_calls_give(parameter, given, more, wrong):
    text = SHOWN.replace("{parameter}", parameter).replace("{given}", given)
    assert ("XLA203" in codes(text.replace("{more}", more))) is wrong


ALONE = """
def make(rows, mixed{default}):
    mixed  # <- given
    return rows


def main():
    {inner}


if __name__ == "__main__":
    {outer}
"""


@pytest.mark.parametrize(
    ("default", "inner", "outer", "expected"),
    [
        ("", "return 1", "make([], True)", True),
        ("=True", "make([])", "main()", True),
        # May be there to try it out: what others give is not said.
        ("=True", "return 1", "make([])", NotImplemented),
        ("=False", "make([], True)", "make([])", NotImplemented),
        ("", "make([], 1)", "make([], True)", NotImplemented),
        ("", "make([], *x)", "main()", NotImplemented),
        ("", "return 1", "main()", NotImplemented),
        ("=True", "return 1", "main()", NotImplemented),
    ],
)
def test_a_module_that_tries_itself_out_says_nothing_of_its_defaults(
    default, inner, outer, expected
):
    text = ALONE.replace("{default}", default).replace("{inner}", inner)
    model = model_of(text.replace("{outer}", outer))
    assert model.literal(marked(model, "given")) is expected


STARTED = """
import torch_xla
import torch_xla.distributed.xla_multiprocessing as xmp

CORES = {cores}


def train(index):
    torch_xla.sync()
    print("done")


if __name__ == "__main__":
    xmp.spawn(train, nprocs={given})
"""


@pytest.mark.parametrize(
    ("cores", "given", "several"),
    [("1", "CORES", False), ("None", "CORES", True), ("1", "1", False), ("1", "None", True)],
)
def test_the_number_of_cores_may_have_a_name(cores, given, several):
    text = STARTED.replace("{cores}", cores).replace("{given}", given)
    assert ("XLA401" in codes(text)) is several
