"""Where two ways part, on invented records."""

from __future__ import annotations

import array
import dataclasses
import math

import pytest

from xladoctor.findings import Finding, Location, Severity
from xladoctor.verify import compare, explain, records
from xladoctor.verify.compare import Tolerances
from xladoctor.verify.records import MISSING, SIZE, Record, Step


def sketch(values, bad=0.0):
    """The sketch of a tensor of few elements, with sums of it in the place of random ones."""
    norm = math.sqrt(sum(value * value for value in values))
    sums = [sum(values), sum(values[::2]), sum(values[1::2]), values[0]]
    samples = [*values, *([0.0] * (SIZE - 7 - len(values)))]
    return array.array("d", [norm, max(map(abs, values)), bad, *sums, *samples])


ABSENT = array.array("d", [0.0, 0.0, MISSING, *([0.0] * (SIZE - 3))])
AT = Location("train.py", 40)
BACKWARD = Location("train.py", 39)


def step(number=1, loss=1.0, gradient=(1.0, 2.0), parameter=(3.0, 4.0), dtype="float32"):
    return Step(
        number=number,
        optimizer=0,
        place=AT,
        backward=BACKWARD,
        losses=(loss,),
        names={"gradient": ("w",), "parameter": ("w",)},
        sketches={
            "gradient": (gradient if isinstance(gradient, array.array) else sketch(gradient),),
            "parameter": (sketch(parameter),),
        },
        dtypes=(dtype,),
        narrow=None,
        addends=0,
    )


def record(way, *cores):
    return Record(way, dict(enumerate(cores)))


FEW = Tolerances(1e-5)


def test_equal_ways_have_no_divergence():
    left = record("xla", [step(1), step(2)])
    right = record("xla-2", [step(1, loss=0.5), step(2)], [step(1, loss=1.5), step(2)])
    assert compare.part(left, right, FEW) == (None, 0.0)


def test_the_loss_of_one_core_is_the_mean_of_several():
    left = record("xla", [step(1, loss=1.2)])
    right = record("xla-2", [step(1, loss=0.5)], [step(1, loss=1.5)])
    found, _ = compare.part(left, right, FEW)
    assert (found.what, found.step, found.location) == ("loss", 1, BACKWARD)
    assert found.difference == pytest.approx(1 / 6)


def test_the_first_step_and_the_first_kind_are_told():
    left = record("xla", [step(1), step(2), step(3)])
    right = record(
        "xla-2", [step(1), step(2, gradient=(1.0, 2.5), parameter=(3.0, 5.0)), step(3, loss=9.0)]
    )
    found, largest = compare.part(left, right, FEW)
    assert (found.step, found.what, found.name, found.way) == (2, "gradient", "w", "xla-2")
    assert found.location == BACKWARD
    assert found.difference == pytest.approx(0.5 / math.hypot(1, 2.5), rel=0.2)
    assert largest == 0.0


def test_what_rounding_makes_of_a_tensor_is_its_tolerance():
    plain, noisy = record("cpu", [step(1)]), record("cpu", [step(1, gradient=(1.0, 2.01))])
    tolerance = compare.tolerances(plain, noisy)
    near = record("xla", [step(1, gradient=(1.0, 2.02))])
    far = record("xla", [step(1, gradient=(1.0, 4.0))])
    assert compare.part(plain, near, tolerance)[0] is None
    assert compare.part(plain, far, tolerance)[0].what == "gradient"
    assert compare.part(plain, near, FEW)[0].what == "gradient"


def test_noise_that_was_seen_may_come_back():
    plain = record("cpu", [step(1), step(2)])
    noisy = record("cpu", [step(1, parameter=(3.0, 4.01)), step(2)])
    tolerance = compare.tolerances(plain, noisy)
    assert tolerance.of(2, "parameter", 0) == tolerance.of(1, "parameter", 0) > 0.01


def _at_a_corner():
    """A plain run; one whose changed weights turned a ReLU's gradient round at step 2."""
    plain = record("cpu", [step(1), step(2), step(3)])
    turned = record("cpu", [step(1), step(2, gradient=(1.0, 2.4)), step(3)])
    return plain, compare.widened(FEW, plain, turned)


def test_what_rounding_does_at_a_corner_is_no_divergence():
    plain, tolerance = _at_a_corner()
    near = record("xla", [step(1), step(2, gradient=(1.0, 2.5)), step(3, gradient=(1.0, 1.7))])
    assert compare.part(plain, near, FEW)[0].step == 2
    assert compare.part(plain, near, tolerance)[0] is None


@pytest.mark.parametrize(
    ("changed", "what", "at"),
    [
        (step(1, gradient=(1.0, 2.3)), "gradient", 1),  # before the corner
        (step(2, gradient=(1.0, 4.0)), "gradient", 2),  # more than the corner does
        (step(3, parameter=(3.0, 4.1)), "parameter", 3),  # behind it, but no gradient
        (step(3, loss=1.1), "loss", 3),
    ],
)
def test_beside_a_corner_what_parts_is_told(changed, what, at):
    plain, tolerance = _at_a_corner()
    steps = [changed if one.number == at else one for one in plain.steps]
    found, _ = compare.part(plain, record("xla", steps), tolerance)
    assert (found.what, found.step) == (what, at)


