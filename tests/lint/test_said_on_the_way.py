"""What helpers and branches on the way to a line say about it: findings, and healthy twins.

All programs are invented. ``# !XLA304`` marks a line on which that rule has to find something; no
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
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
"""
STARTED = """\
def work(index, settings):
    device = torch_xla.device()
    net = settings.net.to(device)
    adam = torch.optim.Adam(net.parameters())
    train(net, adam, pl.MpDeviceLoader(settings.rows, device), settings)

if __name__ == "__main__":
    xmp.spawn(work, args=(settings,))
"""
TURN = """\
def train(net, adam, rows, settings):
    for number, (seen, wanted) in enumerate(rows):
        net(seen, wanted).backward()
"""

REDUCED = {
    "XLA304: a clip under a condition": TURN
    + """\
        if (number + 1) % settings.turns == 0:
            if settings.most > 0:
                xm.reduce_gradients(adam)
                torch.nn.utils.clip_grad_norm_(net.parameters(), settings.most)
            xm.optimizer_step(adam)  # !XLA304
            adam.zero_grad()
""",
    "XLA304: a helper that clips": """\
def clipped(net, optimizer, most):
    if most is None:
        return
    xm.reduce_gradients(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), most)
"""
    + TURN
    + """\
        clipped(net, adam, settings.most)
        xm.optimizer_step(adam)  # !XLA304
        adam.zero_grad()
""",
    "XLA304: a method that clips": """\
class Runner:
    def __init__(self, net, adam, most):
        self.net, self.adam, self.most = net, adam, most
    def clip(self):
        if self.most is not None:
            xm.reduce_gradients(self.adam)
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.most)
    def step(self):
        self.clip()
        xm.optimizer_step(self.adam)  # !XLA304
        self.net.zero_grad()
def train(net, adam, rows, settings):
    runner = Runner(net, adam, settings.most)
    for seen, wanted in rows:
        net(seen, wanted).backward()
        runner.step()
""",
    "XLA304: each way has its own step, healthy": TURN
    + """\
        if settings.most:
            xm.reduce_gradients(adam)
            torch.nn.utils.clip_grad_norm_(net.parameters(), settings.most)
            adam.step()
        else:
            xm.optimizer_step(adam)
        adam.zero_grad()
""",
    "XLA304: the way that clips goes on, healthy": TURN
    + """\
        if settings.most:
            xm.reduce_gradients(adam)
            torch.nn.utils.clip_grad_norm_(net.parameters(), settings.most)
            adam.step()
            adam.zero_grad()
            continue
        xm.optimizer_step(adam)
        adam.zero_grad()
""",
    "XLA304: two conditions of which one holds, healthy": TURN
    + """\
        if settings.most:
            xm.reduce_gradients(adam)
            torch.nn.utils.clip_grad_norm_(net.parameters(), settings.most)
            settings.after(adam)
        if not settings.most:
            xm.optimizer_step(adam)
        adam.zero_grad()
""",
    "XLA304: new gradients in between, healthy": TURN
    + """\
        xm.reduce_gradients(adam)
        adam.step()
        adam.zero_grad()
        net(seen + 1, wanted).backward()
        xm.optimizer_step(adam)
        adam.zero_grad()
""",
    "XLA304: a helper for another optimizer, healthy": """\
def clipped(net, optimizer, most):
    xm.reduce_gradients(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), most)
"""
    + TURN
    + """\
        clipped(settings.other, settings.sgd, settings.most)
        settings.sgd.step()
        xm.optimizer_step(adam)
        adam.zero_grad()
""",
}

LOOP = """\
import torch.distributed as dist
import torch_xla.runtime as xr
HELPER
def work(index, settings):
    device = torch_xla.device()
    dist.init_process_group("xla", init_method="xla://")
    net = settings.net.to(device)
    adam = torch.optim.Adam(net.parameters())
    cores, mine = xr.world_size(), xr.global_ordinal()
    for seen, wanted in pl.MpDeviceLoader(settings.rows, device):
        adam.zero_grad()
        BODY
        loss.backward()
        xm.optimizer_step(adam)

if __name__ == "__main__":
    xmp.spawn(work, args=(settings,))
"""


def _looped(body, helper=""):
    return LOOP.replace("BODY", body.replace("\n", "\n        ")).replace("HELPER", helper)


