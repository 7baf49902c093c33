"""What torch_xla keeps for a process belongs to a core: full graphs, names, eager mode, marks."""

from __future__ import annotations

import pytest
import simulated
import torch

pytestmark = pytest.mark.xla

CORES = 4
STEPS = 3

PROGRAM = """
import contextlib
import json
import os
import time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
import torch_xla.experimental
import torch_xla.runtime as xr
from torch_xla.distributed.parallel_loader import MpDeviceLoader
from torch_xla.experimental.eager import eager_mode, is_eager_mode


def made(index, step):
    return torch.rand(4, 4, generator=torch.Generator().manual_seed(100 * step + index))


def uneven(index, step):
    time.sleep(0.03 * ((index + step) % 4))  # so that the cores come to everything apart


def training(index, full_graph):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model = model.to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(data):
        optimizer.zero_grad()
        uneven(index, 1)
        loss = model(data).square().mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        return loss

    return model, torch_xla.compile(step, full_graph=full_graph, name=f"step of {index}")


def full_graph(index):
    model, step = training(index, True)
    names = set()
    for at in range(3):
        uneven(index, at)
        step(made(index, at).to(torch_xla.device()))
        names.add(torch_xla._XLAC._get_current_graph_name())
    return [one.detach().cpu().tolist() for one in model.parameters()], sorted(names)


def unexpected(index):
    value = torch.ones(2).to(torch_xla.device())

    def step(value):
        return value + (value * 2).sum().item()

    raised = None
    try:
        torch_xla.compile(step, full_graph=True)(value)
    except RuntimeError as error:
        raised = str(error).splitlines()[0]
    return raised, torch_xla._XLAC._get_allow_execution(), (value + 1).cpu().tolist()


def eager(index):
    eager_mode(True)
    model, step = training(index, False)
    seen = []
    for at in range(3):
        data = made(index, at).to(torch_xla.device())
        uneven(index, at)
        seen.append(is_eager_mode())
        with torch_xla.compile():
            seen.append(is_eager_mode())
            uneven(index, at + 1)
            data = data + 0
        seen.append(is_eager_mode())
        total = xm.all_reduce("sum", (data * 0 + 1).mean())
        seen.append(total.item())
        step(data)
    eager_mode(False)
    return [one.detach().cpu().tolist() for one in model.parameters()], seen


def only_one_is_eager(index):
    # one core's library is eager for a while; no other core notices
    value = torch.ones(2).to(torch_xla.device())
    xm.rendezvous("begin")
    if index == 1:
        with torch_xla.experimental.eager_mode_context(True):
            value = value + 1
            time.sleep(0.2)
    seen = is_eager_mode()
    pending = value * 2
    text = torch_xla._XLAC._get_xla_tensors_text([pending])
    torch_xla.sync()
    xm.rendezvous("end")
    return seen, "aten::mul" in text, pending.cpu().tolist()


def marks(index):
    batches = [torch.ones(2) * at for at in range(6)]
    taken = []
    for at, batch in enumerate(MpDeviceLoader(batches, "xla")):
        if index % 2:
            with xp.StepTrace("step", step_num=at):
                total = batch + index
        else:
            total = batch + index
        uneven(index, at)
        taken.append([xp.get_tracer_marked_step(), total.cpu().tolist()])
    return taken


@contextlib.contextmanager
def local_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def dtypes(index):
    # The cores make models at once, each under a default of its own, as transformers does it; the
    # last core makes none.
    wanted = [torch.bfloat16, torch.bfloat16, torch.float64, torch.float32][index]
    seen = []
    for at in range(5):
        if wanted is torch.float32:
            seen.append(str(torch.ones(2).dtype))
        else:
            with local_dtype(wanted):
                uneven(index, at)
                model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
                seen.extend({str(one.dtype) for one in model.parameters()})
        seen.append(str(torch.zeros(2).dtype))
        uneven(index, at + 1)
    xm.rendezvous("made")
    torch.set_default_dtype(torch.float64)  # for good
    for _ in range(3):
        seen.append(str(torch.rand(2).dtype))
        seen.append(xm.all_reduce("sum", torch.ones(2, dtype=torch.float32, device="xla")).tolist())
    return seen


def dtypes_apart(index):
    # A default dtype of one core alone lets nobody wait for ever.
    if index == 0:
        torch.set_default_dtype(torch.float64)
    total = xm.all_reduce("sum", torch.ones(2, dtype=torch.float32, device="xla"))
    value = total.tolist()
    torch.set_default_dtype(torch.float64)
    return [sorted({str(torch.rand(2).dtype)}), value]


def cache(index):
    # as the documentation of torch_xla has it
    xr.initialize_cache(f"cache_{index}", readonly=False)
    again = []
    for _ in range(2):
        total = torch.ones(2).to(torch_xla.device()) + index
        torch_xla.sync(wait=True)
        try:
            xr.initialize_cache(f"cache_{index}")
        except AssertionError as error:
            again.append(str(error))
    return again, total.cpu().tolist(), os.path.exists(f"cache_{index}")


def main(index, case):
    found = globals()[case](index)
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""

CASES = (
    "full_graph",
    "unexpected",
    "eager",
    "only_one_is_eager",
    "marks",
    "dtypes",
    "dtypes_apart",
    "cache",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return simulated.run_cases(tmp_path_factory.mktemp("modes"), CORES, PROGRAM, CASES)


def checked(done):
    assert done.code == 0, done.stderr
    assert done.events == []
    assert sorted(done.results) == list(range(CORES))
    return done.results


def plain():
    """The same training by plain torch, of one model on all cores' data."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for core in range(CORES):
            data = torch.rand(4, 4, generator=torch.Generator().manual_seed(100 * step + core))
            (model(data).square().mean() / CORES).backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


