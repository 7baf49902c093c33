"""What an SPMD program divides among its devices is shown, by what torch_xla does with it."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from test_profile_xla import profile

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xla

PROGRAM = """
import sys

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, TensorDataset

case = sys.argv[1]
xr.use_spmd()
count = xr.global_runtime_device_count()
axes = ("model",) if case == "tensor-parallel" else ("data", "model")
mesh = xs.Mesh(np.arange(count), (count,) if case == "tensor-parallel" else (count // 2, 2), axes)
device = torch_xla.device()
classes = 10 if case == "faulty" else 64
model = torch.nn.Sequential(
    torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, classes)
).to(device)
rows = ("model", None)
xs.mark_sharding(model[0].weight, mesh, rows)
if case == "faulty":
    xs.mark_sharding(model[2].weight, mesh, ("data", "model"))  # line uneven
elif case == "whole":
    xs.mark_sharding(model[2].weight, mesh, (None, None))  # line whole
else:
    xs.mark_sharding(model[2].weight, mesh, rows)
if case != "unmarked":
    xs.mark_sharding(model[0].bias, mesh, (None,))
    xs.mark_sharding(model[2].bias, mesh, (None,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 32), torch.randint(0, classes, (64,)))
spec = xs.ShardingSpec(mesh, ("data", None)) if case in ("sharded", "whole", "unmarked") else None
batches = DataLoader(data, batch_size=16, drop_last=True)
loader = pl.MpDeviceLoader(batches, device, input_sharding=spec)  # line loader
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)  # line loss
    loss.backward()
    if case == "faulty":
        loss = xm.all_reduce("sum", loss.detach())  # line reduced
    optimizer.step()
    torch_xla.sync()