PLACED = {
    "XLA421: one chunk of what all have": _looped(
        "every = xm.all_gather(wanted)\n"
        "own = every.chunk(cores)[mine]  # !XLA421\n"
        "loss = (net(seen) - own).square().mean()"
    ),
    "XLA421: one part of a named split": _looped(
        "shares = torch.tensor_split(xm.all_gather(wanted), cores)\n"
        "own = shares[mine]  # !XLA421\n"
        "loss = (net(seen) - own).square().mean()"
    ),
    "XLA421: own features among those gathered": _looped(
        "loss = gathered(net(seen)).square().mean()",
        """\
def gathered(own):
    every = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    every[dist.get_rank()] = own  # !XLA421
    return torch.cat(every)
""",
    ),
    "XLA421: gathered in a group that nobody joins, healthy": _looped(
        "loss = gathered(net(seen)).square().mean()",
        """\
def gathered(own):
    if not dist.is_initialized():
        return own
    every = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    every[dist.get_rank()] = own
    return torch.cat(every)
""",
    ).replace('    dist.init_process_group("xla", init_method="xla://")\n', ""),
    "XLA421: parts by a number that all have, healthy": _looped(
        "shares = xm.all_gather(wanted).chunk(cores)\n"
        "loss = (net(seen) - shares[0]).square().mean() + shares[settings.place].sum()"
    ),
    "XLA421: a list of the host, healthy": _looped(
        "names = settings.names\n"
        "name = names[mine]\n"
        "part = torch.arange(64).chunk(cores)[mine]\n"
        "settings.note(name, part)\n"
        "loss = (net(seen) - wanted).square().mean()"
    ),
    "XLA421: gathered objects, healthy": _looped(
        "every = [None] * cores\n"
        "dist.all_gather_object(every, settings.name)\n"
        "own = every[mine]\n"
        "loss = (net(seen) - wanted).square().mean()"
    ),
}


@pytest.mark.parametrize("name", PLACED)
def test_parts_that_are_taken_by_the_number_of_the_core(name):
    _holds(name, HEAD + PLACED[name])


READ = """\
import wandb
from torch.utils.tensorboard import SummaryWriter
def work(index, settings):
    device = torch_xla.device()
    net = settings.net.to(device)
    adam = torch.optim.Adam(net.parameters())
    WRITER
    for number, (seen, wanted) in enumerate(pl.MpDeviceLoader(settings.rows, device)):
        adam.zero_grad()
        loss = net(seen, wanted)
        loss.backward()
        xm.optimizer_step(adam)
        BODY

if __name__ == "__main__":
    xmp.spawn(work, args=(settings,))
"""


def _read(body, writer="writer = SummaryWriter() if xm.is_master_ordinal() else None"):
    body, writer = body.replace("\n", "\n        "), writer.replace("\n", "\n    ")
    return READ.replace("BODY", body).replace("WRITER", writer)


READS = {
    "XLA425: what a call inside the reduction computes": _read(
        'mean = xm.all_reduce("sum", net(seen, wanted).mean())\n'
        "if xm.is_master_ordinal():\n"
        "    print(mean.item())  # !XLA425"
    ),
    "XLA425: given to a logger": _read(
        'mean = xm.all_reduce("sum", loss.detach())\n'
        "if xm.is_master_ordinal():\n"
        '    wandb.log({"loss": mean})  # !XLA425'
    ),
    "XLA425: fetched by torch_xla's own helper": _read(
        "every = xm.all_gather(net(seen, wanted))\n"
        "if settings.pictures and xm.is_master_ordinal():\n"
        "    settings.show(xm._maybe_convert_to_cpu(every))  # !XLA425"
    ),
    "XLA425: only the master has a writer": _read(
        'mean = xm.all_reduce("sum", loss.detach())\n'
        "if writer is not None and number % 10 == 0:\n"
        '    writer.add_scalar("loss", mean.item(), number)  # !XLA425'
    ),
    "XLA425: the master alone makes its writer": _read(
        'mean = xm.all_reduce("sum", loss.detach())\n'
        "if writer:\n"
        '    writer.add_scalar("loss", mean, number)  # !XLA425',
        "writer = None\nif xm.is_master_ordinal():\n    writer = SummaryWriter()",
    ),
    "XLA405: a meeting of those that have a writer": _read(
        'if writer is not None and number % 10 == 0:\n    xm.rendezvous("written")  # !XLA405'
    ),
    "XLA425: read on all cores before, healthy": _read(
        'mean = xm.all_reduce("sum", net(seen, wanted).mean()).item()\n'
        "if writer is not None:\n"
        '    writer.add_scalar("loss", mean, number)'
    ),
    "XLA425 XLA405: each core has a writer, healthy": _read(
        'mean = xm.all_reduce("sum", loss.detach())\n'
        "if writer is not None:\n"
        '    xm.rendezvous("written")\n'
        '    writer.add_scalar("loss", mean.item(), number)',
        "writer = None\nif settings.logs:\n    writer = SummaryWriter()",
    ),
    "XLA425 XLA405: made where it is missing, healthy": _read(
        'mean = xm.all_reduce("sum", loss.detach())\n'
        "if writer is None:\n"
        "    writer = SummaryWriter()\n"
        "if writer is not None:\n"
        '    xm.rendezvous("written")\n'
        '    writer.add_scalar("loss", mean.item(), number)',
        "writer = None",
    ),
}


