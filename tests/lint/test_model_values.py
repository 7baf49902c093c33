"""Names and kinds of value, in code as people write it."""

import pytest
from model_helpers import marked, model_of

from xladoctor.lint.model import Kind

HEAD = """
import torch, numpy as np
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
"""


def kind_of(body, mark="here"):
    model = model_of(HEAD + body)
    value = model.value(marked(model, mark))
    return value.kind, value.certain


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import torch_xla.core.xla_model as xm", "xm.mark_step()"),
        (
            "import torch_xla\nimport torch_xla.core.xla_model",
            "torch_xla.core.xla_model.mark_step()",
        ),
        ("from torch_xla.core import xla_model", "xla_model.mark_step()"),
        ("from torch_xla.core import xla_model as banana", "banana.mark_step()"),
        ("from torch_xla.core.xla_model import mark_step as ms", "ms()"),
        ("import torch_xla.core.xla_model as xm\nsync = xm.mark_step", "sync()"),
        ("import torch_xla.core.xla_model as xm\nalias = xm", "alias.mark_step()"),
        (
            "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None",
            "xm.mark_step()",
        ),
        ("def f():\n    import torch_xla.core.xla_model as xm\n    return 1", ""),
    ],
)
def test_a_name_is_found_however_it_is_spelled(imports, call):
    model = model_of(f"{imports}\n{call}\n")
    found = [site.name for site in model.calls() if site.name]
    assert found == (["torch_xla.core.xla_model.mark_step"] if call else [])


def test_a_shadowed_name_is_not_the_import():
    model = model_of(
        """
        import torch_xla.runtime as runtime
        def f(runtime):
            runtime.world_size()
        def print(x):
            pass
        print(3)
        """
    )
    assert [site.name for site in model.calls()] == [None, None]


def test_names_of_a_class_body_are_not_seen_in_its_methods():
    model = model_of(
        """
        class A:
            print = 3
            def f(self):
                print(1)
        """
    )
    assert [site.name for site in model.calls()] == ["builtins.print"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("x.to(xm.xla_device())", Kind.DEVICE_TENSOR),
        ("x.to(device)", Kind.DEVICE_TENSOR),
        ("x.to(device=device)", Kind.DEVICE_TENSOR),
        ("x.to('xla:1')", Kind.DEVICE_TENSOR),
        ("torch.zeros(3, device=device)", Kind.DEVICE_TENSOR),
        ("torch.zeros(3)", Kind.CPU_TENSOR),
        ("x.to('cpu')", Kind.CPU_TENSOR),
        ("d.cpu()", Kind.CPU_TENSOR),
        ("d.sum() + 1", Kind.DEVICE_TENSOR),
        ("d > 0", Kind.DEVICE_TENSOR),
        ("d is None", Kind.NUMBER),
        ("d.shape", Kind.NUMBER),
        ("d.shape[0] > 2", Kind.NUMBER),
        ("d.size(0)", Kind.NUMBER),
        ("len(d)", Kind.NUMBER),
        ("d.item()", Kind.NUMBER),
        ("float(d)", Kind.NUMBER),
        ("d.cpu().numpy()", Kind.ARRAY),
        ("F.relu(d)", Kind.DEVICE_TENSOR),
        ("torch.cat([d, d])", Kind.DEVICE_TENSOR),
        ("nn.CrossEntropyLoss()(d, d)", Kind.DEVICE_TENSOR),
        ("net(d)", Kind.DEVICE_TENSOR),
        ("net(x)", Kind.CPU_TENSOR),
        ("d.max(1)[1]", Kind.DEVICE_TENSOR),
        ("unknown(d)", Kind.UNKNOWN),
        ("unknown.thing", Kind.UNKNOWN),
        ("d.cuda()", Kind.UNKNOWN),
    ],
)
def test_kinds_of_expressions(line, kind):
    found, _ = kind_of(
        f"""
device = xm.xla_device()
x = torch.rand(3)
d = x.to(device)
net = nn.Linear(3, 3)
{line}  # <- here
"""
    )
    assert found is kind


def test_reading_kills_the_tensor_from_there_on():
    model = model_of(
        HEAD
        + """
loss = torch.rand(3).to(xm.xla_device())
loss  # <- before
loss = loss.item()
loss  # <- after
"""
    )
    assert model.value(marked(model, "before")).kind is Kind.DEVICE_TENSOR
    assert model.value(marked(model, "after")).kind is Kind.NUMBER


def test_a_sum_of_tensors_becomes_a_tensor_in_the_loop():
    found = kind_of(
        """
total = 0.0
for x in pl.MpDeviceLoader(object(), xm.xla_device()):
    total += x.sum()
    total  # <- here
"""
    )
    assert found[0] is Kind.DEVICE_TENSOR


def test_one_branch_makes_it_likely_and_a_cpu_branch_unknown():
    base = "x = torch.rand(3)\nd = x.to(xm.xla_device())\n"
    one = kind_of(base + "y = 0\nif len(d):\n    y = d\ny  # <- here\n")
    other = kind_of(base + "y = x\nif len(d):\n    y = d\ny  # <- here\n")
    assert one == (Kind.DEVICE_TENSOR, False)
    assert other[0] is Kind.UNKNOWN


def test_batches_of_a_plain_loader_are_on_the_cpu_until_moved():
    model = model_of(
        HEAD
        + """
device = xm.xla_device()
loader = torch.utils.data.DataLoader(data)
for i, batch in enumerate(loader):
    batch["x"]  # <- before
    batch = {k: v.to(device) for k, v in batch.items()}
    batch["x"]  # <- after
"""
    )
    assert model.value(marked(model, "before")).kind is Kind.CPU_TENSOR
    assert model.value(marked(model, "after")).kind is Kind.DEVICE_TENSOR


