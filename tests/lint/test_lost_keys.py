"""Keys of dictionaries that torch_xla's functions no longer return.

All programs are invented. ``# !XLA801`` marks a line on which that rule has to find something.
"""

from __future__ import annotations

import textwrap

import pytest
from rule_helpers import codes, found, marks

DIRECT = """\
import torch_xla
import torch_xla.core.xla_model as xm


def report(device):
    info = xm.get_memory_info(device)
    used = info["kb_total"] - info["kb_free"]  # !XLA801
    total = xm.get_memory_info(device)["kb_total"]  # !XLA801
    xm.master_print(f"{used / 2**20:.1f} of {total / 2**20:.1f} GiB")


report(torch_xla.device())
"""
METHOD = """\
import torch_xla.core.xla_model as xm


class Monitor:
    def __init__(self, device):
        self.device = device
        self.memory = xm.get_memory_info(self.device)

    def free(self):
        return self.memory["kb_free"] // 1024  # !XLA801


print(Monitor(xm.xla_device()).free())
"""
READY = {
    "it looks first": """\
        if "kb_total" in info:
            print(info["kb_total"])
    """,
    "it tries": """\
        try:
            print(info["kb_total"])
        except Exception:
            pass
    """,
    "it knows both": """\
        print(info["bytes_limit"] if new else info["kb_total"])
    """,
    "another dictionary": """\
        print({"kb_total": 1}["kb_total"])
    """,
    "what is there": """\
        print(info["bytes_used"])
    """,
}


@pytest.mark.parametrize("program", [DIRECT, METHOD])
def test_keys_of_the_old_runtime_are_told(program):
    assert {one for one in found(program) if one[1] == "XLA801"} == marks(program)


@pytest.mark.parametrize("case", READY)
def test_a_program_that_is_ready_gets_nothing(case):
    head = "import torch_xla.core.xla_model as xm\n\n\ndef report(device, new):\n"
    body = "    info = xm.get_memory_info(device)\n" + textwrap.indent(
        textwrap.dedent(READY[case]), "    "
    )
    assert "XLA801" not in codes(head + body)
