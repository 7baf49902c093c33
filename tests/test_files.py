"""The folders of a run's processes."""

from __future__ import annotations

from xladoctor import files


def test_processes_stand_in_the_order_in_which_they_started(tmp_path):
    names = ["p9998-171", "p9999-172", "p10000-173", "p12-1001"]
    for name in names:
        (tmp_path / name).mkdir()
    assert [one.name for one in sorted(tmp_path.iterdir(), key=files.by_start)] == names
