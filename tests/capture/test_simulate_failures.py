"""Cores that fail, end early or do not do the same: the run stops and says which core and why."""

from __future__ import annotations

import pytest
import simulated
import torch

from xladoctor.capture.simulate import comparison
from xladoctor.capture.simulate.comparison import Graph
from xladoctor.capture.simulate.divergence import groups_of, minority, odd_ones
from xladoctor.capture.simulate.wording import names

PROGRAM = """
import concurrent.futures, os, time
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

MODEL = torch.nn.Linear(4, 4)


def start(fault):
    pool = concurrent.futures.ThreadPoolExecutor
    if fault == "raise-at-once":  # as if the machine were slow to start the others' threads
        concurrent.futures.ThreadPoolExecutor = lambda max_workers: pool(1)
    try:
        xmp.spawn(main, args=(fault,), start_method="fork")
    finally:
        concurrent.futures.ThreadPoolExecutor = pool


def main(index, fault):
    if fault == "raise-at-once":
        if index == 0:
            raise ValueError("no such image")
        time.sleep(0.5)
        return
    device = torch_xla.device()
    torch.manual_seed(0)
    model = (MODEL if fault == "shared" else torch.nn.Linear(4, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fault == "tags":
        if index == 2:
            xm.rendezvous("saved")  # line odd tag
        else:
            xm.rendezvous("loaded")  # line other tag
    first = model.weight.detach().flatten()[4 * index : 4 * index + 4].clone()
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
            time.sleep(900)
        if step == 1 and fault == "cuda":
            torch.cuda.synchronize()
        if odd and fault == "end":
            return
        if odd and fault == "rendezvous":
            xm.rendezvous("save")  # line rendezvous
        if odd and fault == "stand-still":
            time.sleep(900)  # line sleep
        rows = (5 + index if step == 2 else 4) if fault == "shapes" else 4
        images = torch.ones(3 if odd and fault == "shape" else rows, 4).to(device)
        output = model(images)
        if fault == "number":
            output = output + 0.125 * index * (step == 2)  # line number
        if fault == "kept" and odd:
            kept = output.softmax(-1).max()  # line kept
        if fault == "instead":
            kept = output.max() if odd else output.sum()  # line instead
        if fault == "shares":
            output = output + first.sum()
        loss = output.mean()
        if odd and fault == "reduce":
            loss = xm.all_reduce("sum", loss)  # line reduce
        if fault == "order":
            torch_xla.sync()
            ones = torch.ones(4, device=device)
            kinds = ("sum", "max") if odd else ("max", "sum")
            kept = xm.all_reduce(kinds[0], ones), xm.all_reduce(kinds[1], ones)  # line order
        loss.backward()
        xm.optimizer_step(optimizer)  # line step
        if fault == "master-item" and index == 0:
            loss.item()
        if fault == "master-cpu" and index == 0:
            loss.cpu()  # line cpu
        torch_xla.sync()  # line sync
    if fault == "master-rendezvous" and index == 0:
        xm.rendezvous("saved")  # line last
    print(f"core {index} done", flush=True)
"""

CASES = (
    "raise", "raise-and-hang", "end", "rendezvous", "shape", "stand-still", "reduce", "tags",
    "shapes", "number", "kept", "instead", "shares", "order",
    "master-item", "master-cpu", "master-rendezvous", "shared", "cuda", "raise-at-once",
)  # fmt: skip


MARKS = (
    "step",
    "sync",
    "last",
    "rendezvous",
    "sleep",
    "reduce",
    "kept",
    "instead",
    "order",
    "number",
)


def line(mark):
    rows = [text.endswith(f"# line {mark}") for text in PROGRAM.splitlines()]
    return rows.index(True) + 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLADOCTOR_HANG_TIMEOUT", "20")
        return simulated.run_cases(tmp_path_factory.mktemp("failures"), 4, PROGRAM, CASES)


