"""Measuring operations: the list of idioms, the table, and a real measurement of a few."""

from __future__ import annotations

import ast
import json
import sys

import pytest

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.errors import UsageError
from xladoctor.probe import table
from xladoctor.probe.idioms import idioms

#: What a few idioms do, whatever the machine: see the page of XLA101, XLA202 and XLA501.
FEW = ["x.sum().item()", "s.item()", "x[b]", "torch.mul(x, y)", "torch.histc(x)", "train()"]


def test_there_are_more_than_five_hundred_idioms_that_are_code():
    found = idioms()
    assert len(found) > 500
    assert len({idiom.name for idiom in found}) == len(found)
    for idiom in found:
        ast.parse(idiom.code)
        ast.parse(idiom.setup)


def test_the_table_holds_what_the_list_asks_for():
    measured = [row["name"] for row in catalogue.table("ops")["measured"]]
    assert measured == [idiom.name for idiom in idioms()]


def test_a_table_is_written_and_read_back(tmp_path):
    rows = [
        {"name": 'f"{x}"', "group": "host-read", "sync": True, "cut": True, "reads": 1.0},
        {"name": "é \\ \t", "group": "op", "error": "TypeError: 'no'"},
    ]
    path = tmp_path / "ops.toml"
    path.write_text(
        table.render({"torch": "1", "torch_xla": "2", "device": "CPU"}, rows), encoding="utf-8"
    )
    assert table.read(path)["measured"] == rows


def test_what_was_written_by_hand_stays():
    text = (
        '# head\n\ntorch = "1"\n\nmeasured = [\n  { name = "a" },\n]\n\n[[call]]\nfunctions = []\n'
    )
    changed = table.update(text, {"torch": "2"}, [{"name": "b", "group": "op"}])
    assert changed.startswith('# head\n\ntorch = "2"\n')
    assert changed.endswith("\n]\n\n[[call]]\nfunctions = []\n")
    assert '"a"' not in changed


def test_only_what_changed_is_a_difference():
    before = [{"name": "a", "sync": True}, {"name": "b", "sync": True}]
    after = [{"name": "a", "sync": True}, {"name": "b", "sync": False}, {"name": "c", "sync": True}]
    assert table.differences(before, after) == [("b", [("sync", True, False)])]


def _measured_elsewhere(monkeypatch, tmp_path, rows):
    """A table of torch_xla 2.7 on a TPU, and a machine that measures 2.9 on the CPU (invented)."""
    versions = {"torch": "2.7.0", "torch_xla": "2.7.0", "device": "TPU"}
    path = tmp_path / "other.toml"
    path.write_text(table.render(versions, rows), encoding="utf-8")
    now = [{"name": "s.item()", "group": "host-read", "sync": True, "cut": False, "fallback": []}]
    measured = ({"torch": "2.9.0", "torch_xla": "2.9.0"}, now)
    monkeypatch.setattr("xladoctor.cli.probe._measured", lambda *_: measured)
    return path


def test_a_table_of_another_version_and_device_is_compared_and_both_are_named(
    monkeypatch, tmp_path, capsys
):
    rows = [
        {"name": "s.item()", "group": "host-read", "sync": True, "cut": True, "fallback": []},
        {"name": "gone()", "group": "op", "error": "AttributeError"},
    ]
    path = _measured_elsewhere(monkeypatch, tmp_path, rows)
    assert main(["probe", "--only", "s.item()", "--diff", "--against", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "s.item()\n    cut: True -> False\n"
    assert "torch_xla 2.7.0 on TPU and 2.9.0 on CPU: 1 of 1 idioms differ." in err
    flags = ["--diff", "--against", str(path), "--output-format", "json"]
    assert main(["probe", "--only", "s.item()", *flags]) == 1
    [row] = json.loads(capsys.readouterr().out)
    assert row["changes"] == [{"key": "cut", "before": True, "after": False}]


def test_idioms_that_the_other_table_lacks_are_counted_and_are_no_difference(
    monkeypatch, tmp_path, capsys
):
    path = _measured_elsewhere(monkeypatch, tmp_path, [])
    assert main(["probe", "--only", "s.item()", "--diff", "--against", str(path)]) == 0
    assert "0 of 0 idioms differ, 1 are not in the table." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('device = "CPU"\nmeasured = []\n', "does not say on which torch_xla"),
        ('torch_xla = "2.7"\nmeasured = []\n', "does not say on which device"),
        (
            'torch_xla = "2.7"\ndevice = "CPU"\nmeasured = [{ sync = true }]\n',
            "a row has no 'name'",
        ),
    ],
)
def test_a_table_that_lacks_something_is_refused_before_anything_is_measured(
    tmp_path, capsys, text, said
):
    path = tmp_path / "other.toml"
    path.write_text(text)
    assert main(["probe", "--diff", "--against", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["not toml [", "torch = 1"])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "ops.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a table"):
        table.read(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "no such idiom"], "no idiom contains this"),
        (["--against", "x.toml"], "give --diff too"),
        (["--diff", "--against", "missing.toml"], "No such file"),
        (["--only", "x * f", "--python", "/no/such/python"], "--python /no/such/python"),
    ],
)
def test_bad_flags_are_one_sentence(capsys, arguments, said):
    assert main(["probe", *arguments]) == 2
    assert said in capsys.readouterr().err


def _python(folder, text):
    """A Python that is none (invented): what it does is a line of shell."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'exec {sys.executable} -S -E -I "$@"', "has no torch_xla to measure: pip install"),
        ("echo bad news >&2; exit 3", "the measuring process ended with code 3: bad news"),
        ("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; exec false", "ended with code 1"),
        ("echo what; echo 1", "it measured nothing: name a Python that has torch_xla"),
    ],
    ids=["no torch_xla", "fails", "says much", "no Python"],
)
def test_a_python_without_torch_xla_is_one_sentence_though_it_reads_no_idiom(
    tmp_path, capsys, text, said
):
    """All idioms together are more than a pipe holds."""
    assert main(["probe", "--python", _python(tmp_path, text)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "internal error" not in err
    assert len([row for row in err.splitlines() if row.startswith("xladoctor: ")]) == 1


def test_the_list_is_shown(capsys):
    assert main(["probe", "--list", "--only", "host-read"]) == 0
    assert "host-read      x.sum().item()" in capsys.readouterr().out


@pytest.mark.xla
def test_the_table_is_true_of_the_installed_torch_xla(capsys, monkeypatch, tmp_path):
    pytest.importorskip("torch_xla")
    wanted = [idiom for idiom in idioms() if idiom.name in FEW]
    monkeypatch.setattr("xladoctor.probe.idioms.idioms", lambda: wanted)
    output = tmp_path / "new.toml"
    code = main(["probe", "--diff", "--python", sys.executable, "-o", str(output)])
    said = capsys.readouterr()
    assert code == 0, said.out
    assert f"0 of {len(FEW)} idioms differ" in said.err
    assert [row["name"] for row in table.read(output)["measured"]] == [i.name for i in wanted]
    # The same, told from a table that says otherwise.
    base = json.loads(json.dumps(table.read(output)))
    base["measured"][0]["sync"] = False
    found = table.differences(base["measured"], table.read(output)["measured"])
    assert [name for name, _ in found] == [wanted[0].name]
