"""Programs that Ignite starts on the cores of a TPU.

All programs are invented. ``# !XLA405`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import codes, found, marks

TRAINING = """\
import torch
import ignite.distributed as idist
from shop import Net, pictures
def training(core, config):
    device = idist.device()
    net = Net().to(device)
    adam = {wrapped}(torch.optim.Adam(net.parameters()))
    loader = {loader}(pictures(), batch_size=8, shuffle=True, drop_last=True)
    for epoch in range(config["epochs"]):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            adam.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            adam.step()  {step}
        if idist.get_rank() == 0:
            idist.barrier()  {alone}
"""
PARALLEL = """\
if __name__ == "__main__":
    with idist.Parallel(backend={backend}, nproc_per_node=8) as parallel:
        parallel.run(training, dict(epochs=3))
"""
SPAWN = """\
if __name__ == "__main__":
    idist.spawn({backend}, training, args=(dict(epochs=3),), nproc_per_node=8)
"""
CODES = {"XLA302", "XLA402", "XLA405"}
BY_HAND = {"wrapped": "", "loader": "torch.utils.data.DataLoader"}
BY_IGNITE = {"wrapped": "idist.auto_optim", "loader": "idist.auto_dataloader"}


def told(source: str, asked: set[str], **options: str) -> set[tuple[int, str]]:
    return {(row, code) for row, code in found(source, **options) if code in asked}


@pytest.mark.parametrize("start", [PARALLEL, SPAWN])
def test_what_ignite_starts_runs_on_every_core(start: str):
    source = TRAINING.format(**BY_HAND, step="# !XLA302", alone="# !XLA405")
    source = source.replace("drop_last=True)", "drop_last=True)  # !XLA402")
    source += start.format(backend='"xla-tpu"')
    assert told(source, CODES) == marks(source)


@pytest.mark.parametrize("start", [PARALLEL, SPAWN])
def test_what_ignite_wraps_reduces_and_shares_out(start: str):
    source = TRAINING.format(**BY_IGNITE, step="", alone="# !XLA405")
    source += start.format(backend='"xla-tpu"')
    assert told(source, CODES) == marks(source)


@pytest.mark.parametrize("backend", ['"nccl"', '"gloo"', "None", "sys.argv[1]"])
@pytest.mark.parametrize("start", [PARALLEL, SPAWN])
def test_other_backends_are_not_for_xla(start: str, backend: str):
    source = TRAINING.format(**BY_HAND, step="", alone="") + start.format(backend=backend)
    assert told("import sys\n" + source, CODES | {"XLA801"}) == set()


@pytest.mark.parametrize("backend", ["None", "config.backend"])
def test_a_backend_that_is_not_written_out_is_xlas_beside_torch_xla(backend: str):
    source = TRAINING.format(**BY_HAND, step="# !XLA302", alone="# !XLA405")
    source = source.replace("drop_last=True)", "drop_last=True)  # !XLA402")
    source = "import torch_xla\n" + source + PARALLEL.format(backend=backend)
    assert told(source, CODES) == marks(source)


@pytest.mark.parametrize(
    "start",
    [
        "with idist.Parallel(backend='xla-tpu') as parallel:  # !XLA801\n    pass\n",
        "idist.spawn('xla-tpu', print, args=())  # !XLA801\n",
        "idist.initialize('xla-tpu')  # !XLA801\n",
        "BACKEND = 'xla-tpu'\nidist.initialize(backend=BACKEND)  # !XLA801\n",
        "idist.initialize('nccl')\n",
        "def start(backend):\n    idist.initialize(backend)\n",
    ],
)
def test_the_backend_asks_for_what_torch_xla_has_lost(start: str):
    source = "import ignite.distributed as idist\n" + start
    assert told(source, {"XLA801"}) == marks(source)
    assert told(source, {"XLA801"}, target=(2, 5)) == set()


def test_an_engine_of_catalyst_starts_eight_processes():
    source = """\
from catalyst import dl
runner.train(engine=dl.DistributedXLAEngine())  # !XLA801
runner.train(engine=dl.DistributedDataParallelEngine())
"""
    assert told(source, {"XLA801"}) == marks(source)


WAITING = """\
import torch
import ignite.distributed as idist
from torchvision.datasets import CIFAR10
def training(core, config):
    {before}
    data = CIFAR10("/data", download=True)  {mark}
    {after}
with idist.Parallel(backend="xla-tpu", nproc_per_node=8) as parallel:
    parallel.run(training, {{}})
"""


@pytest.mark.parametrize(
    ("before", "after", "mark"),
    [
        (
            "if idist.get_rank() > 0: idist.barrier()",
            "if not idist.get_rank(): idist.barrier()",
            "",
        ),
        ("pass", "pass", "# !XLA406"),
    ],
)
def test_cores_that_wait_for_the_first(before: str, after: str, mark: str):
    source = WAITING.format(before=before, after=after, mark=mark)
    assert told(source, {"XLA405", "XLA406"}) == marks(source)


HANDLER = """\
import torch
import torch_xla
import torch_xla.runtime as xr
def main(index, trainer, net):
    {guard}
        @trainer.on("epoch")
        def keep():
            torch.save({{}}, "net.pt")  {written}
            print("kept")  {shown}
        trainer.attach(keep)
torch_xla.launch(main, args=(None, None))
"""


@pytest.mark.parametrize(
    ("guard", "alone"),
    [("if xr.global_ordinal() == 0:", True), ("if index == 0:", True), ("if trainer:", False)],
)
def test_a_function_that_the_master_alone_defines(guard: str, alone: bool):
    written, shown = ("", "") if alone else ("# !XLA406", "# !XLA401")
    source = HANDLER.format(guard=guard, written=written, shown=shown)
    assert told(source, {"XLA401", "XLA406"}) == marks(source)


METRICS = """
import torch
{device}
from ignite.engine import create_supervised_evaluator
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss


def evaluator(net, stop):
    metrics = {{"accuracy": Accuracy(),{mark}
               "loss": Loss(torch.nn.CrossEntropyLoss())}}
    found = create_supervised_evaluator(net, metrics=metrics, device=device)
    stop.append(EarlyStopping(3, lambda engine: 1.0, found))
    return found
"""
XLA = "import torch_xla\ndevice = torch_xla.device()"


@pytest.mark.parametrize(
    ("device", "mark"), [(XLA, "  # !XLA801"), ('device = torch.device("cuda")', "")]
)
def test_metrics_ask_for_what_torch_xla_has_lost(device: str, mark: str):
    program = METRICS.format(device=device, mark=mark)
    assert {one for one in found(program) if one[1] == "XLA801"} == marks(program)
    assert "XLA801" not in codes(program, target=(2, 6))