@pytest.mark.xla
def test_an_exception_of_one_core_ends_the_run_with_its_own_traceback(runs):
    done = runs["raise"]
    assert done.stderr.startswith("xladoctor: core 1 of 4 failed:\nTraceback")
    assert done.stderr.rstrip().endswith(
        "ValueError: no such image\n"
        "xladoctor: a TPU would do the same: the program's own line raises it"
    )
    assert "program.py" in done.stderr
    assert done.error == "ValueError: no such image"
    assert done.kinds == ["core-failed"]
    assert done.events[0][1]["core"] == 1
    assert "done" not in done.stdout


@pytest.mark.xla
def test_a_core_that_does_not_answer_is_ended_with_the_process(runs):
    """It would sleep for longer than this test may take."""
    done = runs["raise-and-hang"]
    assert done.error.startswith("BrokenProcessPool")
    assert done.kinds == ["core-failed", "process-ended"]
    assert done.events[1][1]["left"] == [3]
    assert done.stderr.startswith("xladoctor: core 1 of 4 failed:\nTraceback")
    assert "xladoctor: core 3 did not stop within 5 s; ending the process" in done.stderr


@pytest.mark.xla
def test_a_core_that_fails_before_the_others_have_begun_ends_the_run(runs):
    """torch_xla lets them not begin then, and nobody waits for them."""
    done = runs["raise-at-once"]
    assert done.error == "ValueError: no such image"
    assert done.kinds == ["core-failed"]
    assert "did not stop" not in done.stderr


@pytest.mark.xla
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("end", "core-left", [
            "cores 0, 2 and 3 wait in all_reduce at {file}:{step} for core 1",
            "core 1 has already ended, after 2 steps"]),
        ("master-rendezvous", "core-left", [
            "core 0 waits in rendezvous 'saved' at {file}:{last} for cores 1 to 3",
            "cores 1 to 3 have already ended, after 4 steps"]),
        ("rendezvous", "cores-differ", [
            "cores 0, 2 and 3 wait in all_reduce at {file}:{step} for core 1",
            "core 1 waits in rendezvous 'save' at {file}:{rendezvous} for cores 0, 2 and 3"]),
        ("kept", "graphs-differ", [
            "core 1 builds another graph than cores 0, 2 and 3",
            "core 1 has aten::softmax f32[4,4] (program.py:{kept}), aten::max f32[]"]),
        ("instead", "graphs-differ", [
            "core 1 has aten::max f32[] (program.py:{instead})",
            "cores 0, 2 and 3 have aten::sum f32[] (program.py:{instead})"]),
        ("order", "collectives-differ", [
            "core 1 comes to all_reduce ('sum' torch.float32(4,)) at {file}:{order}",
            "cores 0, 2 and 3 come to all_reduce ('max' torch.float32(4,)) at {file}:{order}"]),
        ("reduce", "collectives-differ", [
            "only core 1 comes to all_reduce ('sum' torch.float32()) at {file}:{reduce}",
            "cores 0, 2 and 3 come to all_reduce ('sum'"]),
        ("stand-still", "hang", [
            "no core has made progress for 20 s",
            "cores 0, 2 and 3 wait in all_reduce at {file}:{step} for core 1",
            "core 1 is elsewhere at {file}:{sleep}"]),
    ],
)  # fmt: skip
def test_cores_that_do_not_do_the_same_are_named(runs, fault, kind, words):
    done = runs[fault]
    assert done.code == 1
    assert done.kinds[0] == kind
    message = done.stderr.partition("\n")[0]
    assert message == done.events[0][1]["message"]
    lines = {mark: line(mark) for mark in MARKS}
    file = next(word for word in message.split() if "program.py" in word).rpartition(":")[0]
    for word in words:
        assert word.format(file=file, **lines) in message


@pytest.mark.xla
def test_the_facts_say_who_waits_and_for_whom(runs):
    for fault, waits in (
        ("end", {"0": [1], "2": [1], "3": [1]}),
        ("stand-still", {"0": [1], "2": [1], "3": [1]}),
        ("master-rendezvous", {"0": [1, 2, 3]}),
        ("rendezvous", {"0": [1], "2": [1], "3": [1], "1": [0, 2, 3]}),
    ):
        facts = runs[fault].events[0][1]
        assert facts["for_cores"] == waits
        assert facts["waits"].keys() == waits.keys()
    assert runs["end"].events[0][1]["steps"]["1"] == 2


