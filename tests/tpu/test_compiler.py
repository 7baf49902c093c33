"""The TPU compiler itself, in a process of its own: what it says, and what becomes of bad input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.tpu import graphs
from xladoctor import catalogue
from xladoctor.errors import MissingExtra, SourceError
from xladoctor.tpu import compiled, compiler, installed, modules, process, targets
from xladoctor.tpu.cache import Cache
from xladoctor.tpu.compiler import Request

if TYPE_CHECKING:
    from pathlib import Path

V3, V5E = targets.find("v3-8,v5e-8")


def ask(*requests: Request, cache: Cache | None = None, **how: float) -> list[compiled.Compiled]:
    """Answers in the order of the requests."""
    found = dict(compiler.compile_all(requests, cache=cache or Cache(None), **how))
    return [found[request] for request in requests]


@graphs.real
@pytest.mark.parametrize("target", targets.find("v2-8,v3-8,v4-8,v5e-8,v5p-8,v6e-8"))
def test_a_large_product_takes_the_cycles_of_the_table(target: targets.Target) -> None:
    graph = graphs.prepared(graphs.product(4096, 4096, 4096, "bf16"))
    (answer,) = ask(Request(graph, target))
    assert answer.refusal is None
    assert answer.flops == 2 * 4096**3
    expected = catalogue.table("targets")[target.generation]["matmul"]["4096"]
    assert answer.cycles == pytest.approx(expected, rel=0.02)


@graphs.real
def test_an_answer_says_memory_with_padding_and_the_source_of_each_operation() -> None:
    graph = graphs.prepared(graphs.product(1000, 1025, 3))
    (answer,) = ask(Request(graph, V5E))
    assert answer.memory is not None
    assert answer.memory.arguments >= 4 * 1000 * 1032
    (product,) = [one for one in answer.operations if one.kind == "product"]
    source = graph.source(product.source)
    assert source is not None
    assert (source.opcode, source.operation) == ("dot", "aten::mm")
    largest = answer.allocations[0]
    assert largest.kind == "argument"
    assert largest.unpadded == 4 * 1000 * 1025
    assert largest.size > largest.unpadded


@graphs.real
def test_what_does_not_fit_says_by_how_much_and_the_next_is_compiled() -> None:
    large = Request(graphs.prepared(graphs.large(9)), V3)
    small = Request(graphs.prepared(graphs.product(256, 256, 256)), V3)
    refused, answer = ask(large, small)
    assert refused.refusal is not None
    assert refused.refusal.kind == "memory"
    assert refused.refusal.used is not None
    assert refused.refusal.limit is not None
    assert refused.refusal.used > refused.refusal.limit
    assert refused.refusal.limit == pytest.approx(V3.memory_bytes, rel=0.001)
    assert refused.cycles is None
    assert answer.refusal is None


@graphs.real
def test_results_need_their_place_too() -> None:
    """The compiler accepts an argument and a result of 9 GiB each on a core that has 16."""
    graph = graphs.prepared(graphs.product(1024, 1, 9 * 2**28 // 1024))
    (answer,) = ask(Request(graph, V3))
    assert answer.refusal is None
    assert answer.memory is not None
    assert answer.fits(V3.memory_bytes) is True
    assert answer.fits(answer.memory.output) is False


@graphs.real
def test_the_picture_of_memory_never_shows_more_than_is_assigned() -> None:
    """What is computed in place is two values and one piece of memory."""
    (answer,) = ask(Request(graphs.prepared(graphs.large(1)), V5E))
    assert answer.memory is not None
    assert 2**30 <= max(answer.picture) <= answer.memory.temporary
    spans = [(one.first, one.last) for one in answer.allocations if one.kind == "temporary"]
    assert spans
    assert all(a is not None and b is not None and 0 <= a < b <= 1 for a, b in spans)
    temporary = [one.size for one in answer.allocations if one.kind == "temporary"]
    assert sum(temporary) <= answer.memory.temporary


@graphs.real
def test_an_answer_is_remembered_whatever_lines_have_moved(tmp_path: Path) -> None:
    first = Request(graphs.prepared(graphs.product(256, 128, 256, row=12)), V5E)
    moved = Request(graphs.prepared(graphs.product(256, 128, 256, row=40)), V5E)
    (asked,) = ask(first, cache=Cache(tmp_path))
    (known,) = ask(moved, cache=Cache(tmp_path))
    assert (asked.cached, known.cached) == (False, True)
    assert dataclasses.replace(known, cached=False) == asked
    (other,) = ask(Request(moved.graph, V3), cache=Cache(tmp_path))
    assert not other.cached


@graphs.real
def test_a_cache_that_cannot_be_written_costs_nothing_but_itself(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = Cache(blocked / "cache")
    (answer,) = ask(Request(graphs.prepared(graphs.product(128, 128, 128)), V5E), cache=cache)
    assert answer.refusal is None
    assert cache.problem is not None
    assert str(blocked) in cache.problem


@graphs.real
def test_a_compiler_that_dies_costs_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is killed in the middle of the first graph."""
    converse = process._converse
    killed = []

    def kill_first(one, row, limit):  # type: ignore[no-untyped-def]
        if row is not None and not killed:
            killed.append(True)
            one.kill()
        return converse(one, row, limit)

    monkeypatch.setattr(process, "_converse", kill_first)
    first = Request(graphs.prepared(graphs.product(128, 128, 128)), V5E)
    second = Request(graphs.prepared(graphs.product(128, 128, 256)), V5E)
    died, answer = ask(first, second)
    assert died.refusal is not None
    assert died.refusal.kind == "crashed"
    assert "SIGKILL" in died.refusal.message
    assert answer.refusal is None


@graphs.real
def test_a_graph_that_takes_too_long_is_given_up() -> None:
    graph = graphs.prepared(graphs.product(4096, 4096, 4096))
    (answer,) = ask(Request(graph, V5E), time_limit=0.01)
    assert answer.refusal is not None
    assert answer.refusal.kind == "too-slow"
    assert "--tpu-time-limit" in answer.refusal.message


@graphs.real
def test_what_the_compiler_refuses_is_its_own_sentence() -> None:
    text = graphs.product(8, 8, 8).replace(
        "dot(a, b)", 'custom-call(a, b), custom_call_target="no"'
    )
    text = text.replace(", lhs_contracting_dims={1}, rhs_contracting_dims={0}", "")
    graph = graphs.prepared(text)
    (answer,) = ask(Request(graph, V5E))
    assert answer.refusal is not None
    assert answer.refusal.kind == "refused"


def test_a_cut_graph_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "0003.pb.z"
    path.write_bytes(b"x\x9c\x01")
    with pytest.raises(SourceError, match=r"0003\.pb\.z"):
        modules.read(path)


def test_without_the_extra_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installed.sys, "platform", "linux")
    monkeypatch.setattr(installed.sys, "version_info", (3, 12, 0))
    monkeypatch.setattr(installed.platform, "machine", lambda: "x86_64")
    graphs.hide(monkeypatch, "libtpu")
    problem = installed.why_not()
    assert isinstance(problem, MissingExtra)
    assert 'pip install "xladoctor[tpu]"' in str(problem)


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64"), ("win32", "AMD64")]
)
def test_a_machine_for_which_there_is_no_libtpu_is_told_where_it_is(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(installed.sys, "platform", system)
    monkeypatch.setattr(installed.platform, "machine", lambda: machine)
    assert "Linux on x86-64" in str(installed.why_not())
