"""What a program keeps in its process, or gives to its cores, belongs to a core."""

from __future__ import annotations

import pytest
import simulated

pytestmark = pytest.mark.xla

CORES = 4

PROGRAM = """
import argparse, builtins, contextlib, io, json, logging, os, sys, threading
import numpy
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp

logging.getLogger("training").addHandler(logging.NullHandler())


def print_of_the_master(index):
    own = builtins.print

    def quiet(*args, **kwargs):
        if index == 0 or kwargs.pop("force", False):
            own(*args, **kwargs)

    xm.rendezvous("begin")
    builtins.print = quiet
    xm.rendezvous("set")
    print("core", index)
    print("forced", index, force=True) if index == 3 else None
    return builtins.print is quiet


def silent_but_the_master(index):
    xm.rendezvous("begin")
    if index:
        sys.stdout = open(os.devnull, "w")
    xm.rendezvous("set")
    print("core", index)
    thread = threading.Thread(target=print, args=("thread of", index))
    thread.start()
    thread.join()
    return sys.stdout.name == os.devnull


def tee(index):
    class Tee:
        def __init__(self, to):
            self.to, self.text = to, ""

        def write(self, text):
            self.text += text
            return self.to.write(text)

        def flush(self):
            self.to.flush()

    xm.rendezvous("begin")
    sys.stdout = Tee(sys.stdout)
    xm.rendezvous("set")
    print("core", index)
    return sys.stdout.text


def redirected(index):
    text = io.StringIO()
    redirect = contextlib.redirect_stdout(text)
    for turn in range(4):  # all are inside at once, and leave in the order in which they came
        if turn == index:
            redirect.__enter__()
        xm.rendezvous(f"in {turn}")
    print("caught", index)
    for turn in range(4):
        if turn == index:
            redirect.__exit__(None, None, None)
        xm.rendezvous(f"out {turn}")
    print("told", index)
    return text.getvalue()


def variables(index):
    os.environ["RANK"] = str(index)
    if index == 2:
        del os.environ["HOME"]
    xm.rendezvous("set")
    thread = []
    one = threading.Thread(target=lambda: thread.append(os.environ["RANK"]))
    one.start()
    one.join()
    return [os.environ["RANK"], os.getenv("RANK"), dict(os.environ)["RANK"], *thread], (
        "HOME" in os.environ
    )


def loggers(index):
    logger, text = logging.getLogger("training"), io.StringIO()
    made_here = logging.getLogger("made by the cores")
    xm.rendezvous("begin")
    logger.setLevel(logging.INFO if index == 0 else logging.ERROR)
    logger.addHandler(logging.StreamHandler(text))
    made_here.addHandler(logging.StreamHandler(text))
    if index == 3:
        logging.disable(logging.ERROR)
    xm.rendezvous("set")
    logger.info("step")
    logger.error("error")
    made_here.warning("made")
    xm.rendezvous("end")
    return text.getvalue().split(), len(logger.handlers)


class Some:
    pass


def trust(index):
    torch.save(Some(), f"own{index}.pt")
    trusting = torch.serialization.safe_globals([Some])
    trusting.__enter__()
    xm.rendezvous("in")
    if index == 0:
        trusting.__exit__(None, None, None)
    xm.rendezvous("the first has left")
    found = type(torch.load(f"own{index}.pt", weights_only=True)).__name__ if index else None
    xm.rendezvous("loaded")
    if index:
        trusting.__exit__(None, None, None)
    xm.rendezvous("end")
    return found, Some in torch.serialization.get_safe_globals()


def arguments(index, given, model):
    given.lr *= 4
    given.rank = index
    given.shared[index] = index + 1
    xm.rendezvous("set")
    weight = model.to(torch_xla.device()).weight
    xm.rendezvous("moved")
    sharing = [given.shared.tolist(), given.array is ARRAYS.setdefault("array", given.array)]
    return [given.lr, given.rank, str(weight.device), weight.sum().item()], sharing


ARRAYS = {}


def main(index, case, given, model):
    found = globals()[case](index, *((given, model) if case == "arguments" else ()))
    with open(f"result{index}.json", "w") as file:
        json.dump(found, file)


def start(case):
    model = torch.nn.Linear(1, 2)
    torch.nn.init.ones_(model.weight)
    given = argparse.Namespace(lr=0.5, shared=torch.zeros(4), array=numpy.zeros(4))
    xmp.spawn(main, args=(case, given, model), start_method="fork")
"""

CASES = (
    "print_of_the_master",
    "silent_but_the_master",
    "tee",
    "redirected",
    "variables",
    "loggers",
    "trust",
    "arguments",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return simulated.run_cases(tmp_path_factory.mktemp("belongings"), CORES, PROGRAM, CASES)


def checked(done):
    assert (done.code, done.error) == (0, None), done.stderr
    assert done.events == []
    return [done.results[core] for core in range(CORES)]


def test_a_print_that_only_the_master_obeys_silences_the_others_alone(runs):
    done = runs["print_of_the_master"]
    assert checked(done) == [True] * CORES
    assert sorted(done.stdout.splitlines()) == ["core 0", "forced 3"]


def test_a_closed_output_is_that_of_its_core_and_its_threads(runs):
    done = runs["silent_but_the_master"]
    assert checked(done) == [False, True, True, True]
    assert done.stdout.splitlines() == ["core 0", "thread of 0"]


def test_what_is_put_around_the_output_gets_what_its_core_prints(runs):
    done = runs["tee"]
    assert checked(done) == [f"core {core}\n" for core in range(CORES)]
    assert sorted(done.stdout.splitlines()) == [f"core {core}" for core in range(CORES)]


def test_output_is_redirected_and_brought_back_on_each_core(runs):
    done = runs["redirected"]
    assert checked(done) == [f"caught {core}\n" for core in range(CORES)]
    assert sorted(done.stdout.splitlines()) == [f"told {core}" for core in range(CORES)]


def test_variables_are_those_of_the_core_that_sets_them(runs):
    found = checked(runs["variables"])
    assert found == [[[str(core)] * 4, core != 2] for core in range(CORES)]


def test_loggers_have_their_level_and_handlers_on_each_core(runs):
    found = checked(runs["loggers"])
    assert found[0] == [["step", "error", "made"], 2]
    assert found[1:3] == [[["error", "made"], 2]] * 2
    assert found[3] == [[], 2]


def test_classes_are_trusted_until_the_last_core_has_loaded(runs):
    found = checked(runs["trust"])
    assert found == [[None, False]] + [["Some", False]] * 3


def test_what_is_given_to_the_cores_is_each_ones_own_and_tensors_share_memory(runs):
    found = checked(runs["arguments"])
    shared = [[1.0, 2.0, 3.0, 4.0], True]
    assert found == [[[2.0, core, f"xla:{core}", 2.0], shared] for core in range(CORES)]
