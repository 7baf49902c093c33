"""PT_XLA_DEBUG under xladoctor: what torch_xla itself would have written, and hashes besides."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import programs
import pytest
from test_profile_xla import Run, profile

from xladoctor.capture.agent.debug_records import Wish

BLOCK = re.compile(r"^(\w+) Analysis: =+\n(?:\1 Analysis: .*\n)+", re.MULTILINE)


def analyses(text: str) -> list[str]:
    """Compilations and executions, whatever the program prints between them."""
    kinds = ("Compilation", "Execution")
    return [found[0] for found in BLOCK.finditer(text) if found[1] in kinds]


def told(block: str) -> list[str]:
    """What ended a graph, without what depends on the number of cores and what started them."""
    numbers = re.compile("Graph Hash|Number of Graph")
    lines = [line for line in block.splitlines() if not numbers.search(line)]
    end = next((at + 1 for at, line in enumerate(lines) if "train (" in line), len(lines))
    return lines[:end]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The output of torch_xla without xladoctor, on its one CPU device: (folder, text)."""
    pytest.importorskip("torch_xla")
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(programs.CORES)
    done = subprocess.run(
        [sys.executable, "train.py"],
        env={**os.environ, "PJRT_DEVICE": "CPU", "PT_XLA_DEBUG_LEVEL": "2"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(analyses(done.stderr)) > 10
    return folder, done.stderr


@pytest.mark.xla
def test_one_device_is_told_to_the_letter(plain):
    folder, text = plain
    done = profile(
        folder, "-o", "one", "--output-file", "r.txt", "--", sys.executable, "train.py",
        PJRT_DEVICE="CPU", PT_XLA_DEBUG_LEVEL="2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert analyses(done.stderr) == analyses(text)
    assert done.stderr.count("Post Compilation Analysis: =") == text.count(
        "Post Compilation Analysis: ="
    )
    # And the hashes, which the output is read for here, are known nevertheless.
    compiled = Run(done, folder / "one").of("compilation")
    assert compiled
    assert all(row["graph"] in text for row in compiled)


@pytest.mark.xla
def test_of_simulated_cores_the_first_one_is_told_into_the_users_file(plain):
    folder, text = plain
    done = profile(
        folder, "--simulate-cores", "2", "-o", "two", "--output-file", "r.txt", "--",
        sys.executable, "train.py",
        PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=str(folder / "own"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not analyses(done.stderr)
    own = (folder / "own").read_text()
    assert [told(one) for one in analyses(own)] == [told(one) for one in analyses(text)]
    assert "/capture/" not in "".join(line for one in analyses(own) for line in told(one))


INVENTED = """
{kind} Analysis: ================
{kind} Analysis: {what} Cause
{kind} Analysis:   user torch_xla.sync
{kind} Analysis: Graph Info: 
{kind} Analysis:   Graph Hash: 0a1b
{kind} Analysis: Python Frame Triggered Execution: 
{kind} Analysis:   sync (/site/torch_xla/torch_xla.py:87)
{kind} Analysis:   train (/home/train.py:7)
{kind} Analysis:   <module> (/home/train.py:30)
{kind} Analysis: ----------------
{kind} Analysis: ================
"""  # noqa: W291


def test_what_was_not_asked_for_is_left_out():
    compiled = INVENTED.format(kind="Compilation", what="Compilation")
    executed = INVENTED.format(kind="Execution", what="Execution")
    unexpected = INVENTED.format(kind="Unexpected Execution", what="Execution")
    both = compiled + "\nComputation hash: 1\n" + executed + unexpected
    assert Wish(level=2).told(both) == both
    assert Wish(level=1).told(both) == compiled + "\nComputation hash: 1\n" + unexpected
    assert Wish().told(both) == unexpected
    short = Wish(level=2, frames=1).told(compiled)
    assert "sync (" in short
    assert "train.py" not in short
    assert "Compilation Analysis:   ..........\n" in short
