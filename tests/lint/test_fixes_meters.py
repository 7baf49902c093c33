"""Reads that fill meters and lists: what the fix writes, and where it keeps its hands off."""

import textwrap

import pytest

from xladoctor.lint import engine, fixes

PROGRAM = """
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


class Meter:
{meter}

def train(model, optimizer, loader, log):
    device = torch_xla.device()
    model = model.to(device)
{before}
    for step, (x, y) in enumerate(pl.MpDeviceLoader(loader, device)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        xm.optimizer_step(optimizer)
{inside}
{after}
"""

PLAIN = """
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count if self.count else 0.0

    def mean(self):
        \"""The mean.\"""
        return self.sum / max(self.count, 1)

    def __str__(self):
        return f"{self.avg:.4f} of {self.count}"
"""


def fixed(inside, *, meter=PLAIN, before="meter = Meter()", after="return float(meter.avg)"):
    """The lines that the fixes of reads change, and what is found in the result."""
    parts = {"meter": meter, "before": before, "inside": inside, "after": after}
    indents = {"meter": 4, "before": 4, "inside": 8, "after": 4}
    text = PROGRAM.format(
        **{
            name: textwrap.indent(textwrap.dedent(part), " " * indents[name]).strip("\n")
            for name, part in parts.items()
        }
    )
    codes = engine.LintOptions(codes=frozenset({"XLA101", "XLA102"}))
    done = fixes.fix(text.encode(), "x.py", lambda source: engine.lint(source, codes), unsafe=True)
    assert done.result.failures == ()
    old = text.splitlines()
    new = [line.strip() for line in done.data.decode().splitlines() if line not in old]
    return new, [item.code for item in done.result.findings]


@pytest.mark.parametrize(
    ("inside", "after", "changed"),
    [
        ("meter.update(loss.item(), len(x))", "print(meter.avg)",
         ["meter.update(loss.detach(), len(x))", "print(float(meter.avg))"]),
        ("meter.update(value=float(loss))", "return meter.mean(), meter.count",
         ["meter.update(value=loss.detach())", "return float(meter.mean()), meter.count"]),
        # Already read there.
        ("meter.update(loss.detach().item())", "print(f'{meter.avg:.3f}', float(meter.mean()))",
         ["meter.update(loss.detach())"]),
        # Once in a while, in the loop.
        ("meter.update(loss.item(), 4)\nif step % 9 == 0:\n    log(meter.sum)\n    meter.reset()",
         "return meter.count",
         ["meter.update(loss.detach(), 4)", "log(float(meter.sum))"]),
        # Twice the same meter.
        ("meter.update(loss.item())\nmeter.update((loss * 2).item())", "return meter.avg",
         ["meter.update(loss.detach())", "meter.update((loss * 2).detach())",
          "return float(meter.avg)"]),
    ],
)  # fmt: skip
def test_a_meter_counts_on_the_device_and_is_read_where_it_is_used(inside, after, changed):
    begins = "meter.sum = torch.tensor(0.0, device=device)"
    assert fixed(inside, after=after) == ([begins, *changed], [])


@pytest.mark.parametrize(
    ("inside", "after"),
    [
        ("meter.update(loss.item())\nlog(meter.avg)", "return 0"),  # in every step anyway
        ("meter.update(loss.item())\nif meter.avg < 1:\n    log(step)", "return 0"),
        ("meter.update(loss.item())", "return meter"),  # handed on
        ("meter.update(loss.item())", "log(meter)"),
        ("meter.update(loss.item())", "log([meter])"),
        ("meter.update(loss.item())\nmeter.sum = 0", "return meter.avg"),
        ("meter.update(loss.item())", "read = meter.mean\nreturn read()"),
        ("meter.update((x > 0).sum().item())", "return meter.sum"),  # an int would be a float
        ("meter.update(*[loss.item()])", "return meter.avg"),
    ],
)
def test_a_meter_whose_use_is_not_in_sight_is_left_alone(inside, after):
    changed, left = fixed(inside, after=after)
    assert changed == []
    assert left


@pytest.mark.parametrize(
    "line",
    [
        "self.values.append(value)",
        "self.best = min(self.sum, value)",
        "if value > 10:\n            self.count = 0",
        "if self.count > 3:\n            self.sum += value",
        "assert value == value",
        "self.sum = np.float64(value)",
        "print(value)",
        "self.sum -= value",
        "other = value\n        self.count = int(other)",
    ],
)
def test_a_meter_that_does_more_than_add_is_left_alone(line):
    meter = PLAIN.replace("self.sum += value * n", line)
    changed, left = fixed("meter.update(loss.item())", meter=meter)
    assert changed == []
    assert left == ["XLA101"]


def test_a_meter_with_a_base_class_or_from_elsewhere_is_left_alone():
    for before in ("meter = log.Meter()", "meter = log or Meter()", "meter = Meter2 = Meter()\n"):
        changed, left = fixed("meter.update(loss.item())", before=before)
        assert (changed, left) == ([], ["XLA101"]), before
    inherits = "    pass\n\n\nclass Meter(torch.nn.Module):\n" + textwrap.dedent(PLAIN)
    changed, _ = fixed("meter.update(loss.item())", meter=textwrap.indent(inherits, "    "))
    assert changed == []


@pytest.mark.parametrize(
    ("inside", "kept"),
    [
        ("kept.append(loss.item())", "kept.append(loss.detach())"),
        ("kept.append(float(loss))", "kept.append(loss.detach())"),
        ("kept.append((x > 0).sum().item())", "kept.append((x > 0).sum().detach())"),
        ("kept.append((loss / 2).item())", "kept.append((loss / 2).detach())"),
    ],
)
def test_a_list_keeps_the_tensors_until_the_loop_is_over(inside, kept):
    changed, left = fixed(inside, before="kept = []", after="return np.mean(kept)")
    assert changed == [kept, "kept = torch.stack(kept).flatten().tolist() if kept else []"]
    assert left == []


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("kept = []", "kept.append(loss.item())\nlog(kept)"),
        ("kept = []", "kept.append(loss.item())\nkept.append(0.0)"),
        ("kept = [0.0]", "kept.append(loss.item())"),
        ("kept = log.kept", "kept.append(loss.item())"),
        ("kept = log.kept = []", "kept.append(loss.item())"),
        ("kept = []\nkept = kept or log", "kept.append(loss.item())"),
        ("kept = []", "kept.append(loss.item() / 2)"),
        ("kept = []", "kept.append(int(loss))"),  # cuts off what follows the point
        ("kept = []", "kept.append(float((x > 0).sum()))"),
        ("kept = []", "kept.append((step, loss.item()))"),
    ],
)
def test_a_list_that_is_looked_at_or_filled_otherwise_is_left_alone(before, inside):
    changed, left = fixed(inside, before=before, after="return np.mean(kept)")
    assert changed == []
    assert left


def test_a_list_that_is_filled_by_several_loops_is_left_alone():
    text = """
        import torch
        import torch_xla
        import torch_xla.distributed.parallel_loader as pl


        def train(model, optimizer, loader):
            kept = []
            for epoch in range(3):
                for x in pl.MpDeviceLoader(loader, torch_xla.device()):
                    loss = model(x).mean()
                    loss.backward()
                    optimizer.step()
                    kept.append(loss.item())
            return kept
    """
    data = textwrap.dedent(text).encode()
    options = engine.LintOptions(codes=frozenset({"XLA101"}))
    done = fixes.fix(data, "x.py", lambda source: engine.lint(source, options), unsafe=True)
    assert done.data == data
    assert done.result.findings
