"""Names and numbers: variables that nobody reads, exports that are lost, how many cores.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

#: What is wrong, in the spellings that programs have for it.
FAULTS = {
    "a misspelt switch": """\
import os
os.environ["XLA_USE_F16"] = "1"  # !XLA701
import torch_xla
""",
    "setdefault and putenv": """\
import os
os.environ.setdefault("PJRT_DEVICES", "TPU")  # !XLA701
os.putenv("XLA_USE_BFLOAT16", "1")  # !XLA701
import torch_xla
""",
    "a dictionary of settings": """\
import os
os.environ.update({"XLA_IR_DEBUGS": "1"})  # !XLA701
import torch_xla
""",
    "environ imported by itself": """\
from os import environ
environ["PT_XLA_DEBUG_LEVELS"] = "2"  # !XLA701
import torch_xla
""",
    "variables of libtpu": """\
import os
os.environ["TPU_VISIBLE_CHIP"] = "0"  # !XLA701
os.environ.setdefault("TPU_PROCES_BOUNDS", "1,1,1")  # !XLA701
os.environ["LIBTPU_INIT_ARG"] = "--xla_tpu_spmd=true"  # !XLA701
import torch_xla
""",
    "an export in a shell of its own": """\
get_ipython().system("export XLA_USE_BF16=1")  # !XLA701
import torch_xla
""",
    "the same by os": """\
import os
os.system("export PJRT_DEVICE=TPU")  # !XLA701
import torch_xla
""",
    "the same by subprocess": """\
import subprocess
subprocess.run("export XRT_TPU_CONFIG='localservice;0;localhost:51011'", shell=True)  # !XLA701
import torch_xla
""",
    "the number of cores is asked for": """\
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
def worker(index):
    print(index)
if __name__ == "__main__":
    cores = xr.world_size()
    xmp.spawn(worker, nprocs=cores)  # !XLA404
""",
    "the number of devices": """\
import torch_xla.core.xla_model as xm
from torch_xla.distributed.xla_multiprocessing import spawn
def worker(index):
    print(index)
if __name__ == "__main__":
    spawn(worker, nprocs=len(xm.get_xla_supported_devices()))  # !XLA404
""",
    "the devices by a name of their own": """\
import torch_xla.core.xla_model as model
import torch_xla.distributed.xla_multiprocessing as multi
def worker(index):
    print(index)
def main():
    devices = model.get_xla_supported_devices("TPU")
    count = len(devices)
    multi.spawn(worker, (), count)  # !XLA404
main()
""",
}

#: What looks like it and is right.
HEALTHY = {
    "variables of others and of the program": """\
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_USE_F16"] = "1"
half = os.environ.get("XLA_USE_F16") == "1"
os.environ["PJRT_DEVICE"] = "TPU"
os.environ["XLA_FLAGS"] = "--xla_dump_to=/tmp/x"
os.environ["MY_XLA_MODE"] = "1"
import torch_xla
print(half)
""",
    "variables of libtpu, and of the program beside them": """\
import os
os.environ["TPU_VISIBLE_CHIPS"] = "0"
os.environ["TPU_CHIPS_PER_PROCESS_BOUNDS"] = "1,1,1"
os.environ["LIBTPU_INIT_ARGS"] = "--xla_tpu_spmd=true"
os.environ["TPU_NUM_CORES"] = "8"
os.environ["TPU_PROCESS_COUNT"] = "4"
os.environ["TPU_WORKER_IDS"] = "0,1"
mine = os.environ["TPU_WORKER_IDS"].split(",")
import torch_xla
print(mine)
""",
    "exports that are used in the same line": """\
import os
os.system("export XLA_IR_DEBUG=1; python train.py")
os.system("export XLA_HLO_DEBUG=1 && python train.py")
import torch_xla
""",
    "a number that another file chooses": """\
import torch_xla.distributed.xla_multiprocessing as xmp
def worker(index):
    print(index)
def main(cores=None):
    xmp.spawn(worker, nprocs=cores)
    xmp.spawn(worker, nprocs=1)
""",
    "a loop that returns before the last batch": """\
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
def fit(model, optim, dataset):
    device = torch_xla.device()
    model = model.to(device)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2)
    for step, batch in enumerate(pl.MpDeviceLoader(loader, device)):
        if step > 999: return
        loss = model(batch).mean()
        loss.backward()
        optim.step()
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_each_spelling(name):
    program = FAULTS[name]
    expected = marks(program)
    assert expected
    assert expected <= set(found(program))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name):
    assert codes(HEALTHY[name]) == []


