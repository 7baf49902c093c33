"""What the table says of an operation, the linter says of the line: on every measured idiom.

Each idiom of ``rules/tables/ops.toml`` is put into a step loop as it was measured. Where it was
measured to read, to cut the graph, to run on the CPU or to recompile, the line has a finding;
where it was not, it has none. What the linter leaves alone on purpose stands in ``LEFT``, and why.
"""

from __future__ import annotations

import ast
import functools

import pytest

from xladoctor import catalogue
from xladoctor.lint import engine
from xladoctor.lint.sources import Source

HEAD = """import copy, io, json, logging, math, operator, pickle, random, warnings
import functools, itertools
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""
NAMES = "x, y, p, l, li, v, img, sig, vol, seq, logits, sq, spd, c"
PROGRAM = """

def step{index}(model, loader, opt):
    dev = torch_xla.device()
    model = model.to(dev)
    {setup}
    for i, ({names}) in enumerate(pl.MpDeviceLoader(loader, dev)):
        opt.zero_grad()
        k = random.randint(2, 6)
        f = random.random()
        b = x > 0
        b1 = b[:, 0]
        n = l.max()
        cnt = b.sum(1)
        s = x.mean()
        loss = model(x).sum()
        loss.backward()
        {code}
        opt.step()
"""
#: The line of the measured code in a program.
BEFORE = 18
#: The one that makes what it needs: a layer's weight norm is told there.
SETUP = 6
TOGETHER = 60

SAVED = "a program that saves in every step means to"
RARE = "no program was seen that does this in a step"
SHAPE = "it hangs on the shapes whether it falls back, and these are not known"
ONCE = "it makes a constant: a graph without a read"
CPU = "TPU lowers its backward pass, the CPU does not (ops.toml)"
LEFT = {
    "len(pickle.dumps(x))": SAVED,
    "torch.save(x.mul(2), io.BytesIO())": SAVED,
    "xm.save(x.mul(2), io.BytesIO())": SAVED,
    "x.sum() in [x.sum(), y.sum()]": RARE,
    'torch._assert(p.sum() > 0, "positive")': RARE,
    "torch._assert_async(p.sum() > 0)": RARE,
    "torch.histogramdd(x[:, :2], [4, 4])": RARE,
    "torch.repeat_interleave(x, torch.full_like(cnt, 3), dim=0, output_size=24)": RARE,
    "torch.tril_indices(4, 4, device=dev)": ONCE,
    "torch.triu_indices(4, 4, device=dev)": ONCE,
    "x[[True, False] * 4]": RARE,
    "x[np.array([True, False] * 4)]": RARE,
    'F.interpolate(vol, scale_factor=2, mode="nearest")': SHAPE,
    "F.adaptive_avg_pool2d(img, 7)": SHAPE,
    "F.adaptive_max_pool2d(img, 7)": SHAPE,
    "x.norm(p=0)": RARE,
    "x[torch.tensor(k, device=dev)]": RARE,
    "torch.cat([x] * k)": RARE,
    "bn = nn.BatchNorm1d(16).to(dev); bn.momentum = f / 10; r = bn(x)": RARE,
    "r = x * 2 if i < 4 else x.exp()": "two graphs, each compiled once",
    "r = sum([x] * k)": RARE,
    "torch.stack([s] * k)": RARE,
    "torch.tensor(list(range(k)), device=dev)": RARE,
    "F.normalize(x, p=f + 1)": RARE,
    "torch.pow(f, x)": RARE,
    "torch.arange(0, 1, 1 / (k + 1), device=dev)": RARE,
    "nn.AdaptiveAvgPool2d((5, 5))(img[..., :14, :14])": SHAPE,
    'nn.Upsample(scale_factor=2, mode="bilinear")(img)': CPU,
    'nn.Upsample(scale_factor=2, mode="nearest")(img)': CPU,
    "nn.UpsamplingBilinear2d(scale_factor=2)(img)": CPU,
}
#: Told for what the table does not measure.
ALSO = {
    "torch.from_numpy(np.ones((8, 16), np.float32)).to(dev)": "an upload",
    "x.masked_fill(torch.tensor([True, False] * 8, device=dev), 1.0)": "an upload",
    "torch.ones(8, 16) + x": "an upload",
    "torch.randn(4, 4).to(dev)": "an upload",
    "torch.randperm(8).to(dev)": "an upload",
    "torch.rand(8, generator=torch.Generator().manual_seed(i)).to(dev)": "an upload",
    "torch.ones(8, 16).to(dev, non_blocking=True)": "an upload",
    'F.embedding_bag(l[None], x.repeat(2, 1), mode="sum")': "its backward pass was measured",
    "F.glu(x)": "its backward pass was measured",
    "x.double() @ x.double().T": "64 bits, which a TPU computes slowly",
}


@functools.cache
def _measured():
    """Name, setup, code and row of each idiom that can be put into a loop as it stands."""
    found = []
    for row in catalogue.table("ops")["measured"]:
        if "error" in row:
            continue
        if "train()" in row["name"] or "loss_of(" in row["name"]:
            continue  # what they train stands in functions of the probe
        setup, _, code = row["name"].rpartition(">>>")
        code = code.strip()
        if row["group"] == "module":
            call = ast.parse(code, mode="eval").body
            made, given = ast.unparse(call.func), ", ".join(map(ast.unparse, call.args))
            setup, code = f"m = {made}.to(dev)", f"m({given}).sum().backward()"
            found.append((row["name"], setup, code, row))
            continue
        try:
            ast.parse(code, mode="eval")
            code = f"r = {code}"
        except SyntaxError:
            ast.parse(code)
        found.append((row["name"], setup.strip() or "pass", code, row))
    return found


@functools.cache
def _told():
    """The codes on the line of each idiom."""
    told = {}
    rows = _measured()
    for first in range(0, len(rows), TOGETHER):
        text, lines, made = HEAD, {}, {}
        for index, (name, setup, code, _) in enumerate(rows[first : first + TOGETHER]):
            program = PROGRAM.format(index=index, setup=setup, code=code, names=NAMES)
            lines[text.count("\n") + BEFORE] = name
            made[text.count("\n") + SETUP] = name
            text += program
        result = engine.lint(Source("train.py", text), engine.LintOptions())
        assert result.failures == ()
        for item in result.findings:
            place = item.locations[0]
            for row in range(place.row, (place.end_row or place.row) + 1):
                name = lines.get(row) or (made.get(row) if item.code == "XLA501" else None)
                if name is not None and item.severity.value != "info":
                    told.setdefault(name, set()).add(item.code)
    return told


def _costs(row):
    return bool(row["sync"] or row["cut"] or row["fallback"] or row["constant"] or row["varying"])


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, _, _, row in _measured()])
def test_finding_where_it_was_measured(name, row):
    told = _told().get(name, set())
    if _costs(row):
        assert bool(told) is (name not in LEFT), told
    else:
        assert bool(told) is (name in ALSO), told


def test_reasons_are_of_measured_idioms():
    names = {name for name, _, _, _ in _measured()}
    assert set(LEFT) | set(ALSO) <= names
