"""The fact tables are consistent, and true of the installed torch_xla."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap

import pytest

from xladoctor import catalogue


def _version(text):
    return tuple(int(part) for part in text.split("."))


def test_api_rows_are_consistent():
    rows = catalogue.table("api")["name"]
    assert len({row["old"] for row in rows}) == len(rows)
    for row in rows:
        assert row["arguments"] in {"same", "drop", "first", "none"}, row
        assert "removed_in" in row or "deprecated_in" in row, row
        assert "new" in row or row.get("advice"), row
        assert ("new" in row) == ("since" in row), row
        if "removed_in" in row and "deprecated_in" in row:
            assert _version(row["deprecated_in"]) < _version(row["removed_in"]), row
        if row["arguments"] != "none":
            assert "new" in row, row


def test_fallbacks_are_measured():
    table = catalogue.table("ops")
    measured = {row["name"]: row for row in table["measured"]}
    assert len(measured) == len(table["measured"])
    for call in table["call"]:
        assert {"functions", "methods", "modules"} & set(call), call
        for name in call["measured"]:
            assert measured[name]["fallback"], name


def test_environment_rows_say_what_to_do():
    for row in catalogue.table("environment")["variable"]:
        assert row["status"] in {"dead", "deprecated", "gone"}, row
        assert ("dead_in" in row) == (row["status"] == "dead"), row
        assert row["effect"]


def _has(dotted):
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.xla
@pytest.mark.filterwarnings("ignore")
def test_api_table_is_true_of_the_installed_torch_xla(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    torch_xla = pytest.importorskip("torch_xla")
    installed = _version(torch_xla.__version__.partition("+")[0])[:2]
    wrong = []
    for row in catalogue.table("api")["name"]:
        removed = "removed_in" in row and installed >= _version(row["removed_in"])
        if _has(row["old"]) == removed:
            wrong.append((row["old"], "should be gone" if removed else "should be there"))
        wrong += (
            [
                (name, "replacement is missing")
                for name in [row.get("new"), *(f"{row['new']}.{n}" for n in row.get("names", ()))]
                if name is not None and installed >= _version(row["since"]) and not _has(name)
            ]
            if "new" in row
            else []
        )
    assert wrong == []


@pytest.mark.xla
@pytest.mark.parametrize(("variable", "acts"), [("XLA_USE_BF16", True), ("XLA_USE_FP16", False)])
def test_sixteen_bit_switches_do_what_the_table_says(variable, acts):
    pytest.importorskip("torch_xla")
    program = """
        import torch, torch_xla
        tensor = torch.tensor([1.001], device=torch_xla.device())
        print(tensor.dtype, tensor.item() == 1.0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PJRT_DEVICE": "CPU", variable: "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"torch.float32 {acts}"
    row = next(r for r in catalogue.table("environment")["variable"] if r["name"] == variable)
    assert (row["status"] == "deprecated") is acts
