"""Cores that fail, end early or do not do the same: the run stops and says which core and why."""

from __future__ import annotations

import pytest
import simulated

from xladoctor.capture.simulate.divergence import difference, odd_ones
from xladoctor.capture.simulate.wording import names

PROGRAM = """
import os, sys, time
import torch, torch_xla
import torch_xla.core.xla_model as xm


def main(index, fault):
    device = torch_xla.device()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        odd = step == 2 and index == 1
        if odd and fault == "raise":
            raise ValueError("no such image")
        if odd and fault == "raise-and-hang":
            while not os.path.exists("asleep"):
                time.sleep(0.01)
            raise ValueError("no such image")
        if step == 2 and index == 3 and fault == "raise-and-hang":
            open("asleep", "w").close()
            time.sleep(600)
        if odd and fault == "end":
            return
        if odd and fault == "rendezvous":
            xm.rendezvous("save")
        if odd and fault == "stand-still":
            time.sleep(600)
        loss = model(torch.randn(3 if odd and fault == "shape" else 4, 4).to(device)).sum()
        loss.backward()
        xm.optimizer_step(optimizer)
        if fault == "master-item" and index == 0:
            loss.item()
        if fault == "master-cpu" and index == 0:
            loss.cpu()
        torch_xla.sync()
    print(f"core {index} done")


if __name__ == "__main__":
    torch_xla.launch(main, args=(sys.argv[1],))
"""


def run(folder, fault):
    return simulated.run(folder, 4, PROGRAM, fault)


@pytest.mark.xla
def test_an_exception_of_one_core_ends_the_run_with_its_own_traceback(tmp_path):
    done = run(tmp_path, "raise")
    assert done.code == 1
    assert done.stderr.startswith("xladoctor: core 1 of 4 failed:\nTraceback")
    first = done.stderr.partition("concurrent.futures")[0]
    assert first.rstrip().endswith("ValueError: no such image")
    assert "program.py" in first
    assert done.stderr.rstrip().endswith("ValueError: no such image")
    assert done.kinds == ["core-failed"]
    assert done.events[0][1]["core"] == 1
    assert "done" not in done.stdout


@pytest.mark.xla
def test_a_core_that_does_not_answer_is_ended_with_the_process(tmp_path):
    done = run(tmp_path, "raise-and-hang")
    assert done.code == 1
    assert done.kinds == ["core-failed", "process-ended"]
    assert "xladoctor: core 3 did not stop within 5 s; ending the process" in done.stderr


@pytest.mark.xla
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("end", "core-left", ["cores 0, 2 and 3 wait in a graph with all_reduce", "core 1 has"]),
        ("rendezvous", "cores-differ", ["cores 0, 2 and 3 wait", "core 1 waits in rendezvous 's"]),
        ("shape", "graphs-differ", ["core 1 and cores 0, 2 and 3 build", "f32[3,4]", "f32[4,4]"]),
    ],
)
def test_cores_that_do_not_do_the_same_are_named(tmp_path, fault, kind, words):
    done = run(tmp_path, fault)
    assert done.code == 1
    assert done.kinds == [kind]
    message = done.stderr.partition("\n")[0]
    assert message == done.events[0][1]["message"]
    assert f"at {tmp_path / 'program.py'}:" in message
    for word in words:
        assert word in message


@pytest.mark.xla
def test_a_read_that_only_one_core_makes_and_that_cuts_its_graph_is_named(tmp_path):
    done = run(tmp_path, "master-cpu")
    assert done.code == 1
    assert done.kinds[0] == "graphs-differ"
    assert done.events[0][1]["cores"] == [0]
    assert "core 0 read values before it (cpu)" in done.stderr.partition("\n")[0]


@pytest.mark.xla
def test_a_read_that_only_one_core_makes_and_that_does_not_cut_is_let_through(tmp_path):
    """``.item()`` runs a graph of its own and leaves the pending one as it is."""
    done = run(tmp_path, "master-item")
    assert done.code == 0, done.stderr
    assert done.events == []
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_a_standstill_says_where_each_core_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XLADOCTOR_HANG_TIMEOUT", "15")
    done = run(tmp_path, "stand-still")
    assert done.code == 1
    assert done.kinds[0] == "hang"
    message = done.events[0][1]["message"]
    assert "no core has made progress for 15 s" in message
    assert "core 1 does not answer" in message
    assert "core 0 waits in a graph with all_reduce" in message


@pytest.mark.xla
def test_a_model_that_the_cores_share_is_refused(tmp_path):
    program = PROGRAM.replace("def main", "MODEL = torch.nn.Linear(4, 4)\n\n\ndef main")
    program = program.replace("model = torch.nn.Linear(4, 4)", "model = MODEL")
    done = simulated.run(tmp_path, 4, program, "")
    assert done.code == 1
    assert "one and the same Linear" in done.stderr
    assert "xmp.MpModelWrapper" in done.stderr


def test_the_odd_core_is_the_one_unlike_most():
    assert odd_ones({0: "a", 1: "a", 2: "a"}) is None
    assert odd_ones({0: "a", 1: "b", 2: "a"}) == ([1], [0, 2])
    assert odd_ones({0: "b", 1: "a", 2: "a"}) == ([0], [1, 2])
    assert odd_ones({0: "a", 1: "b"}) == ([1], [0])


def test_cores_in_words():
    assert names([3]) == "core 3"
    assert names([0, 1]) == "cores 0 and 1"
    assert names([0, 2, 5]) == "cores 0, 2 and 5"
    assert names([1, 2, 3, 4]) == "cores 1 to 4"


def test_difference_of_two_graphs():
    # Form of the lines as torch_xla 2.9 prints them; the graphs are invented.
    one = """
      %0 = f32[3,4]{1,0} xla::device_data(), xla_shape=f32[3,4]{1,0}
      %1 = f32[3,4]{1,0} aten::sin(%0), xla_shape=f32[3,4]{1,0}, ROOT=0
    """
    other = """
      %0 = f32[4,4]{1,0} xla::device_data(), xla_shape=f32[4,4]{1,0}, ROOT=0
    """
    assert difference(one, other) == (
        "it has xla::device_data f32[3,4], aten::sin f32[3,4]; "
        "the others have xla::device_data f32[4,4]"
    )
    assert difference(one, one) == ""