@pytest.mark.xla
def test_rendezvous_with_different_tags_are_named_at_once_and_the_run_goes_on(runs):
    """torch_xla ignores the tags too: the same program ends well on real devices."""
    done = runs["tags"]
    assert done.code == 0, done.stderr
    [(kind, facts)] = done.events
    assert kind == "tags-differ"
    assert facts["cores"] == [2]
    assert facts["cause_place"][1] == line("odd tag")
    assert facts["place"][1] == line("other tag")
    assert "core 2 is in 'saved' at" in facts["message"]
    assert "cores 0, 1 and 3 are in 'loaded' at" in facts["message"]
    assert done.stderr.count("under different tags") == 1
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_a_read_that_only_one_core_makes_and_that_cuts_its_graph_is_named(runs):
    done = runs["master-cpu"]
    assert done.code == 1
    assert done.kinds[0] == "graphs-differ"
    assert done.events[0][1]["cores"] == [0]
    assert done.events[0][1]["cause_place"][1] == line("cpu")
    assert "core 0 read values before it (cpu)" in done.stderr.partition("\n")[0]


@pytest.mark.xla
def test_a_read_that_only_one_core_makes_and_that_does_not_cut_is_let_through(runs):
    """``.item()`` runs a graph of its own and leaves the pending one as it is."""
    done = runs["master-item"]
    assert done.code == 0, done.stderr
    assert done.events == []
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_cores_whose_batches_have_other_shapes_go_on_and_are_named(runs):
    done = runs["shape"]
    assert done.code == 0, done.stderr
    [(kind, facts)] = done.events
    assert kind == "graphs-vary"
    assert (facts["what"], facts["stopped"]) == ("shapes", False)
    assert (facts["cores"], facts["groups"]) == ([1], [[0, 2, 3], [1]])
    shapes = "f32[4,4] on cores 0, 2 and 3, f32[3,4] on core 1: pad to one length on all cores"
    assert facts["difference"] == shapes
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_nobody_is_blamed_where_no_majority_is_alike(runs):
    done = runs["shapes"]
    assert done.code == 0, done.stderr
    [(_, facts)] = done.events
    assert (facts["cores"], facts["groups"]) == ([], [[0], [1], [2], [3]])
    assert facts["difference"].startswith("f32[5,4] on core 0, f32[6,4] on core 1, f32[7,4] on")
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_a_number_that_is_another_on_each_core_is_named_with_its_line(runs):
    done = runs["number"]
    assert done.code == 0, done.stderr
    [(_, facts)] = done.events
    assert facts["what"] == "constants"
    assert facts["cause_place"][1] == line("number")
    assert f"program.py:{line('number')} is 0 on core 0, an input on cores 1 to 3" in done.stderr


@pytest.mark.xla
def test_cores_that_take_different_shares_of_a_tensor_are_let_through_in_silence(runs):
    """As FSDP shards a model: which part each core takes is a number in its graph."""
    done = runs["shares"]
    assert done.code == 0, done.stderr
    assert done.events == []
    assert done.stdout.count("done") == 4


@pytest.mark.xla
def test_the_facts_of_other_operations_hold_both_graphs(runs):
    facts = runs["instead"].events[0][1]
    assert (facts["what"], facts["stopped"]) == ("operations", True)
    assert (facts["cores"], facts["groups"]) == ([1], [[0, 2, 3], [1]])
    rest, odd = ([one["operation"] for one in each] for each in facts["differs"])
    assert (rest, odd) == (["aten::sum"], ["aten::max"])
    assert "aten::sum" in facts["texts"][0]
    assert "aten::max" in facts["texts"][1]


@pytest.mark.xla
def test_a_model_that_the_cores_share_is_refused(runs):
    done = runs["shared"]
    assert done.code == 1
    assert "one and the same Linear" in done.error
    assert "xmp.MpModelWrapper" in done.error


