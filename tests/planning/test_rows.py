"""Rows, what follows from them, and how they are shown; the compiler's answers are invented."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xladoctor.planning.advice import advice
from xladoctor.planning.choices import Choice
from xladoctor.planning.row import Row
from xladoctor.planning.rows import row_of
from xladoctor.planning.traced import Traced, read
from xladoctor.report.plan import render
from xladoctor.tpu import targets
from xladoctor.tpu.compiled import Compiled, Memory, Operation, Refusal

TARGET = targets.find("v3-8")[0]
CHOICE = Choice(("python", "train.py", "64"), {"--batch-size": "64"})


def answer(cycles=0, refusal=None, memory=1000, flops=None):
    return Compiled(
        digest="d",
        target="v3-8",
        replicas=1,
        compiler="libtpu",
        seconds=1.0,
        memory=None if refusal else Memory(memory, 0, 0, 0, 0),
        flops=flops,
        operations=(Operation("fusion", "fusion", "product", "f32[8]", cycles),),
        refusal=refusal,
    )


def traced(graphs=1, **facts):
    return Traced(tuple(Path(str(number)) for number in range(graphs)), samples=64, **facts)


def test_graphs_of_a_step_follow_each_other_and_the_largest_decides_what_fits():
    cycles = int(TARGET.clock_hz) // 1000
    row = row_of(
        CHOICE, traced(2), TARGET,
        [answer(cycles, memory=300, flops=1e9), answer(cycles, memory=500, flops=1e9)],
    )  # fmt: skip
    assert row.fits is True
    assert row.memory_bytes == 500
    assert row.memory_limit_bytes == TARGET.memory_bytes
    assert row.device_seconds == pytest.approx(0.002)
    assert row.samples_per_second == pytest.approx(32000)
    assert row.matrix_unit_share == pytest.approx(2e9 / (0.002 * TARGET.peak_flops))


def test_what_does_not_fit_has_its_size_and_no_time():
    refusal = Refusal("memory", "too much", used=20, limit=16)
    row = row_of(CHOICE, traced(), TARGET, [answer(refusal=refusal)])
    assert (row.fits, row.memory_bytes, row.memory_limit_bytes) == (False, 20, 16)
    assert (row.device_seconds, row.samples_per_second, row.error) == (None, None, None)


def test_a_program_that_the_compiler_makes_and_a_core_has_no_room_for_does_not_fit():
    """libtpu refuses what temporary tensors and arguments exceed; results need room as well."""
    row = row_of(CHOICE, traced(), TARGET, [answer(1000, memory=TARGET.memory_bytes + 1)])
    assert (row.fits, row.memory_bytes) == (False, TARGET.memory_bytes + 1)
    assert (row.device_seconds, row.error) == (None, None)


def test_what_the_compiler_refuses_for_another_reason_is_an_error_and_no_answer_about_memory():
    row = row_of(CHOICE, traced(), TARGET, [answer(refusal=Refusal("refused", "no such thing."))])
    assert (row.fits, row.error) == (None, "no such thing")


def test_samples_that_are_not_known_give_no_rate():
    row = row_of(CHOICE, Traced((Path("0"),)), TARGET, [answer(1000)])
    assert row.samples_per_second is None
    assert row.device_seconds is not None


def test_an_error_of_the_program_is_the_rows():
    row = row_of(CHOICE, Traced(error="it made no optimizer step"), TARGET, [])
    assert (row.error, row.fits) == ("it made no optimizer step", None)


def row(samples, seconds, *, fits=True, target="v3-8", memory=1):
    return Row(
        ("train.py",), {"-b": str(samples)}, target,
        fits=fits, memory_bytes=memory, device_seconds=seconds if fits else None, samples=samples,
    )  # fmt: skip


def test_the_largest_that_fits_is_named_for_each_target():
    rows = [
        row(32, 1.0),
        row(64, 2.0),
        row(128, 4.0, fits=False),
        row(32, 1.0, fits=False, target="v2-8"),
    ]
    assert advice(rows) == [
        "v3-8: the largest that fits is -b 64",
        "v2-8: none of these fits",
    ]


def test_the_fastest_per_sample_is_named_if_it_is_another():
    assert advice([row(32, 0.5), row(64, 2.0)]) == [
        "v3-8: the largest that fits is -b 64, the fastest per sample is -b 32"
    ]


def test_sizes_beside_a_tile_are_compared_with_the_multiple_next_to_them():
    said = advice([row(100, 1.28), row(104, 1.0), row(512, 5.0)])
    assert said[1] == (
        "v3-8: 104 samples, a multiple of 8, take 25% less device time per sample than 100"
    )
    assert len(said) == 2


def test_a_much_larger_multiple_says_nothing_about_tiles():
    assert len(advice([row(16, 1.0), row(128, 1.0)])) == 1


def test_a_width_beside_a_tile_is_compared_too():
    def wide(width, seconds, layers="2"):
        values = {"--width": width, "--layers": layers}
        return Row(("t.py",), values, "v3-8", fits=True, device_seconds=seconds, samples=64)

    rows = [wide("1000", 1.2), wide("1024", 1.0), wide("1024", 0.1, "1"), wide("1040", 1.3)]
    assert advice(rows)[1:] == [
        "v3-8: --width 1024, a multiple of 128, takes 17% less device time than --width 1000"
        if tile == 128
        else "v3-8: --width 1024, a multiple of 128, takes 23% less device time than --width 1040"
        for tile in (128, 0)
    ]


def test_a_wider_model_that_takes_longer_says_nothing_about_tiles():
    rows = [
        Row(("t.py",), {"--width": width}, "v3-8", fits=True, device_seconds=seconds, samples=8)
        for width, seconds in (("1000", 1.0), ("1024", 1.1))
    ]
    assert len(advice(rows)) == 1


def test_why_memory_differs_between_targets_is_said_where_it_does():
    rows = [row(8, 1.0, memory=900), row(8, 1.0, memory=1000, target="v2-8")]
    assert "saves only where it has to" in " ".join(render(rows, "full").split())
    assert "saves only" not in render([rows[0], row(8, 1.0, memory=905, target="v2-8")], "full")


@pytest.mark.parametrize("width", [80, 120])
def test_no_figure_of_the_table_is_cut(width):
    rows = [
        Row(
            ("train.py",), {"--batch-size": str(size)}, "v5e-256", fits=True,
            memory_bytes=15 * 2**30, memory_limit_bytes=16_911_433_728,
            device_seconds=0.0000227, samples=size, matrix_unit_share=0.004,
        )
        for size in (100, 65_536)
    ]  # fmt: skip
    text = render(rows, "full", width=width)
    for shown in ("15.0 GiB", "15.8 GiB", "22.7 us", "4,405,286", "2,887,048,458", "<1%", "65536"):
        assert shown in text
    assert "…" not in text


def test_json_is_as_promised():
    rows = [row(64, 0.5), Row(("train.py",), {}, "v5e-8", error="it failed")]
    found = json.loads(render(rows, "json"))
    assert found["schema_version"] == 1
    first, second = found["rows"]
    promised = {
        "command", "values", "target", "fits", "memory_bytes", "memory_limit_bytes",
        "device_seconds", "samples_per_second", "matrix_unit_share", "error",
    }  # fmt: skip
    assert promised <= set(first)
    assert first["samples_per_second"] == 128
    assert first["error"] is None
    assert second["error"] == "it failed"
    assert second["fits"] is second["device_seconds"] is second["samples_per_second"] is None


def test_the_table_has_a_line_for_each_row_and_says_what_is_wrong():
    rows = [
        row(64, 0.5, memory=7_480_000_000),
        Row(("train.py",), {"-b": "9"}, "v5e-8", error="it failed"),
    ]
    text = render(rows, "full")
    assert "7.0 GiB" in text
    assert "500 ms" in text
    assert "v5e-8, -b 9: it failed" in text


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("Traceback (most recent call last):\n  x\nValueError: no data\n", "ValueError: no data"),
        ("torch.cuda.OutOfMemoryError: no\nended\n", "torch.cuda.OutOfMemoryError: no"),
        ("usage: train.py\n", "usage: train.py"),
        ("", "exit code 3"),
    ],
)
def test_why_a_program_failed_is_its_own_last_word(tmp_path, printed, says):
    assert read(tmp_path, 3, printed).error == f"the program failed ({says})"


def test_a_program_that_takes_too_long(tmp_path):
    assert "within 5 s" in read(tmp_path, 143, "", late=5.0).error
