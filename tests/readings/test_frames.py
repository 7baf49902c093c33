from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.invented import InventedRun
from xladoctor.errors import MissingExtra
from xladoctor.readings import Readings, load
from xladoctor.readings.frames import to_frames

if TYPE_CHECKING:
    from pathlib import Path


def test_frames_are_tidy_and_add_up(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    run = InventedRun()
    run.metrics = "Metric: CompileTime\n  TotalSamples: 2\n  Percentiles: 50%=01s500ms000.000us\n"
    run.steps(4, syncs=[(52, "item", 2, 0.1, 0)])
    frames = to_frames(load([run.write(tmp_path / "run")]))
    steps = frames["steps"]
    parts = [name for name in steps.columns if name.startswith("part_")]
    assert (steps[parts].sum(axis=1) - (steps["t1"] - steps["t0"])).abs().max() < 1e-9
    assert frames["syncs"].groupby("row")["count"].sum().to_dict() == {52: 16}
    assert frames["syncs"]["filename"].unique().tolist() == ["train.py"]
    assert frames["percentiles"]["value"].tolist() == [0.5]  # "01s500ms": rounded up


def test_empty_tables_have_their_columns() -> None:
    pytest.importorskip("pandas")
    frames = to_frames(Readings())
    assert "operation" in frames["fallbacks"].columns
    assert "counter" in frames["counters"].columns


def test_without_pandas_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r'pip install "xladoctor\[report\]"'):
        to_frames(Readings())
