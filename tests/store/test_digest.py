"""A digest says of a run what the run says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.invented import InventedRun
from tests.store.generate import Large, write
from xladoctor import diagnosis, readings
from xladoctor.errors import SourceError
from xladoctor.results import to_json
from xladoctor.store import compact
from xladoctor.store.digest import Digest, weighted_median

RECORDED = sorted(Path("sample_runs").glob("*/recorded/*"))


def near(one, other):
    """The same, but for the last digits of sums."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return one == pytest.approx(other) if isinstance(one, float) else one == other


def in_order(rows):
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)[:200])


@pytest.mark.parametrize("run", RECORDED, ids=lambda path: "-".join(path.parts[-3:]))
def test_recorded_runs(run, tmp_path):
    compact.make(run, tmp_path / "digest")
    whole = to_json(diagnosis.diagnose(readings.load([run])))
    short = to_json(diagnosis.diagnose(readings.load([tmp_path / "digest"])))
    for name in ("summary", "cores", "compilations", "alike"):
        assert near(whole[name], short[name]), name
    for name in ("reads", "fallbacks", "findings"):
        assert near(in_order(whole[name]), in_order(short[name])), name
    assert len(short["steps"]) < len(whole["steps"])


def test_rows_do_not_grow_with_steps(tmp_path):
    sizes = []
    for steps in (1_000, 10_000):
        part = next((write(Large(1, steps), tmp_path / str(steps)) / "hosts/0").iterdir())
        compact.make(part, tmp_path / f"digest-{steps}")
        text = next((tmp_path / f"digest-{steps}").glob("p*/events.jsonl")).read_text()
        sizes.append(text.count('"e":"step"'))
    assert sizes[1] - sizes[0] <= 8 * 4  # a few more stretches that double, on each of 8 cores


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from(["step", "between", "turn"])), max_size=40
    )
)
def test_nothing_is_lost(pieces):
    run, step = InventedRun(1), 1
    for count, kind in pieces:
        if kind == "step":
            run.step(0, step, step + count - 1, syncs=[(52, "item", count, 0.1, 0)], trace=0.2)
            step += count
        else:
            run.step(0, None, trace=0.1)
            run.rows[-1] |= {"last": None} | ({"iterations": count} if kind == "turn" else {})
    run.end()
    digest = Digest()
    made = [one for row in run.rows for one in digest.feed(json.loads(json.dumps(row)))]
    made += digest.rest()

    def total(rows, what):
        return sum(what(row) for row in rows if row["e"] == "step")

    for what in (
        lambda row: row["t1"] - row["t0"],
        lambda row: sum(row["parts"].values()),
        lambda row: row["last"] - row["first"] + 1 if row["last"] else 0,
        lambda row: row.get("iterations", 0),
        lambda row: sum(entry[2] for entry in row["syncs"]),
        lambda row: sum(entry[2] for entry in row["launches"]),
        lambda row: row["transfers"]["to_device"],
    ):
        assert total(made, what) == pytest.approx(total(run.rows, what))
    others = [row for row in run.rows if row["e"] != "step"]
    assert [row for row in made if row["e"] not in ("step", "typical")] == others


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5)), min_size=1))
def test_a_weighted_median_is_that_of_what_it_stands_for(values):
    import statistics

    each = [value for value, count in values for _ in range(count)]
    low, high = statistics.median_low(each), statistics.median_high(each)
    assert low <= weighted_median(values) <= high


def test_damaged_rows_stay_in_the_digest(tmp_path):
    run = InventedRun(1)
    run.step(0, 1)
    folder = run.write(tmp_path / "run")
    events = next(folder.glob("p*/events.jsonl"))
    with events.open("a") as out:
        out.write('{"e":"step","core":0,"first":2,"last":2,"parts":{}}\nnot json\n')
        out.write('{"e":"step","core":0,"fi')
    compact.make(folder, tmp_path / "digest")
    notes = readings.load([tmp_path / "digest"]).notes
    assert sum("could not be read" in note for note in notes) == 2


def test_a_zip_that_would_leave_its_folder(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as packed:
        packed.writestr("../outside.txt", "x")
    with pytest.raises(SourceError, match="no digest"):
        compact.unpack(tmp_path / "bad.zip", tmp_path / "inside")
    assert not (tmp_path / "outside.txt").exists()
