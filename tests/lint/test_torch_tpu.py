"""TorchTPU readiness (XLA85): off by default, complete, silent where torch_xla may be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.lint import engine, sources
from xladoctor.lint.rules import _torch_tpu
from xladoctor.lint.run import chosen_codes

ROOT = Path(__file__).resolve().parents[2]
FAMILY = {code for code in catalogue.pages() if code.startswith("XLA85")}


def found(text: str) -> list[tuple[str, int]]:
    source = sources.from_bytes(text.encode(), "train.py")
    options = engine.LintOptions(codes=frozenset(FAMILY))
    return [(item.code, item.locations[0].row) for item in engine.lint(source, options).findings]


@pytest.mark.parametrize(
    ("select", "extend", "ignore", "chosen"),
    [
        (None, (), (), set()),
        (("XLA",), (), (), set()),  # ALL
        (("XLA8",), (), (), set()),
        (("XLA85",), (), (), FAMILY),
        (None, ("XLA85",), (), FAMILY),
        (("XLA", "XLA852"), (), (), {"XLA852"}),
        (("XLA85",), (), ("XLA850",), FAMILY - {"XLA850"}),
    ],
)
def test_only_its_own_beginning_chooses_the_family(select, extend, ignore, chosen):
    assert chosen_codes(select, extend, ignore) & FAMILY == chosen


def test_all_chooses_the_other_rules_that_are_off_by_default():
    assert "XLA313" in chosen_codes(("XLA",), (), ())
    assert "XLA313" not in chosen_codes(None, (), ())


def test_every_page_of_the_family_says_that_it_is_off():
    assert len(FAMILY) == 10
    for code in FAMILY:
        page = catalogue.page(code)
        assert (page.default, page.select, page.severity.value) == (False, "XLA85", "info")
        assert page.default_for == ("torch_tpu",)
        assert "nothing here was tried on a TPU" in page.text
        assert "November 2026" in page.text


def test_every_row_of_the_table_belongs_to_a_rule():
    rows = catalogue.table("torch_tpu")["use"]
    assert {row["code"] for row in rows} == FAMILY - {"XLA850", "XLA857"}
    names = [name for row in rows for name in row["names"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("torch_xla.core.xla_model.mark_step", "XLA852"),
        ("torch_xla.distributed.spmd.mark_sharding", "XLA858"),
        ("torch_xla.debug.profiler.trace", "XLA859"),
        ("torch_xla.core.xla_model.some_day", "XLA859"),
        ("torch_xla", None),
    ],
)
def test_the_nearest_row_counts(name, code):
    tie = _torch_tpu.tie_of(name)
    assert (tie.code if tie is not None and name != "torch_xla" else None) == code


def test_a_program_that_is_ready_for_the_absence_of_torch_xla_is_not_tied():
    text = """
import torch
try:
    import torch_xla.core.xla_model as xm
except ImportError:
    xm = None
device = xm.xla_device() if hasattr(torch, "xla_version") else torch.device("cpu")
"""
    assert found(text) == []


def test_names_from_imports_and_aliases():
    text = """
from torch_xla.core.xla_model import optimizer_step as step, xla_device
import torch_xla as tx

device = xla_device()
tx.sync()
later = step
"""
    assert found(text) == [
        ("XLA850", 2), ("XLA850", 3), ("XLA851", 5), ("XLA852", 6), ("XLA854", 7),
    ]  # fmt: skip


def test_the_inventory_of_a_program(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    sample = "sample_runs/kfold_images/as_found.py"
    assert main(["lint", "--isolated", sample, "--select", "XLA85", "--output-format", "json",
                 "--statistics"]) == 1  # fmt: skip
    counts = {item["code"]: item["count"] for item in json.loads(capsys.readouterr().out)}
    assert set(counts) == {"XLA850", "XLA851", "XLA853", "XLA854", "XLA855", "XLA857"}
    main(["lint", "--isolated", sample, "--select", "ALL", "--output-format", "json"])
    assert not {item["code"] for item in json.loads(capsys.readouterr().out)} & FAMILY


def test_the_list_of_rules_says_how_to_choose_them(capsys):
    assert main(["rules"]) == 0
    [line] = [row for row in capsys.readouterr().out.splitlines() if row.startswith("XLA852")]
    assert line.endswith("(off by default: --select XLA85)")
    main(["explain", "XLA852", "--output-format", "json"])
    assert json.loads(capsys.readouterr().out)[0]["select"] == "XLA85"