@pytest.mark.xla
def test_a_program_that_calls_torch_cuda_is_told_so_in_one_sentence(runs):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device, so the call succeeds")
    done = runs["cuda"]
    assert done.code == 1
    assert "xladoctor: the program calls torch.cuda, but the simulated cores are XLA" in done.error
    assert done.kinds == ["core-failed"]
    assert done.stderr.count("Traceback") == 1


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


def test_the_odd_cores_are_those_unlike_more_than_half_and_else_nobody():
    assert minority(groups_of({0: "a", 1: "b", 2: "a"})) == [1]
    assert minority(groups_of({0: "b", 1: "a", 2: "a", 3: "c", 4: "a"})) == [0, 3]
    assert minority(groups_of({0: "a", 1: "b"})) == []
    assert minority(groups_of({0: "a", 1: "a", 2: "b", 3: "c"})) == []


# Form of the lines as torch_xla 2.9 prints them; the graphs are invented.
ONE = """
  %0 = f32[3,4]{1,0} xla::device_data(), xla_shape=f32[3,4]{1,0}
  %1 = f32[3,4]{1,0} aten::sin(%0), xla_shape=f32[3,4]{1,0}, ROOT=0
"""
ANOTHER = """
  %0 = f32[4,4]{1,0} xla::device_data(), xla_shape=f32[4,4]{1,0}
  %1 = f32[4,4]{1,0} aten::sin(%0), xla_shape=f32[4,4]{1,0}, ROOT=0
"""


def test_difference_of_two_graphs():
    one, other = Graph.read(ONE), Graph.read(ANOTHER)
    assert comparison.words(one, other) == (
        "xla::device_data f32[3,4], aten::sin f32[3,4]",
        "xla::device_data f32[4,4], aten::sin f32[4,4]",
    )
    assert comparison.words(one, one) == ("", "")
    assert comparison.kind_of([one, other]) == comparison.SHAPES
    assert comparison.first_shapes([one, other]) == ["f32[3,4]", "f32[4,4]"]
    assert comparison.first_shapes([one, one]) is None


def test_graphs_that_only_take_other_parts_of_a_tensor_differ_by_design():
    def graph(start):
        return Graph.read(
            f"%0 = f32[8] xla::device_data(), xla_shape=f32[8]\n"
            f"%1 = f32[4] xla::generic_slice(%0), base_indices=({start}), sizes=(4), "
            "location=main@train.py:3, xla_shape=f32[4], ROOT=0"
        )

    assert comparison.kind_of([graph(0), graph(4)]) == comparison.SHARES


def test_the_first_number_that_differs_is_found_with_its_line():
    def hlo(text, row=12):
        return (
            f"  %number.1 = f32[] {text}, metadata={{op_type="
            f'"{"prim__Constant" if "constant" in text else "xla__device_data"}" op_name="" '
            f'source_file="/home/train.py" source_line={row}}}'
        )

    texts = [hlo("constant(0)"), hlo("constant(1)"), hlo("parameter(3)"), hlo("constant(0)", 40)]
    found = comparison.first_number(texts, lambda file: file.endswith("train.py"))
    assert found == ("/home/train.py", 12, ["0", "1", "an input", "an input"])
    assert comparison.first_number(texts, lambda _file: False) is None
    assert comparison.first_number(texts[:1] * 3, lambda _file: True) is None


def test_other_operations_are_told_from_the_same_ones_on_other_numbers():
    def graph(*nodes):
        return Graph.read("\n".join(f"%{at} = {node}(), ROOT" for at, node in enumerate(nodes)))

    data, constant = "f32[] xla::device_data", "f32[] prim::Constant"
    three = "f32[3] aten::add"
    assert comparison.kind_of([graph(three, data), graph(three, constant)]) == comparison.CONSTANTS
    assert comparison.kind_of([graph(three), graph(three, three)]) == comparison.OPERATIONS


def test_several_graphs_of_one_core_count_what_they_share_once():
    both = Graph.read(f"IR {{{ONE}}}\nIR {{{ONE}  %2 = f32[3,4] aten::cos(%1), ROOT=0\n}}")
    assert both.operations["aten::sin", "f32[3,4]", ""] == 1
    assert both.operations["aten::cos", "f32[3,4]", ""] == 1