"""


def row(mark: str) -> int:
    """The row of the program with a mark."""
    lines = PROGRAM.splitlines()
    return next(at for at, text in enumerate(lines, 1) if text.endswith(f"# line {mark}"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Gives the report of one case as JSON; each runs once."""
    found: dict[str, Any] = {}

    def report(case: str) -> Any:
        if case not in found:
            folder: Path = tmp_path_factory.mktemp(case)
            (folder / "train.py").write_text(PROGRAM)
            done = profile(
                folder, "--simulate-cores", "8", "--output-format", "json", "--output-file",
                "report.json", "-o", "run", "--", sys.executable, "train.py", case,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            found[case] = json.loads((folder / "report.json").read_text())
        return found[case]

    return report


def measured(report: Any) -> dict[str, Any]:
    """Findings that the run has seen, by their code."""
    return {one["code"]: one for one in report["findings"] if "runtime" in one["confirmed_by"]}


def test_table_of_tensors(reports: Any) -> None:
    table = reports("sharded")["sharding"]
    assert table["devices"] == 8
    assert table["meshes"] == [{"axes": ["data", "model"], "shape": [4, 2]}]
    tensors = {one["name"]: one for one in table["tensors"] if one["kind"] == "parameter"}
    weight = tensors["0.weight"]
    assert weight["shape"] == [64, 32]
    assert weight["axes"] == [["model"], []]
    assert (weight["bytes"], weight["device_bytes"]) == (64 * 32 * 4, 32 * 32 * 4)
    assert weight["location"]["filename"] == "train.py"
    assert tensors["0.bias"]["replicated"]
    batch = next(one for one in table["tensors"] if one["kind"] == "input")
    assert batch["axes"] == [["data"], []]
    assert batch["location"]["row"] == row("loader")


def test_what_one_host_hides_is_said(reports: Any) -> None:
    assert any("One host drove all devices" in note for note in reports("sharded")["notes"])


def test_products_of_the_forward_pass_are_rows_of_the_table(reports: Any) -> None:
    made = [one for one in reports("sharded")["sharding"]["tensors"] if one["kind"] == "product"]
    assert {one["location"]["row"] for one in made} == {row("loss")}
    assert [(one["shape"], one["device_bytes"] * 8) for one in made] == [
        ([16, 64], one["bytes"]) for one in made
    ]


def test_collectives_of_a_step(reports: Any) -> None:
    """The gradient of the first layer is summed over the batch's axis; forward has a line."""
    collectives = reports("sharded")["sharding"]["collectives"]
    reduced = [one for one in collectives if one["kind"] == "all-reduce"]
    assert any(one["axes"] == ["data"] for one in reduced)
    assert all(one["bytes"] > 0 and one["count"] > 0 for one in collectives)
    lines = {one["location"]["row"] for one in collectives if one["location"]}
    assert row("loss") in lines


@pytest.mark.parametrize("case", ["sharded", "tensor-parallel"])
def test_nothing_is_said_of_healthy_programs(reports: Any, case: str) -> None:
    codes = set(measured(reports(case)))
    assert not codes & {"XLA428", "XLA429", "XLA440", "XLA441", "XLA442", "XLA450"}, codes


def test_whole_batch(reports: Any) -> None:
    finding = measured(reports("faulty"))["XLA429"]
    assert finding["locations"][0]["row"] == row("loader")
    assert "f32[16,32]" in finding["message"]


def test_whole_parameter(reports: Any) -> None:
    finding = measured(reports("whole"))["XLA440"]
    assert finding["locations"][0]["row"] == row("whole")
    assert "2.weight f32[64,64]" in finding["message"]


def test_padding(reports: Any) -> None:
    finding = measured(reports("faulty"))["XLA442"]
    assert finding["locations"][0]["row"] == row("uneven")
    assert "each holds 3" in finding["message"]


def test_compiled_again_for_its_shardings(reports: Any) -> None:
    report = reports("unmarked")
    finding = measured(report)["XLA441"]
    assert "0.bias" in finding["message"]
    assert report["summary"]["compilations"] == reports("sharded")["summary"]["compilations"] + 1


def test_collective_of_one_core(reports: Any) -> None:
    finding = measured(reports("faulty"))["XLA428"]
    assert finding["locations"][0]["row"] == row("reduced")


def test_other_programs_have_no_table(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch_xla; torch_xla.sync()\n")
    profile(
        tmp_path, "--simulate-cores", "2", "--output-format", "json", "--output-file",
        "report.json", "--", sys.executable, "train.py",
    )  # fmt: skip
    assert json.loads((tmp_path / "report.json").read_text())["sharding"] is None


def test_the_table_is_what_the_schema_says(reports: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = files("xladoctor.report").joinpath("report.schema.json").read_text("utf-8")
    jsonschema.Draft202012Validator(json.loads(text)).validate(reports("faulty"))


CONFLICT = """
import sys

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
device = torch_xla.device()
mesh = xs.Mesh(np.arange(8), (4, 2), ("data", "model"))
other = xs.Mesh(np.arange(8), (2, 4), ("data", "model"))
layer = torch.nn.Linear(64, 64).to(device)
xs.mark_sharding(layer.weight, mesh, (None, None))
xs.mark_sharding(layer.bias, mesh, (None,))
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.randn(16, 32, 64).to(device)
xs.mark_sharding(x, mesh, (("data", "model"), None, None))
for _ in range(4):
    hidden = layer(x)
    xs.mark_sharding(hidden, mesh, (("data", "model"), None, None))
    hidden = torch.tanh(hidden) * 2  # line conflict
    if sys.argv[1] == "conflict":
        xs.mark_sharding(hidden, other, (None, "data", "model"))
    hidden.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
"""


@pytest.mark.parametrize("case", ["conflict", "fits"])
def test_a_tensor_that_is_gathered_whole_between_two_shardings(tmp_path: Path, case: str) -> None:
    (tmp_path / "train.py").write_text(CONFLICT)
    done = profile(
        tmp_path, "--simulate-cores", "8", "--output-format", "json", "--output-file",
        "report.json", "--", sys.executable, "train.py", case,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = measured(json.loads((tmp_path / "report.json").read_text())).get("XLA450")
    assert ("Involuntary full rematerialization" in done.stderr) is (case == "conflict")
    if case == "fits":
        assert found is None
        return
    line = CONFLICT.splitlines().index("    hidden = torch.tanh(hidden) * 2  # line conflict") + 1
    assert found["locations"][0]["row"] == line
    assert "f32[16,32,64]" in found["message"]


#: What stands in the way of a sharding, one program a case.
OBSTACLES = """
import sys

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, TensorDataset

case = sys.argv[1]
xr.use_spmd()
count = xr.global_runtime_device_count()
device = torch_xla.device()
ids, shape = (np.arange(16), (16,)) if case == "larger" else (np.arange(count), (count,))
mesh = xs.Mesh(ids, shape, ("data",))  # line mesh
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 64), torch.nn.Linear(64, 64))
model = model.to(device)
for one in model[1:]:
    xs.mark_sharding(one.weight, mesh, ("data", None))  # line marked
if case == "faulty":
    model[1].weight = torch.nn.Parameter(torch.ones(64, 192).to(device))  # line replaced
for one in model[1:]:
    xs.mark_sharding(one.bias, mesh, (None,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 64, (64,)))
spec = xs.ShardingSpec(mesh, ("data", None) if case == "faulty" else ("data", None, None, None))
batches = DataLoader(data, batch_size=16, drop_last=True)
loader = pl.MpDeviceLoader(batches, device, input_sharding=spec)  # line loader
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    torch_xla.sync()
"""


def obstructed(folder: Path, case: str, cores: int = 8) -> tuple[Any, Any]:
    """The report of a case, and what its command ended with."""
    (folder / "train.py").write_text(OBSTACLES)
    done = profile(
        folder, "--simulate-cores", str(cores), "--output-format", "json", "--output-file",
        "report.json", "-o", "run", "--", sys.executable, "train.py", case,
    )  # fmt: skip
    return json.loads((folder / "report.json").read_text()), done


def obstacle(mark: str) -> int:
    """The row of that program with a mark."""
    lines = OBSTACLES.splitlines()
    return next(at for at, text in enumerate(lines, 1) if text.endswith(f"# line {mark}"))


#: On TPUs a ``HybridMesh`` is laid out by where each of them stands.
HYBRID = """
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
count = xr.global_runtime_device_count()
rows = 2 if count > 1 else 1
mesh = xs.HybridMesh(ici_mesh_shape=(rows, count // rows), axis_names=("data", "model"))
value = torch.arange(8.0).reshape(4, 2).to(torch_xla.device())
xs.mark_sharding(value, mesh, ("data", "model"))
torch_xla.sync()
print(mesh.get_logical_mesh().tolist(), value.cpu().sum().item())
"""


@pytest.mark.parametrize("simulated", [True, False])
def test_a_mesh_by_where_tpus_stand_is_laid_out_on_simulated_devices(
    tmp_path: Path, simulated: bool
) -> None:
    (tmp_path / "train.py").write_text(HYBRID)
    cores = ("--simulate-cores", "4") if simulated else ()
    done = profile(
        tmp_path, *cores, "--output-format", "json", "--output-file", "report.json", "-o", "run",
        "--", sys.executable, "train.py",
    )  # fmt: skip
    report = tmp_path / "report.json"  # there is none of a run without an XLA device
    assert not report.exists() or "XLA444" not in measured(json.loads(report.read_text()))
    if simulated:
        assert done.returncode == 0, done.stderr
        assert "[[0, 1], [2, 3]] 28.0" in done.stdout
    else:  # torch_xla has no places for CPUs, and that is no fault of the mesh
        assert done.returncode == 1
        assert "AssertionError" in done.stderr


def test_a_mesh_for_another_machine_is_one_sentence(tmp_path: Path) -> None:
    report, done = obstructed(tmp_path, "larger")
    finding = measured(report)["XLA444"]
    assert finding["locations"][0]["row"] == obstacle("mesh")
    assert "a mesh of 16 devices, and this program has 8" in finding["message"]
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert "xladoctor/capture" not in done.stderr  # the traceback is the program's own


def test_a_spec_of_another_rank_and_a_replaced_parameter_are_named(tmp_path: Path) -> None:
    report, _ = obstructed(tmp_path, "faulty")
    spec, replaced = measured(report)["XLA429"], measured(report)["XLA441"]
    assert spec["locations"][0]["row"] == obstacle("loader")
    assert "its ShardingSpec has 2 entries" in spec["message"]
    assert replaced["locations"][0]["row"] == obstacle("replaced")
    assert "1.weight" in replaced["message"]


FLATTENED = """
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
device = torch_xla.device()
mesh = xs.Mesh(np.arange(8), (4, 2), ("data", "seq"))
model = torch.nn.Linear(64, 128).to(device)
xs.mark_sharding(model.weight, mesh, (None, None))
xs.mark_sharding(model.bias, mesh, (None,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in [torch.ones(16, 32, 64)] * 4:
    optimizer.zero_grad()
    x = batch.to(device)
    xs.mark_sharding(x, mesh, ("data", "seq", None))
    model(x).square().mean().backward()
    optimizer.step()
    torch_xla.sync()
"""


def test_an_axis_that_a_linear_layer_flattens_is_missing_in_its_product(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FLATTENED)
    done = profile(
        tmp_path, "--simulate-cores", "8", "--output-format", "json", "--output-file",
        "report.json", "-o", "run", "--", sys.executable, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "report.json").read_text())["sharding"]["tensors"]
    [made] = [one for one in table if one["kind"] == "product"]
    assert (made["shape"], made["device_bytes"] * 4) == ([512, 128], made["bytes"])
    inputs = [one for one in table if one["kind"] == "input"]
    assert inputs
    assert all(one["device_bytes"] * 8 == one["bytes"] for one in inputs)


def test_one_device_has_nothing_to_shard(tmp_path: Path) -> None:
    report, done = obstructed(tmp_path, "one", cores=1)
    assert done.returncode == 0
    assert not measured(report).keys() & {"XLA429", "XLA440", "XLA441", "XLA442"}
    assert any("SPMD is on with one device" in note for note in report["notes"])
