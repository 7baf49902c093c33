"""Lightning's rank by core, with an invented module in Lightning's place; without torch_xla."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
import threading
import types

import pytest

from xladoctor.capture.agent import xla
from xladoctor.capture.simulate import frameworks

#: As lightning_utilities has it: what is decorated asks for the rank when it is called.
LIGHTNING = """
def rank_zero_only(fn):
    def wrapped(*args):
        return fn(*args) if rank_zero_only.rank == 0 else None
    return wrapped

rank_zero_only.rank = 0
"""


@pytest.fixture
def lightning(monkeypatch):
    module = types.ModuleType("lightning_utilities.core.rank_zero")
    exec(LIGHTNING, module.__dict__)
    user = types.ModuleType("a_user_of_it")
    user.rank_zero_only = module.rank_zero_only
    packages = [
        types.ModuleType(name) for name in ("lightning_utilities", "lightning_utilities.core")
    ]
    for one in (*packages, module, user):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    return user


def test_each_core_has_a_rank_of_its_own(lightning, monkeypatch):
    thread = threading.local()
    monkeypatch.setattr(xla, "core_of_thread", lambda: getattr(thread, "core", None))
    early = lightning.rank_zero_only(lambda: "ran")
    frameworks.prepare_core()
    frameworks.prepare_core()  # once for each core
    late = lightning.rank_zero_only(lambda: "ran")
    together, found = threading.Barrier(3), {}

    def main(core):
        thread.core = core
        lightning.rank_zero_only.rank = core
        together.wait()
        found[core] = (lightning.rank_zero_only.rank, early(), late())

    cores = [threading.Thread(target=main, args=(core,)) for core in range(3)]
    for core in cores:
        core.start()
    for core in cores:
        core.join()
    assert found == {0: (0, "ran", "ran"), 1: (1, None, None), 2: (2, None, None)}
    assert lightning.rank_zero_only.rank == 0


def test_it_is_copied_and_pickled_as_the_function_that_it_stands_for(lightning):
    frameworks.prepare_core()
    stands = lightning.rank_zero_only
    assert copy.deepcopy([stands]) == [stands]
    assert pickle.loads(pickle.dumps(stands)) is stands


def test_what_one_core_shows_of_its_progress_leaves_the_others_their_lock():
    """tqdm deletes the lock that it has made for a while; so there is always one before."""
    concurrent = pytest.importorskip("tqdm.contrib.concurrent")
    base = importlib.import_module("tqdm.std").tqdm
    bar = type("bar", (base,), {})
    if "_lock" in base.__dict__:
        del base._lock
    frameworks._patched[:] = [one for one in frameworks._patched if one is not base]
    frameworks.prepare_core()
    with concurrent.ensure_lock(bar), concurrent.ensure_lock(bar):
        pass
    assert bar._lock is base.__dict__["_lock"]
