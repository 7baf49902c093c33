"""Programs that Ignite starts on the cores of a TPU.

All programs are invented. ``# !XLA405`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks

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
