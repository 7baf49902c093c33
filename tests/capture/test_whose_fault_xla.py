"""Whose fault an error on simulated cores is: printed once, with evidence, and told as XLA411."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest
from test_profile_xla import profile

from xladoctor.capture.agent import faults

pytest.importorskip("torch_xla")

SHAPES = """\
import torch
import torch_xla


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def main(index):
    Net().to(torch_xla.device())(torch.ones(4, 5, device=torch_xla.device()))


if __name__ == "__main__":
    torch_xla.launch(main)
"""

#: Real errors of the CPU device, each with its owner.
ERRORS = """\
import importlib.util
import json
import torch
import torch_xla
from xladoctor.capture.agent import faults

d = torch_xla.device()


def kernel():
    from torch_xla.experimental.custom_kernel import flash_attention
    q = torch.ones(1, 1, 128, 128, device=d)
    flash_attention(q, q, q).cpu()


def refuse(text):
    raise RuntimeError(text)


tried = {
    "program": [
        lambda: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
        lambda: torch.ones(2, device=d) + torch.ones(3, device=d),
        lambda: torch.ones(4, device=d).view(3),
        lambda: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
        lambda: torch.ones(2, 3, device=d)[:, -4:],
        lambda: torch.nn.Linear(4, 4).to(d)(torch.ones(4, 5, device=d)),
        lambda: torch.nn.Linear(2, 2)(torch.ones(2, 2, device=d)),
        lambda: torch.Generator(device=d),
        lambda: torch_xla.no_such_name,
        lambda: torch_xla.sync(no_such_argument=1),
        lambda: exec("a, b = torch.ones(3)"),
        lambda: 3 // None,
        lambda: refuse("bad label"),
    ],
    "cpu": [lambda: torch_xla._XLAC._xla_memory_info(str(d))],
    "unknown": [lambda: refuse("this needs a TPU"), lambda: int("many"), lambda: open("none")],
}
if importlib.util.find_spec("jax"):  # torch_xla's kernels are written with it
    tried["cpu"].append(kernel)
found = {}
for owner, calls in tried.items():
    for number, call in enumerate(calls):
        try:
            call()
        except Exception as error:
            found[f"{owner} {number} {error}"] = faults.told(error)[0]
        else:
            found[f"{owner} {number} was not raised"] = "nothing"
print(json.dumps(found))
"""


@pytest.mark.xla
def test_an_error_of_all_cores_is_printed_once_and_says_that_a_tpu_would_raise_it(tmp_path):
    (tmp_path / "train.py").write_text(SHAPES)
    done = profile(
        tmp_path, "--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    first = done.stderr.partition("Traceback (most recent call last):\n")[2].splitlines()[0]
    assert "train.py" in first
    assert (
        "train.py" not in done.stderr.partition("RuntimeError: ")[2].partition("xladoctor: the")[0]
    )
    for wall in ("pjrt.py", "concurrent", "nn/modules/module.py", "capture/"):
        assert wall not in done.stderr
    words = "a TPU would do the same: shapes are checked while the graph is built"
    assert done.stderr.count(words) == 1
    [finding] = [
        item
        for item in json.loads((tmp_path / "r.json").read_text())["findings"]
        if item["code"] == "XLA411"
    ]
    assert words in finding["suggestion"]


@pytest.mark.xla
def test_the_table_is_true_of_what_the_cpu_device_raises(tmp_path, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    program = tmp_path / "errors.py"
    program.write_text(ERRORS)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    for name, owner in json.loads(done.stdout.splitlines()[-1]).items():
        assert (owner or "unknown") == name.partition(" ")[0], name


def raised(call):
    with pytest.raises(Exception) as told:  # noqa: PT011
        call()
    return told.value


def test_what_only_our_own_code_can_raise_is_the_simulations_fault():
    owner, words = faults.told(raised(lambda: {}.x))
    assert owner is None, words  # it was raised in this file
    owner, words = faults.told(raised(lambda: faults.told(None.__class__)))
    assert owner == faults.SIMULATION
    assert "report it" in words


def test_devices_of_two_cores_in_one_operation_are_the_simulations_fault():
    text = "returned an invalid gradient at index 1 - expected device xla:1 but got xla:{}"
    assert faults.told(RuntimeError(text.format(0)))[0] == faults.SIMULATION
    assert faults.told(RuntimeError(text.format(1)))[0] is None


def test_what_the_simulation_refuses_it_explains_itself():
    assert faults.told(RuntimeError("xladoctor: cores are threads")) is None


#: A read where torch_xla allows none; on its way out torch_xla raises another error besides.
FULL_GRAPH = """\
import torch
import torch_xla


def step(x):
    y = x * 2
    if y.sum() > 0:  # line READ
        y = y + 1
    return y


def main(index):
    x = torch.ones(4, device=torch_xla.device())
    torch_xla.compile(step, full_graph=True)(x)


if __name__ == "__main__":
    torch_xla.launch(main)
"""


@pytest.mark.xla
def test_an_error_that_hides_another_is_told_by_the_first(tmp_path):
    (tmp_path / "train.py").write_text(FULL_GRAPH)
    done = profile(
        tmp_path, "--simulate-cores", "2", "--output-format", "json", "--output-file", "r.json",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 1
    report = json.loads((tmp_path / "r.json").read_text())
    [finding] = [item for item in report["findings"] if item["code"] == "XLA411"]
    assert "Unexpected execution happens inside the compiled function" in finding["message"]
    rows = [at for at, line in enumerate(FULL_GRAPH.splitlines(), 1) if line.endswith("line READ")]
    assert [place["row"] for place in finding["locations"]] == rows
    assert "a TPU would do the same" in done.stderr


def test_what_the_programs_own_line_raises_is_meant():
    def own():
        try:
            int("many")
        except ValueError:
            raise RuntimeError("bad label")  # noqa: B904

    with pytest.raises(RuntimeError) as caught:
        own()
    assert faults.began(caught.value) is caught.value


def test_what_a_library_raises_on_its_way_out_is_not(tmp_path):
    def closing():
        try:
            int("many")
        finally:
            (tmp_path / "none").read_text()

    with pytest.raises(FileNotFoundError) as caught:
        closing()
    assert str(faults.began(caught.value)).startswith("invalid literal for int()")


def test_what_a_library_says_instead_of_an_error_that_it_caught_is_meant(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "settings_of_others.py").write_text(
        "def load(path):\n"
        "    try:\n"
        "        return open(path)\n"
        "    except OSError:\n"
        "        raise ValueError(f'{path} holds no settings')\n"
    )
    monkeypatch.syspath_prepend(folder)
    load = importlib.import_module("settings_of_others").load
    with pytest.raises(ValueError, match="no settings") as caught:
        load("none")
    assert faults.began(caught.value) is caught.value
