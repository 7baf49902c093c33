"""What frameworks replace for a while is replaced on the core that does so, and nowhere else."""

from __future__ import annotations

import importlib.util

import pytest
import simulated

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(
        any(
            importlib.util.find_spec(name) is None
            for name in ("transformers", "accelerate", "lightning")
        ),
        reason="needs transformers, accelerate and lightning",
    ),
]

CORES = 4

PROGRAM = """
import dataclasses
import json
import time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import transformers.initialization as initialization
from accelerate import init_empty_weights
from lightning.fabric.utilities.data import _replace_dunder_methods
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, PreTrainedModel


class Own(DataLoader):
    def __init__(self, data):
        super().__init__(data)


def now():
    loader = vars(DataLoader)
    return [
        PreTrainedModel.tie_weights, torch.linspace, torch.nn.Module.register_parameter,
        torch.nn.init.normal_, loader["__init__"], loader["__setattr__"], vars(Own)["__init__"],
        "__delattr__" in loader, [name for name in loader if name.startswith("__old")],
    ]


BEFORE = now()


def model():
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    return GPT2LMHeadModel(GPT2Config(**sizes))


def is_tied(one):
    return one.lm_head.weight is one.transformer.wte.weight


def overlapping(manager, index, look):
    # all are inside at once, and leave in the order in which they came
    seen = []
    for step in ("enter", "leave"):
        for turn in range(4):
            if turn == index:
                manager.__enter__() if step == "enter" else manager.__exit__(None, None, None)
            xm.rendezvous(f"{step} {turn}")
            seen.append(look())
            xm.rendezvous(f"{step} {turn}, looked")
    xm.rendezvous("all have left")
    return seen, now() == BEFORE


def tied(index):
    return overlapping(initialization.no_tie_weights(), index, lambda: not is_tied(model()))


def empty(index):
    look = lambda: torch.nn.Linear(2, 2).weight.is_meta
    return overlapping(init_empty_weights(), index, look)


def loaders(index):
    def look():
        loader = Own([1, 2])
        loader.mark = 1
        del loader.mark
        return hasattr(loader, "__pl_saved_args")

    return overlapping(_replace_dunder_methods(DataLoader, "dataset"), index, look)


def failing(index):
    # a model that cannot be made leaves nothing behind, on no core
    raised = False
    try:
        with init_empty_weights():
            xm.rendezvous("in")
            if index == 2:
                raise ValueError
            torch.nn.Linear(2, 2)
    except ValueError:
        raised = True
    xm.rendezvous("out")
    return [raised, torch.nn.Linear(2, 2).weight.is_meta], now() == BEFORE


def nested(index):
    with init_empty_weights():
        xm.rendezvous("outer")
        with init_empty_weights():
            xm.rendezvous("inner")
            inner = torch.nn.Linear(2, 2).weight.is_meta
        outer = torch.nn.Linear(2, 2).weight.is_meta
        xm.rendezvous("one out")
    xm.rendezvous("out")
    return [inner, outer, torch.nn.Linear(2, 2).weight.is_meta], now() == BEFORE


def loaded(index):
    if index == 0:
        model().save_pretrained("gpt")
    xm.rendezvous("saved")
    found = []
    for _ in range(4):
        found += [is_tied(GPT2LMHeadModel.from_pretrained("gpt")), is_tied(model())]
    xm.rendezvous("all are through")
    return found, now() == BEFORE


class Slow(dict):
    inside, most = 0, 0

    def keys(self):
        Slow.inside += 1
        Slow.most = max(Slow.most, Slow.inside)
        time.sleep(0.1)
        Slow.inside -= 1
        return super().keys()


@dataclasses.dataclass
class Arguments:
    size: int | None = dataclasses.field(default=None, metadata=Slow())


def parsed(index):
    xm.rendezvous("begin")
    [given] = HfArgumentParser(Arguments).parse_args_into_dataclasses(["--size", str(index)])
    xm.rendezvous("end")
    return [given.size, Slow.most], now() == BEFORE


def main(index, case):
    found = globals()[case](index)
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)
"""

CASES = ("tied", "empty", "loaders", "failing", "nested", "loaded", "parsed")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return simulated.run_cases(tmp_path_factory.mktemp("replaced"), CORES, PROGRAM, CASES)


def checked(done):
    """What each core has seen; afterwards everything stands as before."""
    assert (done.code, done.error) == (0, None), done.stderr
    assert [done.results[core][1] for core in range(CORES)] == [True] * CORES
    return [done.results[core][0] for core in range(CORES)]


@pytest.mark.parametrize("case", ["tied", "empty", "loaders"])
def test_a_core_sees_its_own_replacement_from_its_begin_to_its_end(runs, case):
    found = checked(runs[case])
    assert found == [
        [core <= at < core + CORES for at in range(2 * CORES)] for core in range(CORES)
    ]


def test_one_that_ends_with_an_error_leaves_nothing_behind(runs):
    assert checked(runs["failing"]) == [[core == 2, False] for core in range(CORES)]


def test_one_in_another_ends_with_the_outer(runs):
    assert checked(runs["nested"]) == [[True, True, False]] * CORES


def test_models_that_all_cores_load_at_once_are_tied(runs):
    assert checked(runs["loaded"]) == [[True] * 8] * CORES


def test_command_lines_are_parsed_by_one_core_at_a_time(runs):
    assert checked(runs["parsed"]) == [[core, 1] for core in range(CORES)]
