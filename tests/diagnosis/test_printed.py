"""The losses that programs print, found and held together."""

from __future__ import annotations

import math

import pytest

from xladoctor.diagnosis import printed


def compare(before: str, after: str, unsteady: frozenset[str] = frozenset()):
    return printed.agreement(printed.losses(before), printed.losses(after), unsteady)


@pytest.mark.parametrize(
    ("line", "label", "value"),
    [
        ("epoch 3 loss 0.5120 acc 0.9", "loss (3)", 0.512),
        ("[xla:1](10) Loss=0.50 Rate=12.3 Time=12:00:01", "loss (1,10)", 0.5),
        ("Train Loss: 1.25e-1", "train loss", 0.125),
        ("{'val_loss': 2.5}", "val_loss", 2.5),
        ("loss tensor(0.51, device='xla:0')", "loss", 0.51),
        ("Epoch 1: 50%|##| 5/10 [00:01<00:00, loss=0.333]", "loss (1,50,5,10)", 0.333),
        ("loss: -1.5", "loss", -1.5),
    ],
)
def test_losses_are_found_in_the_lines_that_people_print(line, label, value):
    [found] = printed.losses(line)
    assert (found.label, found.value) == (label, value)


@pytest.mark.parametrize(
    "line", ["losses are fun", "steps 100 loss", "7.0", "loss 3", "glossy 0.5"]
)
def test_other_numbers_are_no_losses(line):
    assert printed.losses(line) == ()


def test_two_losses_of_one_line_are_two_quantities():
    found = printed.losses("epoch 2 train loss 0.5 val loss 0.7")
    assert [(loss.label, loss.value) for loss in found] == [
        ("train loss (2)", 0.5), ("val loss (2)", 0.7),
    ]  # fmt: skip


def test_the_same_losses_agree_in_any_order_of_the_cores():
    found = compare("loss 0.5\nloss 0.7", "loss 0.7\nloss 0.5")
    assert (found.compared, found.agreeing, found.first) == (2, 2, None)


def test_rounding_and_the_last_digit_agree():
    assert compare("loss 0.01", "loss 0.02").agreeing == 1  # one unit of the last digit
    assert compare("loss 100.0000", "loss 100.9000").agreeing == 1  # within 1%
    assert compare("loss 0.0100", "loss 0.0200").agreeing == 0


def test_the_first_disagreement_is_named():
    found = compare("epoch 0 loss 1.50\nepoch 1 loss 0.75", "epoch 0 loss 1.50\nepoch 1 loss 9.00")
    assert (found.compared, found.agreeing) == (2, 1)
    assert (found.first.label, found.first.before, found.first.after, found.first.row) == (
        "loss (1)", 0.75, 9.0, 2,
    )  # fmt: skip


def test_a_loss_of_another_epoch_is_no_counterpart():
    """Found anywhere in the output, the 0.75 of epoch 1 would pass for that of epoch 0."""
    assert compare("epoch 0 loss 1.50\nepoch 1 loss 0.75", "epoch 0 loss 0.75").agreeing == 0


def test_what_only_one_core_prints_now_agrees_with_one_of_all():
    found = compare("loss 0.50\nloss 0.70\nloss 0.90", "loss 0.70")
    assert (found.compared, found.agreeing) == (1, 1)


def test_many_losses_without_a_number_of_their_own():
    """A line at each step of a long run: as many counterparts as there are steps."""
    before = "\n".join(f"loss {1000 - step / 100:.2f}" for step in range(30_000))
    after = "\n".join(f"loss {1000 - step / 100:.2f}" for step in range(29_000)) + "\nloss 5000.0"
    found = compare(before, after)
    assert (found.compared, found.agreeing) == (29_001, 29_000)
    assert (found.first.before, found.first.after) == (1000.0, 5000.0)


def test_not_a_number_among_others():
    found = compare("loss nan\nloss 0.50\nloss 0.60", "loss nan\nloss 0.50")
    assert (found.compared, found.agreeing) == (2, 2)
    found = compare("loss 0.50\nloss 0.60\nloss 0.70", "loss nan\nloss 0.70")
    assert (found.compared, found.agreeing) == (2, 1)
    assert compare("loss nan\nloss nan", "loss 0.50").agreeing == 0


def test_a_value_is_used_once_where_both_printed_as_many():
    assert compare("loss 0.50\nloss 0.90", "loss 0.50\nloss 0.50").agreeing == 1


def test_not_a_number_agrees_with_itself_only():
    assert compare("loss nan", "loss nan").agreeing == 1
    found = compare("loss 0.50", "loss nan")
    assert found.agreeing == 0
    assert math.isnan(found.first.after)
    assert compare("loss inf", "loss inf").agreeing == 1


def test_losses_that_differ_by_themselves_are_not_compared():
    before = printed.losses("epoch 0 loss 0.50\nepoch 1 loss 0.40")
    again = printed.losses("epoch 0 loss 0.90\nepoch 1 loss 0.40")
    assert printed.unsteady(before, again) == {"loss (0)"}
    found = compare(
        "epoch 0 loss 0.50\nepoch 1 loss 0.40", "epoch 0 loss 7.00\nepoch 1 loss 0.40",
        frozenset({"loss (0)"}),
    )  # fmt: skip
    assert (found.compared, found.agreeing, found.unsteady) == (1, 1, 1)


def test_nothing_to_compare_is_none():
    assert compare("hello", "loss 0.5") is None
    assert compare("loss 0.5", "hello") is None
    assert compare("epoch 0 loss 0.5", "epoch 7 loss 0.5") is None
