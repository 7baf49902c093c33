"""A program of many small cases whose counts follow from its text, and those counts.

Every case has a width of its own, so that no graph of one is known from another. What the cases
share are the graphs of ``xm.rendezvous``, in the order of the cases: the one that gathers sizes.
"""

from __future__ import annotations

import dataclasses

BATCHES, EPOCHS, EVERY = 5, 2, 2
#: Reads of a case that reads every second batch, from the first.
READS = 3
#: Weight and bias of the model of a case.
MODEL = 2

PROGRAM = """\
import json
import sys

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch import nn

BATCHES, EPOCHS, EVERY = 5, 2, 2


def parts(width, momentum=0.0):
    torch.manual_seed(0)
    model = nn.Linear(width, 2).to(torch_xla.device())
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def batch_of(width, rows=4):
    return torch.randn(rows, width).to(torch_xla.device())


def learn(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    xm.optimizer_step(optimizer)
    return loss.detach()


def case_steps(width):
    model, optimizer = parts(width)
    for _ in range(EPOCHS * BATCHES):
        learn(model, optimizer, batch_of(width))
        torch_xla.sync()


def case_momentum(width):
    model, optimizer = parts(width, momentum=0.9)
    for _ in range(BATCHES):
        learn(model, optimizer, batch_of(width))
        torch_xla.sync()


def case_reads(width):
    model, optimizer = parts(width)
    for batch in range(BATCHES):
        loss = learn(model, optimizer, batch_of(width))
        torch_xla.sync()
        if batch % EVERY == 0:
            loss.item()


def case_cuts(width):
    model, optimizer = parts(width)
    for batch in range(BATCHES):
        loss = learn(model, optimizer, batch_of(width))
        if batch % EVERY == 0:
            loss.item()
        torch_xla.sync()


def case_fallbacks(width):
    model, optimizer = parts(width)
    for _ in range(BATCHES):
        x = batch_of(width)
        torch.bincount(x[0].abs().long().clamp(max=3), minlength=4)
        learn(model, optimizer, x)
        torch_xla.sync()


def case_uneven(width):
    model, optimizer = parts(width)
    for _ in range(EPOCHS):
        for batch in range(BATCHES):
            learn(model, optimizer, batch_of(width, 3 if batch == BATCHES - 1 else 4))
            torch_xla.sync()


def case_evaluate(width):
    model, _ = parts(width)
    total = torch.zeros(1).to(torch_xla.device())
    with torch.no_grad():
        for _ in range(BATCHES):
            total += model(batch_of(width)).mean()
            torch_xla.sync()
    total.item()


def case_loader(width):
    model, optimizer = parts(width)
    columns = torch.randn(4 * BATCHES, width), torch.randn(4 * BATCHES, 2), torch.ones(4 * BATCHES)
    data = torch.utils.data.TensorDataset(*columns)
    loader = pl.MpDeviceLoader(torch.utils.data.DataLoader(data, 4), torch_xla.device())
    for _ in range(EPOCHS):
        for x, y, weight in loader:
            optimizer.zero_grad()
            ((model(x) - y).square().mean(1) * weight).mean().backward()
            xm.optimizer_step(optimizer)


def case_scalars(width):
    model, optimizer = parts(width)
    for batch in range(BATCHES):
        learn(model, optimizer, batch_of(width) * (3.5 + batch))
        torch_xla.sync()


def case_clip(width):
    model, optimizer = parts(width)
    for _ in range(BATCHES):
        optimizer.zero_grad()
        model(batch_of(width)).square().mean().backward()
        xm.reduce_gradients(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch_xla.sync()


def reduced(width, read):
    model, optimizer = parts(width)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        out = model(batch_of(width))
        mean = xm.all_reduce("sum", out.mean().detach())
        if batch % EVERY == 0:
            read(mean)
        (out - mean).square().mean().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


def case_reduced_item(width):
    reduced(width, lambda mean: mean.item())


def case_reduced_cpu(width):
    reduced(width, lambda mean: mean.cpu())


def case_reduced_fallback(width):
    def count(mean):
        torch.bincount(mean.abs().long().clamp(max=3).reshape(1), minlength=4)

    reduced(width, count)


def case_reduced_metric(width):
    model, optimizer = parts(width)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        loss = model(batch_of(width)).square().mean()
        if batch % EVERY == 0:
            xm.all_reduce("sum", loss.detach()).item()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()


def case_gather(width):
    model, optimizer = parts(width)
    for _ in range(BATCHES):
        xm.all_gather(learn(model, optimizer, batch_of(width)).reshape(1))
        torch_xla.sync()


def case_mesh_reduce(width):
    model, optimizer = parts(width)
    for _ in range(EPOCHS):
        for _ in range(BATCHES):
            loss = learn(model, optimizer, batch_of(width))
            torch_xla.sync()
        xm.mesh_reduce("tensor", loss, sum)
        xm.mesh_reduce("number", 1.5, sum)


def case_rendezvous(width):
    model, optimizer = parts(width)
    for _ in range(EPOCHS):
        learn(model, optimizer, batch_of(width))
        xm.rendezvous("here")


def case_payloads(width):
    for size in (3, 3, 5, 3):
        xm.rendezvous("sized", b"x" * size)


def case_save(width):
    model, optimizer = parts(width)
    learn(model, optimizer, batch_of(width))
    torch_xla.sync()
    xm.save(model.state_dict(), "model.pt")


def case_broadcast(width):
    model, optimizer = parts(width)
    xm.broadcast_master_param(model)
    learn(model, optimizer, batch_of(width))
    torch_xla.sync()


def case_index_read(width):
    model, optimizer = parts(width)
    kept = torch.zeros(BATCHES)
    for batch in range(BATCHES):
        loss = learn(model, optimizer, batch_of(width))
        torch_xla.sync()
        kept[batch] = loss


def case_shapes_by_core(width):
    x = torch.ones(1 + xr.global_ordinal(), width).to(torch_xla.device())
    for _ in range(BATCHES):
        x = x + 1
        torch_xla.sync()


def case_read_or_sync(width):
    total = torch.full((width,), 2.0).to(torch_xla.device())
    for batch in range(BATCHES):
        total.add_(1.5)
        if batch % EVERY == 0:
            total.cpu()
        torch_xla.sync()


CASES = {name: case for name, case in globals().items() if name.startswith("case_")}


def counters():
    found = {name: met.counter_value(name) or 0 for name in met.counter_names()}
    data = met.metric_data("TransferFromDeviceTime")
    return found | {"TransferFromDeviceTime": data[0] if data else 0}


def main(index):
    moved = {}
    for at, (name, case) in enumerate(CASES.items()):
        before = counters()
        case(8 + at)
        after = counters()
        moved[name] = {key: value - before.get(key, 0) for key, value in after.items()}
    if xr.global_ordinal() == 0:
        with open("counters.json", "w") as file:
            json.dump(moved, file)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@dataclasses.dataclass(frozen=True)
class Counts:
    """What one core does in one case.

    Attributes:
        compiled: New graphs.
        ran: Graphs that ran.
        reads: Host syncs.
        fallbacks: Runs of aten::bincount on the CPU.
        sent: Tensors sent to the device.
        fetched: Tensors fetched by reads and fallbacks.
        steps: Optimizer steps.
        exchanged: New graphs among ``compiled`` that belong to ``xm.rendezvous``.
        exchanges: Graphs among ``ran`` that belong to ``xm.rendezvous``.
    """

    compiled: int
    ran: int
    reads: int = 0
    fallbacks: int = 0
    sent: int = 0
    fetched: int = 0
    steps: int = 0
    exchanged: int = 0
    exchanges: int = 0


def expected(cores: int, core: int) -> dict[str, Counts]:
    """The counts of a core by case, where several cores run as if each had its own process."""
    several = cores > 1
    loop = {"sent": MODEL + BATCHES, "steps": BATCHES}
    long = {"sent": MODEL + EPOCHS * BATCHES, "steps": EPOCHS * BATCHES}
    read = {**loop, "reads": READS, "fetched": READS}
    first = core == 0
    return {
        "case_steps": Counts(1, EPOCHS * BATCHES, **long),
        # The first step makes the momenta, the others use them.
        "case_momentum": Counts(2, BATCHES, **loop),
        "case_reads": Counts(1, BATCHES, **read),
        # .item() leaves the graph pending: with or without it, the step is the same graph.
        "case_cuts": Counts(2, BATCHES + READS, **read),
        "case_fallbacks": Counts(2, 2 * BATCHES, fallbacks=BATCHES, fetched=BATCHES, **loop),
        "case_uneven": Counts(2, EPOCHS * BATCHES, **long),
        "case_evaluate": Counts(1, BATCHES, reads=1, fetched=1, sent=MODEL + 1 + BATCHES),
        "case_loader": Counts(
            1, EPOCHS * BATCHES, sent=MODEL + 3 * EPOCHS * BATCHES, steps=EPOCHS * BATCHES
        ),
        "case_scalars": Counts(1, BATCHES, **loop),
        "case_clip": Counts(1, BATCHES, **loop),
        "case_reduced_item": Counts(2, BATCHES + READS, **read),
        # .cpu() ends the graph of its value: the step that uses it takes it as an input.
        "case_reduced_cpu": Counts(3, BATCHES + READS, **read),
        "case_reduced_fallback": Counts(
            2, BATCHES + READS, fallbacks=READS, fetched=READS, **loop
        ),
        # Collectives are chained: the gradients' reduction comes after that of the metric, if
        # there was one. A single core's gradients are not reduced.
        "case_reduced_metric": Counts(3 if several else 2, BATCHES + READS, **read),
        "case_gather": Counts(1, BATCHES, **loop),
        # In each exchange one graph for the sizes and one for the payloads, which are of two sizes.
        "case_mesh_reduce": Counts(
            1 + 1 + 2, EPOCHS * (BATCHES + 4), reads=EPOCHS, fetched=EPOCHS, exchanged=3,
            exchanges=4 * EPOCHS, **long,
        ),
        "case_rendezvous": Counts(
            1, 2 * EPOCHS, sent=MODEL + EPOCHS, steps=EPOCHS, exchanges=EPOCHS
        ),
        "case_payloads": Counts(2, 8, exchanged=2, exchanges=8),
        # Only the first core writes the file.
        "case_save": Counts(
            1, 1, reads=int(first), fetched=MODEL * first, sent=MODEL + 1, steps=1
        ),
        # The factor 1 or 0 of each parameter is sent.
        "case_broadcast": Counts(2, 2, sent=2 * MODEL + 1, steps=1),
        "case_index_read": Counts(1, BATCHES, reads=BATCHES, fetched=BATCHES, **loop),
        "case_shapes_by_core": Counts(1, BATCHES, sent=1),
        # On a device the step's graph gives its input's memory to its output and the read's does
        # not, so these are two. On several simulated cores, where this is off, they are one.
        "case_read_or_sync": Counts(
            1 if several else 2, BATCHES, reads=READS, fetched=READS, sent=1
        ),
    }  # fmt: skip
