"""Arguments are sent to each core as to a process of its own, where that is possible."""

from __future__ import annotations

import functools
import threading

import torch

from xladoctor.capture.simulate import arguments


def given(*things):
    return things


def test_what_each_core_gets_is_its_own_as_one_thing():
    inner = {"lr": 1}
    function = arguments.for_each_core(functools.partial(given, inner, [inner], torch.zeros(2)))
    (one, in_list, tensor), (other, _, other_tensor) = function(), function()
    assert one == other == inner
    assert one is not other
    assert one is in_list[0]
    tensor[0] = 5
    assert other_tensor.tolist() == [5, 0]


def test_what_cannot_be_sent_again_stays_one_for_all():
    function = functools.partial(given, threading.Lock())
    assert arguments.for_each_core(function) is function


def test_what_is_too_large_stays_one_for_all_but_tensors_do_not_count(monkeypatch):
    monkeypatch.setattr(arguments, "MOST_BYTES", 2000)
    large = functools.partial(given, [str(number) for number in range(1000)])
    assert arguments.for_each_core(large) is large
    tensors = functools.partial(given, torch.zeros(1000))
    assert arguments.for_each_core(tensors) is not tensors
