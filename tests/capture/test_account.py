"""The books of one core, without torch_xla."""

from __future__ import annotations

import itertools
import json
import threading

import pytest

from xladoctor.capture.agent.account import Account, Accounts, OpenFallback
from xladoctor.capture.agent.causes import Causes, look
from xladoctor.capture.agent.rows import PARTS
from xladoctor.capture.agent.sites import DEPTH, MOST, Sites
from xladoctor.capture.agent.writer import Writer


@pytest.fixture
def clock(monkeypatch):
    """Time that only passes when a test says so."""
    now = [100.0]
    monkeypatch.setattr("xladoctor.capture.agent.account.time.monotonic", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def _account() -> Account:
    return Account(0, threading.get_ident())


def _one_step(account: Account) -> dict | None:
    account.steps += 1
    account.book()
    row = account.take_row() if account.row_due() else None
    return None if row is None else row.event()


def test_time_goes_to_the_innermost_span(clock):
    account = _account()
    clock(1)
    outer = account.enter("input_wait")
    clock(2)
    inner = account.enter("launch")
    clock(8)
    account.divide_launch(compiling=5, executing=1, simulation=0.5)
    account.leave(inner)
    clock(4)
    account.leave(outer)
    row = _one_step(account)
    assert row["parts"] == {
        "compile": 5, "execute": 1, "input_wait": 6, "host_sync": 0, "trace": 2.5, "fallback": 0,
        "other": 0, "core_wait": 0.5, "transfer": 0,
    }  # fmt: skip
    assert sum(row["parts"].values()) == row["t1"] - row["t0"] == 15


def test_parts_of_a_launch_are_cut_to_what_it_took(clock):
    account = _account()
    span = account.enter("launch")
    clock(2)
    account.divide_launch(compiling=5, executing=1, simulation=1)
    account.leave(span)
    parts = _one_step(account)["parts"]
    assert parts["compile"] == sum(parts.values()) == 2


def test_a_span_that_a_broken_hook_left_open_ends_with_its_outer_one(clock):
    account = _account()
    outer = account.enter("input_wait")
    account.enter("host_sync")
    account.leave(outer)
    clock(3)
    assert _one_step(account)["parts"]["trace"] == 3


def _fetched(account: Account, clock) -> OpenFallback:
    """A fallback that waited 2 s for its inputs and now computes."""
    depth = account.enter("fallback")
    clock(2)
    account.add_fallback(7, "aten::nonzero", account.spent("fallback"))
    return account.keep_fallback_open(depth, 7, "aten::nonzero")


def test_a_fallback_costs_what_it_takes_to_its_end(clock):
    account = _account()
    clock(1)
    fallback = _fetched(account, clock)
    clock(3)
    account.end_fallback(fallback)
    clock(5)
    account.end_fallback(fallback)  # a second word of its end says nothing
    row = _one_step(account)
    assert row["fallbacks"] == [[7, "aten::nonzero", 1, 5.0, 2.0]]
    assert (row["parts"]["fallback"], row["parts"]["trace"]) == (5, 6)


def test_of_a_fallback_whose_end_was_not_seen_only_the_fetching_counts(clock):
    account = _account()
    outer = account.enter("input_wait")
    fallback = _fetched(account, clock)
    clock(30)
    account.end_fallback(fallback, seen=False)
    account.leave(outer)
    row = _one_step(account)
    assert row["fallbacks"] == [[7, "aten::nonzero", 1, 2.0, 2.0]]
    assert (row["parts"]["fallback"], row["parts"]["input_wait"]) == (2, 30)


def test_more_inputs_of_a_fallback_are_in_its_time_already(clock):
    account = _account()
    fallback = _fetched(account, clock)
    more = account.enter("fallback")
    clock(1)
    account.add_fallback_time(7, 1.0)
    account.leave(more)
    clock(3)
    account.end_fallback(fallback)
    row = _one_step(account)
    assert row["fallbacks"] == [[7, "aten::nonzero", 1, 6.0, 3.0]]
    assert row["parts"]["fallback"] == 6


def test_a_long_run_stays_bounded_and_loses_no_step(clock):
    account = _account()
    rows = []
    for _ in range(100_000):
        clock(0.001)
        row = _one_step(account)
        if row is not None:
            rows.append(row)
    last = account.take_row()
    rows += [last.event()] if last is not None else []
    assert len(rows) < 4000
    assert rows[0]["first"] == 1
    assert rows[-1]["last"] == 100_000
    for before, after in itertools.pairwise(rows):
        assert after["first"] == before["last"] + 1
        assert after["t0"] == before["t1"]
    assert [row["last"] - row["first"] for row in rows[:1000]] == [0] * 1000


def test_slow_steps_of_a_long_run_are_not_held_back(clock):
    account = _account()
    account.steps = 50_000
    account.take_row()
    clock(20)
    assert _one_step(account) is not None


def test_what_came_after_the_last_step_has_no_number(clock):
    account = _account()
    _one_step(account)
    clock(1)
    assert account.take_row() is None
    row = account.take_row(after_last=True).event()
    assert (row["first"], row["last"], row["parts"]["trace"]) == (None, None, 1)


def test_a_core_that_starts_again_goes_on_counting(clock):
    accounts = Accounts()
    first, new = accounts.of(3, 1)
    assert new
    first.steps, first.ended = 10, True
    second, new = accounts.of(3, 2)
    assert new
    assert _one_step(second)["first"] == 11


def test_all_parts_are_those_of_the_form():
    assert set(PARTS) == {
        "compile", "execute", "input_wait", "host_sync", "trace", "fallback", "other"
    }  # fmt: skip


# -- causes --------------------------------------------------------------------------------------
def _graph(name: str, inputs: int = 3) -> dict:
    return {"graph": name, "inputs": inputs, "outputs": 1}


def test_kinds_of_cause():
    causes = Causes()
    x16, x10 = {"x": "f32[16,24]", "y": "s64[16]"}, {"x": "f32[10,24]", "y": "s64[10]"}
    assert causes.of(1, "step", _graph("a"), x16)["kind"] == "first-graph"
    cause = causes.of(1, "step", _graph("b"), x10)
    assert cause["kind"] == "input-shape"
    assert cause["detail"] == "x: f32[16,24] -> f32[10,24]; y: s64[16] -> s64[10]"
    # Both shapes were there before, so the shapes do not explain it.
    assert causes.of(1, "step", _graph("c"), x16) == {
        "kind": "unknown", "detail": "", "site": None
    }  # fmt: skip
    grown = causes.of(1, "step", _graph("d", inputs=5), x16)
    assert (grown["kind"], grown["detail"]) == (
        "unknown", "it takes 5 inputs, the one before 3"
    )  # fmt: skip
    assert "no longer in the cache" in causes.of(1, "step", _graph("a"), x16)["detail"]
    assert causes.of(2, "read", _graph("e"), x16)["kind"] == "host-sync-split"


def test_nearest_earlier_graph_is_compared():
    causes = Causes()
    for name, size in (("a", 16), ("b", 8)):
        causes.of(1, "step", _graph(name), {"x": f"f32[{size}]", "m": f"f32[{size},2]"})
    cause = causes.of(1, "step", _graph("c"), {"x": "f32[16]", "m": "f32[16,3]"})
    assert cause["detail"] == "m: f32[16,2] -> f32[16,3]"


def test_looking_at_variables_keeps_no_tensor_alive():
    torch = pytest.importorskip("torch")
    import sys
    import weakref

    def held():
        return look([sys._getframe(1)], device="cpu")

    def program():
        x = torch.ones(2, 3)
        batch = {"ids": torch.ones(4, dtype=torch.int64), "n": 1}
        found = held()
        gone = weakref.ref(x)
        del x
        return found, gone(), batch

    found, gone, _ = program()
    assert found.shapes == {"x": "f32[2,3]", "batch['ids']": "s64[4]"}
    assert gone is None


def test_numbers_and_what_autograd_remembers_are_looked_at_too():
    torch = pytest.importorskip("torch")
    import sys

    def held():
        return look([sys._getframe(1)], device="cpu")

    def program():
        step, scale, gone, done = 3, 0.5, float("nan"), True
        weight = torch.ones(2, requires_grad=True)
        loss = total = (weight * scale).sum()
        first = held()
        loss = (weight * 2).sum()
        total = total + loss
        return first, held(), (step, gone, done, total)

    first, second, _ = program()
    assert first.numbers == {"step": 3, "scale": 0.5}
    assert first.histories.keys() == {"loss", "total"}
    # The history of one goes back to before, the other begins anew.
    assert second.histories["total"][0] == first.histories["total"][0]
    assert second.histories["loss"][0] > first.histories["loss"][1]


def test_variables_that_the_program_holds_itself_are_left_alone():
    pytest.importorskip("torch")
    import sys

    def held():
        return look([sys._getframe(1)], device="cpu")

    def program():
        x = 1
        mine = locals()
        held()
        return mine, x

    assert program()[0]["x"] == 1


# -- sites and files -----------------------------------------------------------------------------
def test_two_loops_that_call_one_helper_are_two_points():
    import sys

    rows = []
    sites = Sites(rows.append)

    def helper():
        return sites.here(sys._getframe())

    first = [helper() for _ in range(3)]
    second = helper()
    assert len(set(first)) == 1
    assert second != first[0]
    assert [row["id"] for row in rows] == [0, 1]
    assert rows[0]["frames"][0][2] == "helper"
    assert all(len(row["frames"]) <= DEPTH for row in rows)


def test_number_of_places_is_bounded():
    rows = []
    sites = Sites(rows.append)
    for row in range(MOST + 50):
        sites._number_of((("x.py", row, "f"),))
    assert len(rows) == MOST + 1


def test_a_full_disk_ends_the_writing_and_nothing_else(tmp_path, monkeypatch):
    writer = Writer(str(tmp_path))
    writer.row({"e": "note", "text": "a"})

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("xladoctor.capture.agent.writer.os.write", full)
    writer.row({"e": "note", "text": "b"})
    monkeypatch.undo()
    writer.row({"e": "note", "text": "c"})
    (events,) = tmp_path.glob("p*/events.jsonl")
    assert [json.loads(line)["text"] for line in events.read_text().splitlines()] == ["a"]


def test_a_folder_that_cannot_be_written_ends_the_writing(tmp_path):
    (tmp_path / "file").write_text("")
    writer = Writer(str(tmp_path / "file"))
    writer.row({"e": "note"})
    assert not writer.working


# -- iterations of a loop without an optimizer --------------------------------------------------
def test_iterations_end_where_the_program_ends_its_graphs(clock):
    account = _account()
    assert not account.end_of_iteration(at_marker=True)  # nothing ran
    rows = []
    for _ in range(3):
        account.add_launch(1, "read", 0.0)
        account.add_launch(2, "sync", 0.0)
        assert account.end_of_iteration(at_marker=True)
        rows.append(account.take_row(after_last=True).event())
        account.add_launch(1, "read", 0.0)
        assert not account.end_of_iteration(at_marker=False)  # the marks are the better knowledge
    assert [(row["first"], row["iterations"]) for row in rows] == [(None, 1)] * 3
    assert account.current_iteration == 4


def test_turns_of_a_long_evaluation_share_rows(clock):
    account = _account()
    rows = []
    for _ in range(100_000):
        account.add_launch(1, "sync", 0.0)
        account.end_of_iteration(at_marker=True)
        clock(0.001)
        account.book()
        if account.row_due():
            rows.append(account.take_row(after_last=True).event())
    rows.append(account.take_row(after_last=True).event())
    assert len(rows) < 4000
    assert sum(row.get("iterations", 0) for row in rows) == 100_000


def test_rows_of_a_run_of_a_week_stay_few(clock):
    """Steps of 20 s: what a kill loses grows with the run, to a hundredth of it."""
    account = _account()
    written = 0
    for _ in range(30_000):
        clock(20)
        written += _one_step(account) is not None
    assert written < 3000


def test_after_a_mark_only_marks_are_steps(clock):
    account = _account()
    for _ in range(5):
        _one_step(account)
    account.count_marks()
    account.add_launch(1, "sync", 0.0)
    assert not account.end_of_iteration(at_marker=True)
    assert _one_step(account)["first"] == 1
