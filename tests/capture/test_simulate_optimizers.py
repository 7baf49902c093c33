"""Several optimizers between two launches, some of them gone by then."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

PROGRAM = """
import gc, json
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index, case):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2).to(torch_xla.device())
    model(torch.ones(1, 2).to(torch_xla.device())).sum().backward()
    # Several, for another thread may take the place of one of them.
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(30)]
    for optimizer in optimizers:
        xm.optimizer_step(optimizer)
    other, kept, again = torch.nn.Linear(2, 2), [], False
    other(torch.ones(1, 2)).sum().backward()
    gc.collect()
    # As happens by chance: a CPU optimizer gets the place of one that has gone, on one core.
    places = {id(one) for one in optimizers}
    del optimizer, optimizers
    while index == 1 and not again and len(kept) < 10_000:
        kept.append(torch.optim.SGD(other.parameters(), lr=0.1))
        again = id(kept[-1]) in places
    if again:
        kept[-1].step()
    torch_xla.sync()
    with open(f"result{index}.json", "w") as file:
        json.dump({"again": again, "bias": model.bias.detach().cpu().tolist()}, file)
"""


def test_an_optimizer_in_the_place_of_another_one_does_not_hide_its_parameters(tmp_path):
    done = simulated.run_cases(tmp_path, 2, PROGRAM, ["gone"])["gone"]
    assert done.error is None, done.stderr
    assert done.kinds == []
    assert done.results[1]["again"]
    assert done.results[0]["bias"] == done.results[1]["bias"]
