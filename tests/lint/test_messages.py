"""A message says what is wrong, in which loop, and how often that loop runs."""

from __future__ import annotations

import json
import textwrap

import pytest

from xladoctor.lint import engine, sources
from xladoctor.lint.sources import Source

HEAD = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from tqdm import tqdm

EPOCHS = 10
device = xm.xla_device()
model = torch.nn.Linear(4, 4).to(device)
"""


def message(program, code="XLA101"):
    result = engine.lint(Source("train.py", HEAD + textwrap.dedent(program)))
    assert result.failures == ()
    [finding] = [item for item in result.findings if item.code == code]
    return finding.message


@pytest.mark.parametrize(
    ("loops", "said"),
    [
        ("for x in loader:", "(step loop: line 9, len(loader) times)"),
        ("for i, x in enumerate(tqdm(loader), 1):", "(step loop: line 9, len(loader) times)"),
        ("for i in range(100):", "(step loop: line 9, 100 times)"),
        ("for i in range(3, 10):", "(step loop: line 9, 7 times)"),
        ("for i in range(EPOCHS):", "(step loop: line 9, 10 times)"),
        ("for i in range(args.steps):", "(step loop: line 9, args.steps times)"),
        ("for i in range(1, args.steps + 1):", "(step loop: line 9, args.steps times)"),
        ("for i in range(len(loader)):", "(step loop: line 9, len(loader) times)"),
        ("while step < 10:", "(step loop: line 9)"),
        ("for i in range(0, n, 2):", "(step loop: line 9)"),
        ("for x in batches():", "(step loop: line 9)"),
        ("for x in loader:\n  if done: break", "(step loop: line 9)"),
    ],
)
def test_the_loop_and_how_often_it_runs(loops, said):
    first, _, more = loops.partition("\n")
    body = "".join(f"{more.replace('  ', '    ', 1)}\n" if more else "")
    program = (
        f"{first}\n{body}    loss = model(torch.ones(2, 4, device=device)).sum()\n"
        "    loss.backward()\n    torch_xla.sync()\n    print(loss.item())\n"
    )
    assert message(program).endswith(said)


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        ("for epoch in range(EPOCHS):", "10 x len(loader) times)"),
        ("for epoch in range(1, epochs + 1):", "epochs x len(loader) times)"),
        ("while True:", "len(loader) times in an epoch)"),
    ],
)
def test_epochs_are_counted_here_and_through_the_call(epochs, said):
    step = (
        "for x in loader:\n"
        "    loss = model(x.to(device)).sum()\n"
        "    loss.backward()\n"
        "    torch_xla.sync()\n"
        "    print(loss.item())\n"
    )
    nested = f"loader = []\n{epochs}\n{textwrap.indent(step, '    ')}"
    assert message(nested).endswith(said)
    called = f"def train(loader):\n{textwrap.indent(step, '    ')}\n{epochs}\n    train([])\n"
    assert message(called).endswith(said)


def test_a_method_that_a_framework_calls():
    program = """
        import lightning as L

        class Net(L.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = self.net(x).sum()
                print(loss.item())
                return loss
    """
    assert message(program).endswith("(training_step, line 13, runs for every batch)")


def test_a_loop_in_another_cell_of_a_notebook():
    cells = [
        HEAD,
        "def report(loss):\n    return loss.item()\n",
        "text = 'nothing'\n",
        (
            "for x in loader:\n    loss = model(x.to(device)).sum()\n    loss.backward()\n"
            "    torch_xla.sync()\n    report(loss)\n"
        ),
    ]
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    result = engine.lint(sources.from_bytes(json.dumps(document).encode(), "train.ipynb"))
    [finding] = [item for item in result.findings if item.code == "XLA101"]
    assert finding.message.endswith("(step loop: cell 4, line 1, len(loader) times)")
    assert [(place.cell, place.row) for place in finding.related] == [(3, 1), (3, 2)]


def test_what_costs_nothing_each_time_names_no_loop():
    program = "for x in loader:\n    loss = model(x.to(device)).sum()\n    loss.backward()\n"
    assert "step loop:" not in message(program, "XLA802")


@pytest.mark.parametrize(
    ("loader", "hangs"),
    [
        ("DataLoader(data, batch_size=4, sampler=DistributedSampler(data))", False),
        ("DataLoader(data, batch_size=4)", False),
        ("DataLoader(Subset(data, range(xr.global_ordinal(), 90, 8)), batch_size=4)", True),
    ],
)
def test_a_short_last_batch_hangs_only_cores_that_may_have_unequal_numbers_of_batches(
    loader, hangs
):
    """A DistributedSampler fills up the shares, and a loader without one gives all to each."""
    program = f"""
    import torch_xla.runtime as xr
    from torch.utils.data import DataLoader, Subset
    from torch.utils.data.distributed import DistributedSampler

    def _mp_fn(index, data, optimizer):
        train_loader = {loader}
        for x in train_loader:
            model(x.to(device)).sum().backward()
            xm.optimizer_step(optimizer)

    torch_xla.launch(_mp_fn)
    """
    said = message(program, "XLA203")
    assert said.startswith("the last batch of an epoch may be smaller")
    assert ("can hang" in said) is hangs


HELPED = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def criterion(outputs, y):
    weight = torch.ones(2, device=outputs.device)
    return torch.nn.functional.cross_entropy(outputs, y, weight)


def train(loader, model, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)  # train
        loss = criterion(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
        print(loss.item())


def evaluate(loader, model, device):
    with torch.no_grad():
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            print(loss.item())


model = torch.nn.Linear(8, 2).to(torch_xla.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(train_loader, model, optimizer, torch_xla.device())
evaluate(held_loader, model, torch_xla.device())
"""


def test_a_read_is_not_put_down_to_what_another_loop_uploads():
    result = engine.lint(Source("train.py", HELPED))
    reads = [finding for finding in result.findings if finding.code == "XLA101"]
    uploads = [row for row, text in enumerate(HELPED.splitlines(), 1) if "# train" in text]
    first, second = sorted(reads, key=lambda finding: finding.locations[0].row)
    assert uploads[0] in {place.row for place in first.related}
    assert uploads[0] not in {place.row for place in second.related}