@pytest.mark.parametrize("name", READS)
def test_what_the_master_reads_of_a_pending_reduction(name):
    _holds(name, HEAD + READS[name])


MOVED = """\
import torch.nn.functional as F
from torch.utils.data import DataLoader
def train(net, rows, adam, settings):
    device = torch_xla.device()
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss()
    for x, y in DataLoader(rows, batch_size=8, drop_last=True):
        MOVE
        adam.zero_grad()
        loss = criterion(net(x), y.view(-1))
        loss.backward()
        adam.step()
        torch_xla.sync()
"""
ON_DEVICE = "x, y = x.to(device), y.to(device)"


def _moved(move):
    return MOVED.replace("MOVE", move.replace("\n", "\n        "))


HOST = {
    "XLA504 XLA603: moves whose results nobody takes": _moved(
        "x.to(device)  # !XLA504\ny.to(device, non_blocking=True)  # !XLA504"
    ),
    "XLA504: sent and dropped where a TPU is used": _moved(
        "if settings.tpu:\n"
        "    xm.send_cpu_data_to_device(x, device)  # !XLA504\n"
        "    xm.send_cpu_data_to_device(y, device)  # !XLA504\n"
        "else:\n"
        "    x, y = x.to(device), y.to(device)"
    ),
    "XLA603 XLA504: sent, and taken": _moved(
        "x, y = xm.send_cpu_data_to_device([x, y], device)  # !XLA603"
    ),
    "XLA603 XLA504: sent beside a device loader, healthy": _moved(
        "x, y = xm.send_cpu_data_to_device([x, y], device)"
    ).replace(
        "DataLoader(rows, batch_size=8, drop_last=True):",
        "pl.MpDeviceLoader(DataLoader(rows, batch_size=8, drop_last=True), device):",
    ),
    "XLA504: noise of the host": MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "real = torch.ones(8, 1)\n        loss = F.binary_cross_entropy(net(x), real)  # !XLA504",
    ),
    "XLA504: a loss that is an object": MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "order = torch.arange(8).long()\n        loss = criterion(net(x), order)  # !XLA504",
    ),
    "XLA504: moved again behind, healthy": _moved(f"x.to(device)\n{ON_DEVICE}"),
    "XLA504: batches that move in place, healthy": """\
def train(net, loader, adam):
    device = torch_xla.device()
    net.to(device)
    for inputs in loader:
        inputs.to(device)
        net(**inputs).loss.backward()
        adam.step()
        torch_xla.sync()
""",
    "XLA504: modules, healthy": """\
class Pair(torch.nn.Module):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
def build():
    device = torch_xla.device()
    for x, y in [(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))]:
        x.to(device)
        y.to(device)
        pair = Pair(x, y)
    return pair
""",
    "XLA504: made there, healthy": MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "order = torch.arange(8, device=device)\n        loss = criterion(net(x), order)",
    ),
    "XLA504: made where all is made, healthy": "torch.set_default_device('xla')\n"
    + MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "order = torch.arange(8)\n        loss = criterion(net(x), order)",
    ),
    "XLA504: arithmetic takes both, healthy": MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "weight = torch.ones(8)\n        loss = (net(x).mean(1) * weight).mean()",
    ),
    "XLA504: moved before it is used, healthy": MOVED.replace("MOVE", ON_DEVICE).replace(
        "loss = criterion(net(x), y.view(-1))",
        "order = torch.arange(8)\n        order = order.to(device)\n"
        "        loss = criterion(net(x), order)",
    ),
    "XLA504: a twin for the CPU, healthy": """\
import torch.nn.functional as F
def check(rows):
    net = torch.nn.Linear(3, 3)
    for x in rows:
        loss = F.mse_loss(net(x), torch.zeros(8, 3))
    return loss
""",
}