def assert_trained(parameters):
    for own, expected in zip(parameters, plain(), strict=True):
        torch.testing.assert_close(torch.tensor(own), expected, rtol=1e-4, atol=1e-5)


def test_a_full_graph_on_every_core(runs):
    for parameters, names in checked(runs["full_graph"]).values():
        assert_trained(parameters)
        assert names == [""]


def test_a_launch_inside_a_full_graph_is_still_an_error_of_the_core_that_does_it(runs):
    for raised, allowed, value in checked(runs["unexpected"]).values():
        assert "Unexpected execution happens inside the compiled function" in raised
        assert allowed
        assert value == [2.0, 2.0]


def test_eager_cores_leave_the_mode_for_what_they_compile(runs):
    for parameters, seen in checked(runs["eager"]).values():
        assert_trained(parameters)
        assert seen == [True, False, True, CORES] * STEPS


def test_one_eager_core_does_not_make_the_others_eager(runs):
    for core, (eager, traced, value) in checked(runs["only_one_is_eager"]).items():
        assert not eager
        assert traced
        assert value == [4.0, 4.0] if core == 1 else [2.0, 2.0]


def test_each_core_has_its_own_default_dtype(runs):
    wanted = ["torch.bfloat16", "torch.bfloat16", "torch.float64", "torch.float32"]
    apart = checked(runs["dtypes_apart"])
    for core, seen in checked(runs["dtypes"]).items():
        assert seen[:10] == [wanted[core], "torch.float32"] * 5
        assert seen[10:] == ["torch.float64", [CORES] * 2] * 3
        assert apart[core] == [["torch.float64"], [CORES] * 2]


def test_a_step_that_one_core_marks_is_not_the_step_of_another(runs):
    for core, taken in checked(runs["marks"]).items():
        assert [mark for mark, _ in taken] == [bool(core % 2)] * 6
        assert [value for _, value in taken] == [[at + core] * 2 for at in range(6)]


def test_each_core_may_name_a_folder_for_what_it_compiles_once_and_first(runs):
    done = runs["cache"]
    assert done.code == 0, done.stderr
    assert done.kinds == ["not-obeyed"]
    already = "Computation cache has already been initialized"
    for core in range(CORES):
        assert done.results[core] == [[already] * 2, [core + 1.0] * 2, False]
