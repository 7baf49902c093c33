from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from xladoctor import catalogue
from xladoctor.diagnosis.fallback_advice import advice, lowered_since


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("aten::silu", "since 1.9"),
        ("aten::prelu_backward", "since 2.2"),  # called _prelu_kernel_backward today
        ("aten::std", "torch_xla 2.9 lowers it: upgrade"),
        ("aten::adaptive_max_pool2d", "divides the input size"),
        ("aten::norm.ScalarOpt_dim", "p=0"),
        ("aten::_ctc_loss_backward", "no lowering for it; instead: compute this loss on the CPU"),
        (
            "aten::grid_sampler_2d",
            "no lowering for it; instead: for inputs: augment in the Dataset",
        ),
        ("aten::equal", "(a == b).all()"),
        ("aten::nobody_knows_it", "no lowering for it: replace it"),
        ("aten::silu_out", "since 1.9"),  # a name of 1.8
        ("aten::silu_backward.grad_input", "since 1.10"),
        ("aten::norm_out", "lowers the rest of it since 2.9 at the latest"),
        ("aten::masked_scatter_", "since 2.1"),
        ("aten::_th_ge", "torch_xla 2.9 lowers it: upgrade"),  # names of 2019
        ("aten::s__th_and", "torch_xla 2.9 lowers it"),
        ("aten::_th_nonzero", "its size depends on the data"),
        ("aten::thnn_conv_transpose2d_forward", "torch_xla 2.9 lowers it"),
        ("aten::native_layer_norm_backward", "no longer runs it on the CPU: upgrade"),
        ("aten::conj_out", "no longer runs it on the CPU"),
        ("aten::im2col_backward", "F.conv2d"),
        ("aten::_weight_norm_interface_backward", "weight = g * v / v.norm("),
        ("torchvision::nms", "fixed number of boxes"),
        ("mylib::op", "replace it by operations that run on the device"),
    ],
)
def test_advice_names_the_replacement_and_the_release(operation: str, words: str) -> None:
    assert words in advice(operation)


def test_what_was_measured_on_the_cpu_is_not_called_lowered() -> None:
    """The two tables were made apart: one from lists of names, one from runs on 2.9."""
    conditional = catalogue.table("lowerings")["conditional"]
    for row in catalogue.table("ops")["measured"]:
        for operation in row.get("fallback", ()):
            name = operation.rpartition("::")[2].partition(".")[0]
            assert lowered_since(name) is None or name in conditional, (row["name"], operation)


def test_the_table_names_each_operation_once() -> None:
    table = catalogue.table("lowerings")
    names = [name for names in table["since"].values() for name in names]
    assert len(names) == len(set(names))
    assert set(table["conditional"]) <= set(names)
    assert set(table["renamed"].values()) <= set(names)
    assert not set(table["renamed"]) & set(names)
    assert not set(table["decomposed"]) & {*names, *table["renamed"], *table["instead"]}


#: Calls that led to the operations of ``decomposed``, and what the advice has instead of others,
#: each with the call that it stands for. Printed: what ran on the CPU, and how far results differ.
_CALLS = """
import json, warnings
import torch, torch.nn as nn, torch.nn.functional as F, torch_xla
import torch_xla.debug.metrics as met
warnings.simplefilter("ignore")
device = torch_xla.device()
torch.manual_seed(0)
x, y = torch.randn(4, 8), torch.rand(4, 8)
image = torch.randn(2, 4, 6, 6)

def on(tensor):
    return tensor.to(device).requires_grad_()

gone = {
    "native_layer_norm_backward": lambda: F.layer_norm(on(x), (8,)),
    "native_group_norm_backward": lambda: F.group_norm(on(image), 2),
    "isfinite, isinf": lambda: torch.isfinite(on(x)) & ~torch.isinf(on(x)),
    "argsort": lambda: torch.argsort(on(x)),
    "kl_div_backward": lambda: F.kl_div(on(x), y.to(device)),
    "l1_loss_backward": lambda: F.l1_loss(on(x), y.to(device)),
    "soft_margin_loss_backward": lambda: F.soft_margin_loss(on(x), y.to(device)),
    "linalg_norm": lambda: torch.linalg.norm(on(x)),
    "cosine_similarity": lambda: F.cosine_similarity(on(x), on(y)),
    "pairwise_distance": lambda: F.pairwise_distance(on(x), on(y)),
    "tensordot, trapz": lambda: torch.trapz(torch.tensordot(on(x), on(y.T), 1)),
    "conj": lambda: torch.conj(on(x)),
    "lstm": lambda: nn.LSTM(6, 4).to(device)(on(image[0]))[0],
    "gru": lambda: nn.GRU(6, 4).to(device)(on(image[0]))[0],
    "_thnn_fused_lstm_cell": lambda: nn.LSTMCell(8, 4).to(device)(on(x))[0],
    "_thnn_fused_gru_cell": lambda: nn.GRUCell(8, 4).to(device)(on(x)),
}

def halves(z):
    a, b = z.chunk(2, 1)
    return a * torch.sigmoid(b)

kernel = torch.eye(36).reshape(36, 4, 3, 3)
g = torch.rand(4, 1)
instead = {
    "glu": (lambda: halves(on(x)), lambda: F.glu(x, 1)),
    "im2col": (lambda: F.conv2d(on(image), kernel.to(device)).flatten(2),
               lambda: F.unfold(image, 3)),
    "weight_norm": (lambda: (lambda v: g.to(device) * v / v.norm(dim=1, keepdim=True))(on(x)),
                    lambda: torch._weight_norm(x, g, 0)),
}
found = {}
for name, call in {**gone, **{name: pair[0] for name, pair in instead.items()}}.items():
    met.clear_all()
    result = call()
    if result.requires_grad:
        result.sum().backward()
    torch_xla.sync()
    cpu = {n: met.counter_value(n) for n in met.counter_names() if n.startswith("aten::")}
    found[name] = [{n: count for n, count in cpu.items() if count}, 0.0]
    if name in instead:
        found[name][1] = float((result.cpu() - instead[name][1]()).abs().max())
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.xla
def test_calls_that_are_said_to_stay_on_the_device_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CALLS],
        capture_output=True, text=True, timeout=600, check=True,
        env={**os.environ, "PJRT_DEVICE": "CPU"},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: ran for name, (ran, _) in found.items() if ran} == {}
    assert {name: off for name, (_, off) in found.items() if off > 1e-5} == {}
    tried = {name for names in found for name in names.split(", ")}
    table = catalogue.table("lowerings")
    forward = {name.removesuffix("_backward") for name in table["decomposed"]}
    assert forward == {name.removesuffix("_backward") for name in tried} - {
        "glu",
        "im2col",
        "weight_norm",
    }
