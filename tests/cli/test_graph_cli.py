"""``xladoctor graph`` where there is nothing to show; what it shows: test_graph_command_xla."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.invented import InventedRun
from tests.store.pods import host_run, write_host
from xladoctor.cli.app import main

RECORDED = Path(__file__).resolve().parents[2] / "sample_runs/ct_slices/recorded/runnable"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(RECORDED), "1"], "none of the 27 graphs of this run was kept"),
        ([str(RECORDED), "--diff", "1"], "say which graph"),
        ([str(RECORDED / "manifest.json"), "1"], "this is no run directory"),
        (["no-such-folder"], "this is no run directory"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_graphs_that_were_not_kept_are_listed_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["graph", str(RECORDED)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("(not kept)") for line in lines) == len(lines) / 2


def test_an_invented_run_without_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = InventedRun()
    run.steps(2)
    run.end()
    for arguments in ([], ["1"]):
        path = str(tmp_path / f"run{len(arguments)}")
        run.write(Path(path))
        assert main(["graph", path, *arguments]) == 2
        assert "this run has no graphs" in capsys.readouterr().err


def test_a_pod_is_named_by_its_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(tmp_path / "pod")
    assert main(["graph", f"file://{address}"]) == 2
    assert "no host has left anything here" in capsys.readouterr().err
    for host in range(2):
        write_host(address, tmp_path / f"host-{host}", host_run(), host)
    assert main(["graph", f"file://{address}"]) == 0
    assert "(not kept)" in capsys.readouterr().out
    assert main(["graph", f"file://{address}", "1"]) == 2
    assert f"{address}: none of the 1 graphs of this run was kept" in capsys.readouterr().err
