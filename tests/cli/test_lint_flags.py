"""What each flag of ``lint`` does, with the real rules on a small project."""

from __future__ import annotations

import io
import json
import sys

import pytest

from xladoctor import catalogue
from xladoctor.cli.app import main
from xladoctor.lint import engine
from xladoctor.lint.engine import LintOptions
from xladoctor.lint.sources import Source

TRAIN = """\
import torch
import torch_xla
import torch_xla.core.xla_model as xm

device = xm.xla_device()
for step in range(10):
    loss = torch.ones(1, device=device)
    loss.backward()
    torch_xla.sync()
    print(loss.item())
"""


@pytest.fixture
def lint(tmp_path, monkeypatch, capsys):
    """Run the command in a folder with two files; code, findings as (file, code), the streams."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "train.py").write_text(TRAIN)

    def call(*arguments):
        code = main(["lint", "--no-cache", "--output-format", "json", *arguments])
        out, err = capsys.readouterr()
        try:
            found = {(item["filename"], item["code"]) for item in json.loads(out)}
        except ValueError:
            found = None
        return code, found, out, err

    return call


BOTH = {("old/train.py", "XLA101"), ("old/train.py", "XLA802"),
        ("train.py", "XLA101"), ("train.py", "XLA802")}  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ([], BOTH),
        (["--select", "XLA8"], {("old/train.py", "XLA802"), ("train.py", "XLA802")}),
        (["--select", "XLA101,XLA802"], BOTH),
        (["--select", "XLA101", "--select", "XLA802"], BOTH),  # they add up
        (["--ignore", "XLA1,XLA802"], set()),
        (["--ignore", "XLA1", "--ignore", "XLA802"], set()),
        (["--exclude", "old", "--exclude", "train.py"], set()),
        (["--ignore", "XLA", "--extend-select", "XLA101"],
         {("old/train.py", "XLA101"), ("train.py", "XLA101")}),
        (["--per-file-ignores", "old/*:XLA1"], BOTH - {("old/train.py", "XLA101")}),
        (["--per-file-ignores", "old/*:XLA1", "--per-file-ignores", "train.py:XLA8"],
         {("train.py", "XLA101")}),  # a name alone is the name in any folder
        (["--exclude", "old"], {("train.py", "XLA101"), ("train.py", "XLA802")}),
        (["--extend-exclude", "train.py"], set()),
        (["old/train.py", "--exclude", "old"],
         {("old/train.py", "XLA101"), ("old/train.py", "XLA802")}),
        (["old/train.py", "--exclude", "old", "--force-exclude"], set()),
        (["--target-torch-xla", "2.5"], {("old/train.py", "XLA101"), ("train.py", "XLA101")}),
        (["-j", "2"], BOTH),
    ],
)  # fmt: skip
def test_what_is_reported(lint, flags, left):
    code, found, _, err = lint(*flags)
    assert (found, err if "no Python" not in err else "") == (left, "")
    assert code == (1 if left else 0)


def test_settings_and_the_flags_that_set_them_aside(lint, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.xladoctor.lint]\nselect = ["XLA8"]\n')
    (tmp_path / "other.toml").write_text('select = ["XLA1"]\n')
    assert {code for _, code in lint()[1]} == {"XLA802"}
    assert lint("--isolated")[1] == BOTH
    assert {code for _, code in lint("--config", "other.toml")[1]} == {"XLA101"}


def test_fixes_diff_and_exit_codes(lint, tmp_path):
    path = tmp_path / "train.py"
    code, _, out, err = lint("train.py", "--diff")
    assert code == 1
    assert "+device = torch_xla.device()" in out
    assert "Would fix" in err
    assert path.read_text() == TRAIN
    code, found, _, _ = lint("train.py", "--fix")
    assert (code, found) == (1, {("train.py", "XLA101")})
    assert "device = torch_xla.device()" in path.read_text()
    path.write_text(TRAIN)
    assert lint("train.py", "--fix", "--exit-zero")[0] == 0
    path.write_text(TRAIN.replace("    print(loss.item())\n", ""))
    assert lint("train.py", "--fix")[0] == 0
    path.write_text(TRAIN.replace("    print(loss.item())\n", ""))
    assert lint("train.py", "--fix", "--exit-non-zero-on-fix")[0] == 1


def test_what_is_shown_and_where(lint, tmp_path, capsys):
    assert lint("--show-files")[2] == "old/train.py\ntrain.py\n"
    assert "target_torch_xla".replace("_", "-") in lint("--show-settings")[2]
    main(["lint", "--no-cache", "--output-format", "json", "--statistics"])
    counts = json.loads(capsys.readouterr().out)
    assert {row["code"]: row["count"] for row in counts} == {"XLA101": 2, "XLA802": 2}
    assert lint("--output-file", "found.json")[2] == ""
    assert len(json.loads((tmp_path / "found.json").read_text())) == 4


def test_noqa_and_baseline(lint, tmp_path):
    lint("train.py", "--write-baseline", "known.json")
    assert lint("train.py", "--baseline", "known.json")[:2] == (0, set())
    lint("train.py", "--add-noqa")
    assert (tmp_path / "train.py").read_text().count("# noqa: XLA") == 2
    assert lint("train.py")[:2] == (0, set())


@pytest.mark.parametrize(
    ("flags", "code", "names"),
    [
        ([], 1, {"-"}),
        (["--stdin-filename", "pkg/x.py"], 1, {"pkg/x.py"}),
        (["--stdin-filename", "old/x.py", "--exclude", "old"], 1, {"old/x.py"}),
        (["--stdin-filename", "old/x.py", "--exclude", "old", "--force-exclude"], 0, set()),
    ],
)
def test_standard_input(lint, monkeypatch, flags, code, names):
    class Input:
        buffer = io.BytesIO(TRAIN.encode())

    monkeypatch.setattr(sys, "stdin", Input)
    done, found, _, _ = lint("-", *flags)
    assert (done, {name for name, _ in found}) == (code, names)


def test_standard_input_cannot_be_watched(lint):
    code, _, _, err = lint("-", "--watch")
    assert code == 2
    assert "cannot watch standard input" in err


#: What each module has had: another name is told for every target.
HAD = {module["name"]: module["names"] for module in catalogue.table("names")["module"]}
VERSIONS = [(1, 5), (1, 13), (2, 0), (2, 1), (2, 3), (2, 5), (2, 6), (2, 7), (2, 8), (2, 9)]


def numbers(text):
    return tuple(int(part) for part in text.split("."))


@pytest.mark.parametrize("row", catalogue.table("api")["name"], ids=lambda row: row["old"])
def test_the_target_version_decides_what_is_old(row):
    """Before it was deprecated: silent; deprecated with a replacement: XLA802; removed: XLA801.

    What no release has had is told for every target.
    """
    module, _, name = row["old"].rpartition(".")
    if row["kind"] == "module":
        names = row.get("names") or HAD.get(row["old"], ["thing"])
        text = f"import torch_xla\nimport {row['old']} as old\nold.{names[0]}()\n"
    else:
        text = f"import torch_xla\nimport {module} as old\nold.{name}()\n"
    told = set()
    for target in VERSIONS:
        options = LintOptions(codes=frozenset({"XLA801", "XLA802"}), target=target)
        found = {item.code for item in engine.lint(Source("x.py", text), options).findings}
        removed = row.get("never", False) or (
            "removed_in" in row and target >= numbers(row["removed_in"])
        )
        replaced = "since" not in row or target >= numbers(row["since"])
        deprecated = "deprecated_in" in row and target >= numbers(row["deprecated_in"])
        wanted = {"XLA801"} if removed else {"XLA802"} if deprecated and replaced else set()
        told |= found
        # A name that was removed may be asked of a module that is in the table as well.
        assert wanted <= found, (target, found)
        if not (removed or deprecated):
            assert found == set(), target
    assert told
