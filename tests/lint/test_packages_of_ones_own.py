"""Packages for CUDA that a project holds itself, and names of libraries that it sets anew.

All programs are invented. ``# !XLA707`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import pytest
from rule_helpers import marks, marks_in_files, told, told_in_files

LAYERS = """\
import torch
import torch_xla
from {package}.groups import width


def part(hidden):
    out = torch.empty(hidden // width(), device=torch_xla.device())
    return out.normal_()
"""
GROUPS = "def width():\n    return 4\n"


@pytest.mark.parametrize("package", ["apex", "deepspeed", "triton"])
def test_a_package_of_the_projects_own_is_not_the_one_for_cuda(tmp_path, package):
    files = {
        "setup.py": "",
        f"{package}/__init__.py": "",
        f"{package}/groups.py": GROUPS,
        f"{package}/layers.py": LAYERS.format(package=package),
    }
    assert told_in_files(tmp_path, files, {"XLA717"}) == set()


@pytest.mark.parametrize("line", ["import apex", "from apex import groups"])
def test_nor_is_one_without_an_init_file(tmp_path, line):
    layers = LAYERS.format(package="apex").replace("import torch\n", f"import torch\n{line}\n")
    files = {"apex/groups.py": GROUPS, "layers.py": layers}
    assert told_in_files(tmp_path, files, {"XLA717"}) == set()


def test_one_that_is_installed_is(tmp_path):
    layers = LAYERS.format(package="apex").replace("import width", "import width  # !XLA717")
    files = {"groups.py": GROUPS, "layers.py": layers}
    assert told_in_files(tmp_path, files, {"XLA717"}) == marks_in_files(files)


def test_a_script_that_takes_the_projects_own_is_none_for_gpus(tmp_path):
    script = """\
import torch_xla
import torch_xla.core.xla_model as xm
from apex import engine


def main(model, loader, optimizer):
    model.to(torch_xla.device())
    engine.epoch(model, loader, optimizer, torch_xla.device())


torch_xla.launch(main, args=([], [], []))
"""
    engine = """\
from apex.groups import width


def epoch(model, loader, optimizer, device):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = (model(images.to(device)) - labels.to(device)).square().mean() / width()
        loss.backward()
        optimizer.step()
        print(loss.item())  # !XLA101
"""
    files = {"train.py": script, "apex/engine.py": engine, "apex/groups.py": GROUPS}
    assert told_in_files(tmp_path, files, {"XLA101"}) == marks_in_files(files)


SET_ANEW = {
    "XLA707: an attribute of a module": """\
import torch
import torch_xla

torch.cuda.current_device = torch_xla.device


def buffer(rows):
    torch.cuda.synchronize()  # !XLA707
    return torch.empty(rows, device=torch.cuda.current_device())
""",
    "XLA707: in a function, by the module's own name": """\
import torch
import torch_xla
from torch import cuda


def stand_in():
    cuda.synchronize = lambda device=None: torch_xla.sync(wait=True)


def measure(net, images):
    stand_in()
    net(images.to(torch_xla.device()))
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()  # !XLA707
""",
    "XLA707: by setattr": """\
import torch
import torch_xla

setattr(torch.cuda, "set_device", lambda device: None)


def begin(rank):
    torch.cuda.set_device(rank)
    return torch_xla.device(), torch.cuda.current_device()  # !XLA707
""",
}


@pytest.mark.parametrize("name", SET_ANEW)
def test_names_that_a_program_sets_anew_are_its_own(name):
    assert told(name, SET_ANEW[name]) == marks(SET_ANEW[name])


def test_also_for_files_beside_the_one_that_sets_them(tmp_path):
    files = {
        "on_xla.py": "import torch\nimport torch_xla\n\n"
        "torch.cuda.current_device = torch_xla.device\n",
        "layers.py": "import torch\nimport torch_xla\n\n\ndef buffer(rows):\n"
        "    torch_xla.sync()\n"
        "    return torch.empty(rows, device=torch.cuda.current_device())\n",
        "train.py": "import layers\nimport on_xla\n\nprint(layers.buffer(8))\n",
    }
    assert told_in_files(tmp_path, files, {"XLA707"}) == set()
    files["on_xla.py"] = files["on_xla.py"].replace("torch.cuda.current_device =", "device =")
    files["layers.py"] = files["layers.py"].replace("_device())", "_device())  # !XLA707")
    assert told_in_files(tmp_path, files, {"XLA707"}) == marks_in_files(files)
