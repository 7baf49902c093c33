"""What counts as better and worse, with invented figures."""

import dataclasses

import pytest

from xladoctor.diagnosis import gain

GOOD = gain.Measured(
    ran=True, compilations=4, after_warmup=1, syncs=2.0, fallbacks=1.0, step_seconds=0.5,
    losses=(1.5, 0.75),
)  # fmt: skip


def changed(**what):
    return dataclasses.replace(GOOD, **what)


def test_losses_are_found_in_the_lines_that_people_print():
    text = (
        "epoch 3 loss 0.5120 acc 0.9\n[xla:1] Train Loss: 1.25e-1\nloss=nan\n"
        "{'val_loss': 2.5}\nlosses are fun\nloss 0.5120\nsteps 100 loss\n7.0"
    )
    found = gain.losses(text)
    assert found[:2] == (0.512, 0.125)
    assert found[2] != found[2]
    assert found[3:] == (2.5,)


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (changed(), None),
        (changed(syncs=0.0, losses=(1.504, 0.752)), None),
        (changed(syncs=3.0), "more syncs per step: 3.0 instead of 2.0"),
        (changed(after_warmup=2), "more compilations after warm-up: 2 instead of 1"),
        (changed(fallbacks=1.5), "more fallbacks per step: 1.5 instead of 1.0"),
        (changed(step_seconds=1.0), "a step takes 2.0 times as long"),
        (changed(step_seconds=1.0, syncs=0.0), None),
        (changed(losses=(1.5, 9.0)), "only 1 of 2 printed losses are as before"),
        (changed(losses=()), None),
        (changed(syncs=None), None),
        (gain.Measured(ran=False, failed="boom"), "the program fails with it (boom)"),
    ],
)
def test_a_change_stays_unless_it_makes_something_worse(after, reason):
    assert gain.worse(GOOD, after, keeps_numbers=True) == reason


def test_a_change_that_is_meant_to_change_the_numbers_may():
    assert gain.worse(GOOD, changed(losses=(9.0,)), keeps_numbers=False) is None


def test_nothing_is_worse_than_a_program_that_fails():
    failed = gain.Measured(ran=False)
    assert gain.worse(failed, changed(syncs=99.0), keeps_numbers=True) is None
    assert gain.worse(failed, failed, keeps_numbers=True) is None
