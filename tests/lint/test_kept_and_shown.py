"""What is kept in containers and objects and read there, or shown, later.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

HEAD = """\
import logging
from collections import defaultdict
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
log = logging.getLogger(__name__)
"""
LOOP = """\
def train(net, batches, adam, criterion):
    device = torch_xla.device()
    net.to(device)
    %s
    for step, (x, y) in enumerate(pl.MpDeviceLoader(batches, device)):
        adam.zero_grad()
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
        xm.optimizer_step(adam)
        %s
"""
GAUGE = """\
class Gauge:
    shape = "{name}: {last:.3f} ({mean:.3f})"
    def __init__(self, name="loss"):
        self.name = name
        self.last = self.total = self.count = 0
    def put(self, value, n=1):
        self.last = value
        self.total += value * n
        self.count += n
    @property
    def mean(self):
        return self.total / self.count
"""


def program(classes, before, line):
    return f"{HEAD}{classes}{LOOP % (before, line)}"


SHOWS = f"""\
{GAUGE}
    def __str__(self):
        return f"{{self.name}}: {{self.mean:.3f}}"  # !XLA103
"""
HOST = SHOWS.replace("  # !XLA103", "")
GAUGES = "gauge = Gauge()"
PROGRAMS = {
    "a gauge is printed": program(SHOWS, GAUGES, "gauge.put(loss.detach()); print(step, gauge)"),
    "a gauge in a text": program(
        SHOWS, GAUGES, 'gauge.put(loss.detach()); log.info(f"{step} {gauge}")'
    ),
    "a gauge behind a percent sign": program(
        SHOWS, GAUGES, 'gauge.put(loss.detach()); print("%d %s" % (step, gauge))'
    ),
    "a gauge that the logger formats": program(
        SHOWS, GAUGES, 'gauge.put(loss.detach()); log.info("%d %s", step, gauge)'
    ),
    "a gauge that shows all that it keeps": program(
        f"""\
{GAUGE}
    def __repr__(self):
        shape = "{{name}} " + "{{last:.3f}}"
        return shape.format(**self.__dict__)  # !XLA103
""",
        GAUGES,
        "gauge.put(loss.detach()); print(gauge)",
    ),
    "a gauge with a text of its class": program(
        f"""\
{GAUGE}
    shape_text = "{{mean:.3f}}"
    def __str__(self):
        return self.shape_text.format(mean=self.mean)  # !XLA103
""",
        GAUGES,
        "gauge.put(loss.detach()); print(gauge)",
    ),
    "a display of several gauges": program(
        f"""\
{SHOWS}
class Display:
    def __init__(self, gauges):
        self.gauges = gauges
    def show(self, step):
        print(step, "  ".join(str(gauge) for gauge in self.gauges))
""",
        "gauge = Gauge(); display = Display([gauge])",
        "gauge.put(loss.detach()); display.show(step)",
    ),
    "a gauge of numbers": program(
        HOST, GAUGES, "gauge.put(loss.item()); print(step, gauge)  # !XLA101"
    ),
    "a gauge shown behind the loop": program(
        HOST, GAUGES, "gauge.put(loss.detach())\n    print(gauge)"
    ),
    "a dictionary of lists": program(
        "",
        "kept = defaultdict(list)",
        'kept["loss"].append(loss.detach()); print(kept["loss"][-1])  # !XLA103',
    ),
    "lists that are made when they are asked for": program(
        "",
        "kept = {}",
        'kept.setdefault("loss", []).append(loss); '
        "now = {k: v[-1].item() for k, v in kept.items()}  # !XLA101",
    ),
    "a dictionary of gauges": program(
        GAUGE,
        "gauges = defaultdict(Gauge)",
        'gauges["loss"].put(loss.detach()); print(gauges["loss"].mean)  # !XLA103',
    ),
    "a dictionary of lists of numbers": program(
        "",
        "kept = defaultdict(list)",
        'kept["step"].append(step); print(kept["step"][-1])',
    ),
    "a tree that is brought to the host": program(
        """\
