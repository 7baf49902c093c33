"""What torch_xla traces otherwise on a TPU host: what ``dryrun.differences`` names, no more.

torch_xla's virtual device takes its kind from PJRT_DEVICE each time it is asked, so both ways can
be traced in one process, without a TPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from xladoctor.capture.dryrun.differences import DIFFERENT

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla

PROGRAM = """\
import json, os, re
import torch, torch_xla
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr
from torch.nn import functional as F

xr.use_spmd()
device = torch_xla.device()
x = torch.zeros(64, 32).to(device)
i = torch.zeros(64, 4, dtype=torch.long).to(device)
image = torch.zeros(1, 3, 8, 8).to(device)
weight = torch.zeros(64, 32).to(device)
kernel = torch.ones(2, 3, 3, 3).to(device)


def grad(function, start):
    start = start.clone().requires_grad_()
    function(start).sum().backward()
    return start.grad


TRACE = {
    "torch.gather": lambda: torch.gather(x, 1, i),
    "take": lambda: torch.take(x, i),
    "Tensor.scatter": lambda: x.scatter(1, i, torch.ones(64, 4, device=device)),
    "Tensor.scatter_add": lambda: x.scatter_add(1, i, torch.ones(64, 4, device=device)),
    "Tensor.scatter_reduce": lambda: x.scatter_reduce(1, i, x[:, :4], "amax"),
    "bilinear resizing": lambda: F.interpolate(image, scale_factor=2.0, mode="bilinear"),
    "nearest resizing": lambda: F.interpolate(image, scale_factor=2.0, mode="nearest"),
    "embedding": lambda: F.embedding(i, weight),
    "embedding, backward": lambda: grad(lambda w: F.embedding(i, w), weight),
    "index_select": lambda: torch.index_select(x, 0, i[:, 0]),
    "x[i]": lambda: x[i[:, 0]],
    "cross entropy, backward": lambda: grad(lambda w: F.cross_entropy(w, i[:, 0]), weight),
    "convolution, backward": lambda: grad(lambda w: F.conv2d(image, w), kernel),
    "max pooling, backward": lambda: grad(lambda w: F.max_pool2d(w, 2), image),
    "batch norm": lambda: F.batch_norm(image, None, None, training=True),
    "layer norm, backward": lambda: grad(lambda w: F.layer_norm(w, (32,)), x),
    "attention": lambda: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "sort": lambda: torch.sort(x)[0],
    "topk": lambda: torch.topk(x, 3)[0],
    "cumsum": lambda: x.cumsum(0),
    "dropout": lambda: F.dropout(x, 0.5),
    "float64": lambda: x.double() * 2,
    "matmul": lambda: x @ x.t(),
}


def opcodes(tensor):
    text = torch_xla._XLAC._get_xla_tensors_hlo([tensor])
    return sorted(re.findall(r"= \\\\S+ ([\\\\w-]+)\\\\(", text))


out = {}
for name, trace in TRACE.items():
    ways = []
    for kind in ("CPU", "TPU"):
        os.environ["PJRT_DEVICE"] = kind
        met.clear_counters()
        torch_xla.manual_seed(0)  # numbers drawn before are part of the graph
        ways.append(opcodes(trace()))
    out[name] = [ways[0] != ways[1], met.counter_names()]
print("FOUND" + json.dumps(out))
"""


def test_the_table_names_what_differs_and_nothing_else(tmp_path):
    (tmp_path / "trace.py").write_text(PROGRAM.replace("\\\\", "\\"))
    done = subprocess.run(
        [sys.executable, "trace.py"], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PJRT_DEVICE": "CPU"},
    )  # fmt: skip
    found = json.loads(done.stdout.partition("FOUND")[2])
    assert {name for name, (differs, _) in found.items() if differs} == set(DIFFERENT.values()) - {
        "max_unpool2d"  # asks the same question as gather; too slow to trace here
    }
    # The counters by which a dry run notices them.
    counters = {name: counter for counter, name in DIFFERENT.items()}
    for name, (differs, counted) in found.items():
        if differs:
            assert counters[name] in counted, name