def test_behind_a_corner_no_gradient_tells_anything():
    plain, tolerance = _at_a_corner()
    last = step(3, gradient=(0.0, 0.0))
    assert compare.part(plain, record("xla", [step(1), step(2), last]), tolerance)[0] is None


def test_no_corner_leaves_the_tolerances_as_they_are():
    plain = record("cpu", [step(1), step(2)])
    assert compare.widened(FEW, plain, plain).of(2, "gradient", 0) == FEW.of(2, "gradient", 0)


def test_sums_of_many_numbers_have_a_larger_floor():
    """The bias of a convolution is a sum over all pixels: 4 rounding errors of a step of theirs."""
    few, many = (
        compare.floor_of([step()]),
        compare.floor_of([dataclasses.replace(step(), addends=10**6)]),
    )
    assert many == pytest.approx(4000 * 2.0**-23)
    assert few == 128 * 2.0**-23
    beyond = compare.floor_of([dataclasses.replace(step(), addends=10**12)])
    assert beyond < 1.01e-3


def test_narrow_types_have_a_larger_floor():
    assert compare.floor_of([step(dtype="bfloat16")]) > 100 * compare.floor_of([step()])
    assert compare.rounding_of([dataclasses.replace(step(), narrow="bfloat16")]) == 2.0**-7


def test_cores_that_train_their_own_models_part_from_each_other():
    mine, theirs = step(1), step(1, parameter=(3.0, 4.5))
    found, _ = compare.part(record("xla", [mine]), record("xla-2", [mine], [theirs]), FEW)
    assert (found.what, found.way, found.other, found.cores) == (
        "parameter",
        "xla-2",
        "xla-2",
        (1,),
    )
    assert found.location == AT


def test_steps_without_values_of_their_own_are_passed_by():
    """Of two steps in one graph only the second has parameters to compare."""
    mine = step(1)
    bare = dataclasses.replace(mine, sketches={"gradient": mine.sketches["gradient"]})
    found, _ = compare.part(record("xla", [bare]), record("xla-2", [bare], [bare]), FEW)
    assert found is None


def test_a_missing_gradient_is_zeros_and_nothing_else():
    absent, zeros = step(1, gradient=ABSENT), step(1, gradient=(0.0, 0.0))
    assert compare.part(record("cpu", [absent]), record("xla", [zeros]), FEW)[0] is None
    left, right = record("xla", [step(1)]), record("xla-2", [absent], [absent])
    found, _ = compare.part(left, right, FEW)
    assert found.what == "gradient"
    assert "no gradient arrives there in xla-2" in explain.explained(found, left, right, []).why


def test_no_numbers_in_both_are_equal():
    nan = step(1, loss=math.nan, gradient=sketch((1.0, 0.0), bad=1.0))
    assert compare.part(record("cpu", [nan]), record("xla", [nan]), FEW)[0] is None
    found, _ = compare.part(record("cpu", [step(1)]), record("xla", [nan]), FEW)
    assert (found.what, found.difference) == ("loss", None)


@pytest.mark.parametrize(("factor", "words"), [(2.0, "2 times as large"), (0.5, "1/2 as large")])
def test_gradients_that_are_summed_or_averaged_too_often_are_recognized(factor, words):
    left = record("xla", [step(1)])
    scaled = step(1, gradient=(factor, 2 * factor))
    right = record("xla-2", [scaled], [scaled])
    found, _ = compare.part(left, right, FEW)
    assert words in explain.explained(found, left, right, []).why


def test_a_finding_explains_what_the_table_says_it_does():
    line = Location("train.py", 7)
    finding = Finding(
        "XLA433", "collective-without-gradient", Severity.ERROR, "", locations=(line,)
    )
    left, right = record("xla", [step(1)]), record("xla-2", [step(1, gradient=(9.0, 1.0))])
    found, _ = compare.part(left, right, FEW)
    told = explain.explained(found, left, right, [finding])
    assert told.location == line
    assert told.why.startswith("XLA433")
    between_devices = dataclasses.replace(found, other="cpu", way="xla")
    assert explain.explained(between_devices, left, right, [finding]).location == BACKWARD


def test_only_findings_that_make_results_wrong_are_shown():
    slow = Finding("XLA101", "host-sync-in-step", Severity.WARNING, "")
    wrong = Finding("XLA302", "plain-optimizer-step", Severity.ERROR, "")
    assert explain.wrong([slow, wrong]) == (wrong,)


def test_what_is_cut_is_left_out(tmp_path):
    (tmp_path / "core-0.jsonl").write_text('{"e": "cannot", "why": "too large"}\n{"e": "st')
    found = records.read(tmp_path, "xla")
    assert (found.cannot, found.steps) == ("too large", ())


def test_steps_for_which_rounding_was_not_measured_are_not_judged():
    plain = record("cpu", [step(1), step(2)])
    tolerance = compare.tolerances(plain, record("cpu", [step(1)]))
    assert compare.part(plain, record("xla", [step(1), step(2, loss=9.0)]), tolerance)[0] is None
