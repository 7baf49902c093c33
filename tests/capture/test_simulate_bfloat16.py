"""Variables that make a bfloat16 of every float32 do not reach torch_xla, whenever they are set."""

import ctypes
import os

import pytest

from xladoctor.capture.simulate import variables


@pytest.fixture
def in_process(monkeypatch):
    """What the process itself has for a variable, which is what torch_xla asks for."""
    for name in variables.HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "putenv", os.putenv)  # taken back afterwards
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return lambda name: getenv(name.encode())


def test_one_that_is_set_later_is_seen_by_python_alone(monkeypatch, in_process):
    told = []
    variables.take_hidden(lambda kind, facts: told.append((kind, facts["message"])))
    assert told == []
    monkeypatch.setenv("XLA_USE_BF16", "0")
    assert told == []
    # As Lightning does it when a trainer for bfloat16 is made; once is enough to say.
    for _ in range(2):
        monkeypatch.setenv("XLA_USE_BF16", "1")
    assert os.environ["XLA_USE_BF16"] == "1"
    assert in_process("XLA_USE_BF16") is None
    [(kind, message)] = told
    assert kind == "not-obeyed"
    assert message.startswith("XLA_USE_BF16 is not obeyed on simulated cores")
    monkeypatch.setenv("XLADOCTOR_ANOTHER", "1")
    assert in_process("XLADOCTOR_ANOTHER") == b"1"


def test_each_reason_is_said_once(monkeypatch, in_process):
    told = []
    for name in variables.HIDDEN:
        monkeypatch.setenv(name, "1")
    variables.take_hidden(lambda kind, facts: told.append(facts["message"]))
    assert [in_process(name) for name in variables.HIDDEN] == [None] * len(variables.HIDDEN)
    assert len(told) == len(set(variables.HIDDEN.values()))
    assert told[0].startswith("XLA_USE_BF16 and XLA_DOWNCAST_BF16 are not obeyed on simulated")
    assert told[1].startswith("ENABLE_COLLECTIVE_MATMUL_IN_MP is not obeyed on simulated cores")


def test_one_that_was_set_before_is_taken_away(monkeypatch, in_process):
    monkeypatch.setenv("XLA_DOWNCAST_BF16", "1")
    assert in_process("XLA_DOWNCAST_BF16") == b"1"
    told = []
    variables.take_hidden(lambda kind, facts: told.append(facts["message"]))
    assert in_process("XLA_DOWNCAST_BF16") is None
    assert "XLA_DOWNCAST_BF16" not in os.environ
    assert len(told) == 1