def test_values_cross_calls_tuples_and_attributes():
    model = model_of(
        HEAD
        + """
def make(device):
    return nn.Linear(3, 3).to(device), torch.rand(3).to(device)

class Trainer:
    def __init__(self, device):
        self.model, self.x = make(device)
    def run(self):
        self.model  # <- model
        self.x  # <- x
        self.step(self.x)
    def step(self, batch, scale=1):
        batch  # <- batch
        scale  # <- scale

Trainer(xm.xla_device()).run()
"""
    )
    kinds = {
        mark: model.value(marked(model, mark)).kind for mark in ("model", "x", "batch", "scale")
    }
    assert kinds == {
        "model": Kind.MODEL,
        "x": Kind.DEVICE_TENSOR,
        "batch": Kind.DEVICE_TENSOR,
        "scale": Kind.NUMBER,
    }


METER = """
class Meter:
    def __init__(self):
        self.sum = 0
    def update(self, value):
        self.sum += value

def train(loader, model, device):
    losses, times = Meter(), Meter()
    for x in loader:
        loss = model(x.to(device))
        losses.update({loss})
        times.update(0.3)
        losses.sum  # <- losses
        times.sum  # <- times

train(torch.utils.data.DataLoader(data), nn.Linear(3, 3).to(xm.xla_device()), xm.xla_device())
"""


def test_two_meters_of_one_class_are_not_confused():
    model = model_of(HEAD + METER.replace("{loss}", "loss"))
    assert model.value(marked(model, "losses")).kind is Kind.DEVICE_TENSOR
    assert model.value(marked(model, "times")).kind is Kind.NUMBER


def test_a_meter_fed_with_numbers_holds_numbers():
    model = model_of(HEAD + METER.replace("{loss}", "loss.item()"))
    assert model.value(marked(model, "losses")).kind is Kind.NUMBER


def test_a_list_of_losses_holds_tensors():
    model = model_of(
        HEAD
        + """
losses = []
for x in pl.MpDeviceLoader(object(), xm.xla_device()):
    losses.append(x.mean())
torch.stack(losses)  # <- stacked
sum(losses)  # <- summed
losses[0]  # <- first
len(losses)  # <- count
"""
    )
    kinds = [model.value(marked(model, m)).kind for m in ("stacked", "summed", "first", "count")]
    assert kinds == [Kind.DEVICE_TENSOR] * 3 + [Kind.NUMBER]


def test_what_differs_between_cores_and_what_was_reduced():
    model = model_of(
        HEAD
        + """
def run(index):
    loss = torch.rand(3).to(xm.xla_device())
    for x in pl.MpDeviceLoader(object(), xm.xla_device()):
        loss = x.mean()
    local = loss.item()
    local  # <- local
    same = xm.mesh_reduce("loss", local, np.mean)
    same  # <- same
    len(loss)  # <- size

import torch_xla.distributed.xla_multiprocessing as xmp
xmp.spawn(run)
"""
    )
    local = {mark: model.value(marked(model, mark)).local for mark in ("local", "same", "size")}
    assert local == {"local": True, "same": False, "size": False}


def test_a_file_without_xla_is_not_guessed_at():
    model = model_of("def f(model, device, x):\n    model(x.to(device))  # <- here\n")
    assert not model.is_xla
    assert model.value(marked(model, "here")).kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch_xla", True),
        ("def f():\n    import torch_xla.core.xla_model as xm", True),
        ("import pytorch_lightning as pl\npl.Trainer(accelerator='tpu', devices=8)", True),
        ("import pytorch_lightning as pl\npl.Trainer(tpu_cores=8)", True),
        ("import pytorch_lightning as pl\npl.Trainer(accelerator='gpu')", False),
        ("import torch\nname = 'tpu'", False),
    ],
)
def test_which_files_are_for_xla(code, expected):
    assert model_of(code + "\n").is_xla is expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("para_loader", Kind.DEVICE_LOADER),
        ("train_device_loader", Kind.DEVICE_LOADER),
        ("xla_train_loader", Kind.DEVICE_LOADER),
        ("sample_loader", Kind.UNKNOWN),
        ("compute_loader", Kind.UNKNOWN),
        ("train_loader", Kind.UNKNOWN),
        ("model", Kind.MODEL),
        ("netG", Kind.MODEL),
        ("model_path", Kind.UNKNOWN),
        ("model_output", Kind.UNKNOWN),
        ("optimizer", Kind.OPTIMIZER),
        ("optimizer_d", Kind.OPTIMIZER),
        ("optimizer_scheduler", Kind.UNKNOWN),
        ("options", Kind.UNKNOWN),
        ("device", Kind.DEVICE),
        ("device_count", Kind.UNKNOWN),
    ],
)
def test_what_parameters_are_believed_to_be_by_their_names(name, kind):
    found, certain = kind_of(f"def f({name}):\n    {name}  # <- here\n")
    assert (found, certain) == (kind, False)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("x.to(somewhere)", Kind.UNKNOWN),
        ("x.to(torch.float16)", Kind.CPU_TENSOR),
        ("x.to(dtype=torch.float16)", Kind.CPU_TENSOR),
    ],
)
def test_a_tensor_moved_to_an_unknown_place_is_unknown(call, kind):
    assert kind_of(f"x = torch.rand(3)\n{call}  # <- here\n")[0] is kind