def to_host(tree):
    if torch.is_tensor(tree):
        return tree.detach().cpu()  # !XLA101
    if isinstance(tree, dict):
        return {key: to_host(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [to_host(value) for value in tree]
    return tree
""",
        "kept = []",
        'kept.append(to_host({"loss": loss, "parts": [out, {"x": x}]}))',
    ),
    "a tree in one expression": program(
        """\
def to_host(tree):
    if isinstance(tree, dict):
        return {key: to_host(value) for key, value in tree.items()}
    return tree.tolist() if isinstance(tree, torch.Tensor) and tree.dim() else tree  # !XLA101
""",
        "kept = []",
        'kept.append(to_host({"parts": {"out": out}}))',
    ),
    "a tree that stays on the device": program(
        """\
def detached(tree):
    if isinstance(tree, dict):
        return {key: detached(value) for key, value in tree.items()}
    return tree.detach() if torch.is_tensor(tree) else float(tree)
""",
        "kept = []",
        'kept.append(detached({"parts": {"out": out}, "rate": 0.1}))',
    ),
    "pieces that an unread function gives": program(
        "import pictures\n",
        "seen = []",
        "parts = torch.cat([pictures.decoded(out[i : i + 1]) for i in range(4)])\n"
        "        seen.append(torch.clamp(parts, 0, 1).cpu())  # !XLA101",
    ),
    "all arguments are handed on": program(
        """\
def note(writer, *values, **options):
    writer.put(*values, **options)
class Writer:
    def put(self, value, step, **options):
        self.last = value.item()  # !XLA101
""",
        "writer = Writer()",
        'note(writer, loss, step, kind="train")',
    ),
    "numbers by name are handed on": program(
        """\
class Writer:
    def put(self, **numbers):
        for name, value in numbers.items():
            print(name, f"{value:.3f}")  # !XLA103
def note(writer, **numbers):
    writer.put(**numbers)
""",
        "writer = Writer()",
        "note(writer, loss=loss.detach())",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_kept_is_known_where_it_is_read_or_shown(name):
    text = PROGRAMS[name]
    told = {(row, code) for row, code in found(text) if code in {"XLA101", "XLA102", "XLA103"}}
    assert told == marks(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_on_a_gpu_is_left_alone(name):
    text = PROGRAMS[name].replace("torch_xla.device()", 'torch.device("cuda")')
    text = text.replace("pl.MpDeviceLoader(batches, device)", "batches")
    text = text.replace("xm.optimizer_step(adam)", "adam.step()")
    text = "\n".join(line for line in text.splitlines() if "import torch_xla" not in line)
    assert found(text) == []


#: A finding of XLA206 stands where ``!XLA206`` does.
GROWING = {
    "a list of losses": program(
        "",
        "losses = []",
        "losses.append(loss.detach()); mean = torch.stack(losses).mean()  # !XLA206",
    ),
    "rows that an object keeps": program(
        """\
class Bank:
    def __init__(self):
        self.rows = []
    def put(self, row):
        self.rows.append(row)
    def all(self):
        return torch.cat(self.rows)  # !XLA206
""",
        "bank = Bank()",
        "bank.put(out.detach()); far = bank.all().mean()",
    ),
    "rows that the loop takes out again": program(
        """\
class Bank:
    def __init__(self):
        self.rows = []
    def put(self, row):
        self.rows.append(row)
    def all(self):
        rows = torch.cat(self.rows)
        self.rows.clear()
        return rows
""",
        "bank = Bank()",
        "bank.put(out.detach()); far = bank.all().mean()",
    ),
    "rows that the loop begins anew": program(
        """\
class Bank:
    def __init__(self):
        self.rows = []
    def put(self, row):
        self.rows.append(row)
    def all(self):
        return torch.cat(self.rows)
""",
        "bank = Bank()",
        "bank.rows = []; bank.put(out.detach()); far = bank.all().mean()",
    ),
    "a list with an end": program(
        "from collections import deque\n",
        "losses = deque(maxlen=10)",
        "losses.append(loss.detach()); mean = torch.stack(losses).mean()",
    ),
    "a list of one step": program(
        "",
        "",
        "parts = []; parts.append(loss); parts.append(out.mean()); both = torch.stack(parts)",
    ),
    "a list that is put together behind the loop": program(
        "",
        "losses = []",
        "losses.append(loss.detach())\n    mean = torch.stack(losses).mean()",
    ),
    "now and then": program(
        "",
        "losses = []",
        "losses.append(loss.detach())\n"
        "        if step % 100 == 0:\n"
        "            xm.add_step_closure(print, args=(torch.stack(losses).mean(),))  # !XLA206",
    ),
    "now and then, of the last hundred": program(
        "",
        "losses = []",
        "losses.append(loss.detach())\n"
        "        if step % 100 == 0:\n"
        "            xm.add_step_closure(print, args=(torch.stack(losses).mean(),))\n"
        "            losses.clear()",
    ),
    "a text that a model writes": f"""\
{HEAD}
def write(net, ids, count):
    device = torch_xla.device()
    net.to(device)
    ids = ids.to(device)
    for _ in range(count):
        token = net(ids[:, -64:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)  # !XLA206
        torch_xla.sync()
    return ids
""",
    "a text that a module writes": f"""\
{HEAD}
class Writer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(100, 8)
    def forward(self, ids):
        return self.rows(ids)
    def write(self, ids, count):
        for _ in range(count):
            token = self(ids)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat((ids, token), dim=1)  # !XLA206
            if (token == 0).all():
                break
        return ids
def main(ids):
    device = torch_xla.device()
    writer = Writer().to(device)
    print(writer.write(ids.to(device), 20))
""",
    "a text behind an encoder": f"""\
{HEAD}
def translate(net, text, count):
    device = torch_xla.device()
    net.to(device)
    seen = net.encode(text.to(device))
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    for _ in range(count):
        token = net.decode(seen, ids)[:, -1:].argmax(-1)
        ids = torch.cat([ids, token], dim=1)  # !XLA206
        if not (ids[:, -1] != 2).any():
            break
    return ids
""",
    "a text that a loop of reads goes on with": f"""\
{HEAD}
def write(net, ids):
    device = torch_xla.device()
    net.to(device)
    ids = ids.to(device)
    while ids[0, -1] != 2 and ids.shape[1] < 64:
        token = net(ids[:, -64:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)  # !XLA206
    return ids
""",
    "a text that is written in one graph": f"""\
{HEAD}
def write(net, ids, count):
    device = torch_xla.device()
    net.to(device)
    ids = ids.to(device)
    for _ in range(count):
        token = net(ids[:, -64:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids.cpu()
""",
    "a text of one graph whose beginning may be missing": f"""\
{HEAD}
def write(net, ids, count):
    device = torch_xla.device()
    net.to(device)
    ids = ids.to(device)
    for _ in range(count):
        if net is None or ids is None:
            raise ValueError
        token = net(ids[:, -64:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
    return ids.cpu()
""",
    "places that a model has for all tokens": f"""\
{HEAD}
def write(net, ids, count):
    device = torch_xla.device()
    net.to(device)
    ids = ids.to(device)
    for place in range(count):
        token = net(ids)[:, -1].argmax(-1)
        ids = ids.index_copy(1, torch.tensor([place], device=device), token[:, None])
    return ids
""",
    "parts that no model is given": f"""\
{HEAD}
def padded(x, count):
    x = x.to(torch_xla.device())
    for _ in range(count):
        x = torch.cat([x, x[-1:]])
    return x
""",
}


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_in_a_loop_is_told_where_it_is_put_together(name):
    text = GROWING[name]
    assert {(row, code) for row, code in found(text) if code == "XLA206"} == marks(text)


HANDED = """\
import torch
import torch_xla
from torch.utils.data import DataLoader
class Trainer:
    def __init__(self, net, device):
        self.net, self.device = net, device
        self.adam = torch.optim.Adam(net.parameters())
    def step(self, batch):
        x, y = [part.to(self.device) for part in batch]
        loss = self.net(x, y)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()  # !XLA301
        self.last = loss.detach()
def main(net, data):
    device = torch_xla.device()
    trainer = Trainer(net.to(device), device)
    for batch in DataLoader(data, batch_size=8, drop_last=True):
        trainer.step(batch)
"""


def test_step_that_an_object_takes_has_no_end():
    assert [row for row, code in found(HANDED) if code == "XLA301"] == [13]


def test_step_that_an_object_takes_and_ends_is_left_alone():
    ended = HANDED.replace(
        "        trainer.step(batch)\n", "        trainer.step(batch)\n        torch_xla.sync()\n"
    )
    assert "XLA301" not in {code for _, code in found(ended)}
