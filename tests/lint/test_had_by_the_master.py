"""What the master core alone has, and the others ask for: ``# !XLA405`` marks what is told.

All programs are invented; of a program without a mark nothing of the codes asked for is told.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, rows

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
import wandb
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


class Board:
    last = None

    def __init__(self, folder, is_first, writer=None):
        self.folder, self.is_first, self.handed = folder, is_first, writer
        self.writer = None
        self.anywhere = None
        if folder:
            self.anywhere = SummaryWriter(folder)
        if is_first and folder:
            self.writer = SummaryWriter(folder)
        self.bar = tqdm(total=10) if is_first else None
        self.open()

    def open(self):
        self.opened = None
        if not self.is_first:
            return
        self.opened = open(self.folder)
        self.set_last()

    def set_last(self):
        self.last = SummaryWriter(self.folder)

    def show(self, loss):
        if {kept}:
            print(xm.all_reduce("sum", [loss])){mark_kept}


def note(writer, loss):
    if writer is not None:
        print(xm.all_reduce("sum", [loss])){mark_note}


def make_writer(folder):
    if not xm.is_master_ordinal():
        return None
    return SummaryWriter(folder)


def run(index, net, loader, settings):
    device = torch_xla.device()
    net = net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rank = xr.global_ordinal()
    {made}
    board = Board(settings.folder, rank == 0, {given})
    for number, x in enumerate(pl.MpDeviceLoader(loader, device)):
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        board.show(loss)
        note({given}, loss)
        if {test}:
            every = xm.all_gather(loss.reshape(1)){mark}


torch_xla.launch(run, args=(None, None, None))
"""
MARK = "  # !XLA405"
OFTEN = "writer = SummaryWriter()"
ALONE = "writer = SummaryWriter() if rank == 0 else None"


def _program(*, kept="False", made="writer = None", given="None", test="False", **marked):
    said = {name: marked.get(name, "") for name in ("mark", "mark_kept", "mark_note")}
    made = made.replace("\n", "\n    ")
    return PROGRAM.format(kept=kept, made=made, given=given, test=test, **said)


def _told(program):
    return [(row, "XLA405") for row in rows(program, "XLA405")]


@pytest.mark.parametrize(
    ("made", "test"),
    [
        (ALONE, "writer and number % 10 == 0"),
        (f"writer = None\nif settings.logs and rank == 0:\n    {OFTEN}", "writer is not None"),
        (f"writer = None\nif rank != 0:\n    pass\nelse:\n    {OFTEN}", "writer != None"),
        ("writer, bar = None, None\nif rank == 0:\n    bar = tqdm()", "bar"),
        (f"writer: SummaryWriter | None = None\nif not rank:\n    {OFTEN}", "writer"),
        ("writer = None if rank else SummaryWriter()", "writer is not None"),
        ("writer = make_writer(settings.folder)", "writer"),
        (f"{ALONE}\nother = writer", "other is not None"),
        ("if rank == 0:\n    wandb.init()", "wandb.run is not None"),
        (f"writer = None\nmain = rank == 0\nif main:\n    {OFTEN}", "writer"),
    ],
)
def test_a_name_that_holds_something_on_the_master_alone(made, test):
    program = _program(made=made, test=test, mark=MARK)
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize(
    ("made", "test"),
    [
        (f"writer = None\nif settings.logs or rank == 0:\n    {OFTEN}", "writer"),
        (f"writer = None\nif settings.logs:\n    {OFTEN}", "writer is not None"),
        (f"{ALONE}\nif settings.all:\n    writer = open(settings.folder)", "writer"),
        (f"writer = None\nif not (rank != 0 and settings.quiet):\n    {OFTEN}", "writer"),
        (f"{ALONE}\nwriter = writer or open(settings.folder)", "writer"),
        ("wandb.init()\nif rank == 0:\n    wandb.init()", "wandb.run is not None"),
        ("writer = SummaryWriter() if settings.logs else None", "writer"),
        (f"{ALONE}\nfor writer in settings.writers:\n    print(writer, rank)", "writer"),
    ],
)
def test_a_name_that_holds_something_on_every_core(made, test):
    assert _told(_program(made=made, test=test)) == []


@pytest.mark.parametrize(
    "kept", ["self.writer", "self.bar is not None", "self.opened", "self.last"]
)
def test_an_attribute(kept):
    program = _program(kept=kept, mark_kept=MARK)
    assert _told(program) == sorted(marks(program)) != []


@pytest.mark.parametrize("kept", ["self.anywhere", "self.folder", "self.handed"])
def test_an_attribute_of_every_core(kept):
    assert _told(_program(kept=kept)) == []


def test_a_parameter():
    program = _program(
        made=ALONE, given="writer", kept="self.handed", mark_kept=MARK, mark_note=MARK
    )
    assert _told(program) == sorted(marks(program)) != []


def test_a_parameter_that_another_call_gives_every_core():
    program = _program(made=f"{ALONE}\nnote(open(settings.folder), rank)", given="writer")
    assert _told(program) == []


@pytest.mark.parametrize(
    ("made", "expected"),
    [(ALONE, 0), (OFTEN, 1), ("writer = None\nif settings.logs:\n    " + OFTEN, 1)],
)
def test_a_line_that_is_printed_by_who_has_a_writer(made, expected):
    shown = 'print("written")'
    program = _program(made=made, test="writer").replace(
        "every = xm.all_gather(loss.reshape(1))", shown
    )
    assert len(rows(program, "XLA401")) == expected