@pytest.mark.parametrize("name", HOST)
def test_tensors_of_the_host_beside_those_of_the_device(name):
    _holds(name, HEAD + HOST[name])


STOPPED = """\
import signal
import threading
STOP = False
ended = threading.Event()
def stop(number, frame):
    global STOP
    STOP = True
    ended.set()
def note(number, frame):
    asked = True
    print("got", number, asked)
class Guard:
    def __init__(self):
        self.leaving = False
        signal.signal(signal.SIGTERM, self.leave)
    def leave(self, number, frame):
        self.leaving = True
    def train(self, net, adam, rows):
        for seen, wanted in rows:
            net(seen, wanted).backward()
            xm.optimizer_step(adam)
            adam.zero_grad()
            LEAVES
def work(index, settings):
    signal.signal(signal.SIGTERM, HANDLER)
    device = torch_xla.device()
    net = settings.net.to(device)
    adam = torch.optim.Adam(net.parameters())
    Guard().train(net, adam, pl.MpDeviceLoader(settings.rows, device))
    for seen, wanted in pl.MpDeviceLoader(settings.rows, device):
        ASKED
        net(seen, wanted).backward()
        xm.optimizer_step(adam)
        adam.zero_grad()

if __name__ == "__main__":
    xmp.spawn(work, args=(settings,))
"""


def _stopped(asked="pass", leaves="pass", handler="stop"):
    asked, leaves = (x.replace("\n", f"\n{' ' * n}") for x, n in ((asked, 8), (leaves, 12)))
    return STOPPED.replace("ASKED", asked).replace("LEAVES", leaves).replace("HANDLER", handler)


SIGNALS = {
    "XLA420: a global that the handler sets": _stopped("if STOP:\n    break  # !XLA420"),
    "XLA420: an event that it sets": _stopped("if ended.is_set():\n    return  # !XLA420"),
    "XLA420: an attribute": _stopped(leaves="if self.leaving:\n    break  # !XLA420"),
    "XLA420: agreed on, healthy": _stopped(
        'together = xm.mesh_reduce("stop", int(STOP), max)\nif together:\n    break'
    ),
    "XLA420: another flag, healthy": _stopped("if settings.STOP_EARLY:\n    break", handler="note"),
    "XLA420: a handler that only tells, healthy": _stopped(
        "if settings.asked:\n    break", handler="note"
    ),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_loops_that_a_signal_ends(name):
    _holds(name, HEAD + SIGNALS[name])


WHOLE = """\
from torch.utils.data import DataLoader, TensorDataset
def made(batch_size, batches=100):
    rows = torch.randn(SAMPLES, 8)
    return DataLoader(TensorDataset(rows), batch_size=batch_size)MARK
def train(net, adam, settings):
    device = torch_xla.device()
    net.to(device)
    for (x,) in pl.MpDeviceLoader(made(settings.size), device):
        adam.zero_grad()
        net(x).sum().backward()
        adam.step()
"""
SIZES = {
    "XLA203: a size that nobody knows": WHOLE.replace("SAMPLES", "batches").replace(
        "MARK", "  # !XLA203"
    ),
    "XLA203: one more than whole batches": WHOLE.replace(
        "SAMPLES", "batches * batch_size + 1"
    ).replace("MARK", "  # !XLA203"),
    "XLA203: whole batches, healthy": WHOLE.replace("SAMPLES", "batches * batch_size").replace(
        "MARK", ""
    ),
    "XLA203: whole batches by a name, healthy": WHOLE.replace(
        "    rows = torch.randn(SAMPLES, 8)",
        "    many = batch_size * batches\n    rows = torch.randn(many, 8)",
    ).replace("MARK", ""),
}


@pytest.mark.parametrize("name", SIZES)
def test_datasets_of_whole_batches(name):
    _holds(name, HEAD + SIZES[name])


@pytest.mark.parametrize("name", REDUCED)
def test_gradients_that_are_reduced_before_the_step(name):
    _holds(name, HEAD + REDUCED[name] + STARTED)


def _holds(name, program):
    asked = name.partition(":")[0].split()
    expected = {(row, code) for row, code in marks(program) if code in asked}
    assert told(name, program) == expected
    assert name.endswith("healthy") == (not expected)