ASKED_FOR = """\
import os
import torch
{line}
if USE:
    import torch_xla
    device = torch_xla.device()
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('USE = os.environ.get("COLAB_TPU_ADDR") is not None', True),
        ('USE = "COLAB_TPU_ADDR" in os.environ', True),
        ('USE = bool(os.getenv("COLAB_TPU_ADDR", ""))', True),
        (
            'USE = True\nif "XRT_TPU_CONFIG" not in os.environ:\n    raise RuntimeError("none")',
            True,
        ),
        ('try:\n    USE = os.environ["COLAB_TPU_ADDR"]\nexcept KeyError:\n    USE = ""', True),
        ('USE = os.environ.get("COLAB_TPU_ADDR", "10.0.0.2:8470")', False),
        ('os.environ["COLAB_TPU_ADDR"] = "1"\nUSE = "COLAB_TPU_ADDR" in os.environ', False),
        ('USE = "PJRT_DEVICE" in os.environ', False),
        ('USE = "XLA_USE_BF16" in os.environ', False),
        ('USE = True\nif "COLAB_TPU_ADDR" in os.environ:\n    print("an old runtime")', False),
        ('USE = True\nOLD = "COLAB_TPU_ADDR" in os.environ\nprint(OLD)', False),
    ],
)
def test_what_asks_for_variables_of_old_runtimes(line, told):
    messages = codes(ASKED_FOR.format(line=line))
    assert messages.count("XLA701") == told


HANDED_IN = """\
import torch
from tools import metrics
class Fitter:
    def __init__(self, net, adam, {given}=None):
        self.net, self.adam = net, adam
        self.{given} = {given}
    def fit(self, batches, settings):
        if settings.device == "TPU":
            self.device = self.{given}.xla_device()
        self.net.to(self.device)
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device))
            loss.backward()
            metrics.add(loss.item()){read}
            self.{given}.optimizer_step(self.adam, barrier=True)
            self.adam.zero_grad()
        print(self.{given}.xrt_world_size()){gone}
"""


@pytest.mark.parametrize("given", ["xm", "engine"])
def test_a_module_of_torch_xla_that_a_caller_hands_in(given):
    told = ("  # !XLA101", "  # !XLA801") if given == "xm" else ("", "")
    program = HANDED_IN.format(given=given, read=told[0], gone=told[1])
    asked = {one for one in found(program) if one[1] in {"XLA101", "XLA801"}}
    assert asked == {*marks(program)}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('if hasattr(rows, "__len__"):\n    print(xm.xrt_world_size())', True),
        ('n = xm.xrt_world_size() if hasattr(rows, "__len__") else 1', True),
        ('ok = hasattr(rows, "size") and xm.xrt_world_size() > 1', True),
        ('if hasattr(xm, "xrt_world_size"):\n    print(xm.xrt_world_size())', False),
        ('n = xm.xrt_world_size() if hasattr(xm, "xrt_world_size") else 1', False),
        ('ok = hasattr(xm, "xrt_world_size") and xm.xrt_world_size() > 1', False),
        ('if hasattr(xm, "get_ordinal"):\n    print(xm.xrt_world_size())', False),
        ('n = 1 if hasattr(torch_xla, "runtime") else xm.xrt_world_size()', False),
        # What is there today says nothing of another name.
        ('if hasattr(xm, "rendezvous"):\n    print(xm.xrt_world_size())', True),
        ('if hasattr(xm, "rendezvous") and rows:\n    print(xm.xrt_world_size())', True),
        ('ready = hasattr(torch_xla, "sync")\nif ready:\n    print(xm.xrt_world_size())', True),
        ('if not hasattr(torch_xla, "sync"):\n    print(xm.xrt_world_size())', False),
    ],
)
def test_what_asks_whether_a_name_is_there(line, told):
    head = "import torch_xla\nimport torch_xla.core.xla_model as xm\nrows = list(range(8))\n"
    program = f"{head}{line}\n"
    assert ("XLA801" in codes(program)) is told


LEFT_BEFORE = """\
import torch_xla
import torch_xla.core.xla_model as xm
def place(torch_xla, xm, chosen):
    if {test}:
        return torch_xla.device()
    return xm.xla_device()
print(place(torch_xla, xm, input()))
"""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ('hasattr(torch_xla, "device")', False),
        ('hasattr(torch_xla, "device") or chosen', False),
        ('torch_xla is not None and hasattr(torch_xla, "device")', False),
        # Where one is chosen, the old name is used today.
        ('hasattr(torch_xla, "device") and chosen is None', True),
        ("chosen is None", True),
    ],
)
def test_a_branch_that_leaves_where_the_new_name_is_there(test, told):
    assert ("XLA802" in codes(LEFT_BEFORE.format(test=test))) is told


def test_a_deprecated_name_beside_another_that_is_asked_for():
    program = """
import torch_xla
import torch_xla.core.xla_model as xm
def step(optimizer):
    if hasattr(xm, "reduce_gradients"):
        xm.reduce_gradients(optimizer)
        optimizer.step()
        xm.mark_step()
    elif hasattr(xm, "mark_step"):
        xm.mark_step()
    try:
        torch_xla.sync()
    except AttributeError:
        xm.mark_step()
    if torch_xla is not None and hasattr(torch_xla, "sync"):
        torch_xla.sync()
    elif xm is not None:
        xm.mark_step()
    if torch_xla is not None and hasattr(torch_xla, "sync"):
        torch_xla.sync()
    else:
        xm.mark_step()
"""
    assert [row for row, code in found(program) if code == "XLA802"] == [8]
