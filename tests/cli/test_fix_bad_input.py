"""``lint --fix`` on files that are odd on the disk: correct, or refused in one sentence."""

import errno
import json
import os
import stat
import tempfile
import types

import pytest

from xladoctor.cli.app import main
from xladoctor.lint import fixes

CODE = """\
import torch_xla
import torch_xla.core.xla_model as xm

if True:
    device = xm.xla_device()
print(device)
"""
FIXED = CODE.replace("xm.xla_device", "torch_xla.device")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fix(capsys):
    def call(*arguments):
        code = main(["lint", "--isolated", "--fix", *arguments])
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("\ufeff", "utf-8"),
        ("# -*- coding: windows-1252 -*-\n# \u20ac \u00fc\n", "cp1252"),
        ("# coding: latin-1\n# \u00fc\n", "latin-1"),
        ("# \u6e2c\u8a66 \U0001f525\n", "utf-8"),
    ],
    ids=["plain", "bom", "windows-1252", "latin-1", "wide"],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["    ", "\t"])
def test_every_byte_outside_the_fix_stays(fix, folder, head, encoding, newline, indent):
    def on_disk(text):
        text = (head + text).replace("    ", indent).replace("\n", newline)
        return text.encode(encoding)

    (folder / "a.py").write_bytes(on_disk(CODE))
    assert fix("a.py") == (0, "Fixed 1 finding, none left.\n")
    assert (folder / "a.py").read_bytes() == on_disk(FIXED)


def test_old_mac_newlines_stay(fix, folder):
    (folder / "a.py").write_bytes(CODE.replace("\n", "\r").encode())
    assert fix("a.py")[0] == 0
    assert (folder / "a.py").read_bytes() == FIXED.replace("\n", "\r").encode()


def test_mixed_newlines_stay(fix, folder):
    mixed = CODE.encode().replace(b"xm\n\n", b"xm\r\n\r\n")
    (folder / "a.py").write_bytes(mixed)
    assert fix("a.py")[0] == 0
    assert (folder / "a.py").read_bytes() == mixed.replace(b"xm.xla_device", b"torch_xla.device")


def test_the_last_line_without_a_newline(fix, folder):
    text = CODE.removesuffix("print(device)\n").rstrip("\n")
    (folder / "a.py").write_text(text)
    assert fix("a.py")[0] == 0
    assert (folder / "a.py").read_text() == text.replace("xm.xla_device", "torch_xla.device")


def test_an_encoding_that_is_wrong_is_refused(fix, folder):
    data = b"# coding: ascii\nx = '\xfc'\n" + CODE.encode()
    (folder / "a.py").write_bytes(data)
    assert fix("a.py")[0] == 1
    assert (folder / "a.py").read_bytes() == data


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(fix, folder):
    (folder / "deep").mkdir()
    target = folder / "deep" / "real.py"
    target.write_text(CODE)
    target.chmod(0o750)
    (folder / "link.py").symlink_to(target)
    assert fix("link.py") == (0, "Fixed 1 finding, none left.\n")
    assert (folder / "link.py").is_symlink()
    assert target.read_text() == FIXED
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert list((folder / "deep").iterdir()) == [target]


def test_a_file_under_two_names_is_fixed_once(fix, folder):
    (folder / "a.py").write_text(CODE)
    (folder / "b.py").symlink_to("a.py")
    (folder / "circle.py").symlink_to("circle.py")
    (folder / "nowhere.py").symlink_to("missing.py")
    assert fix(".")[0] == 0
    assert (folder / "a.py").read_text() == FIXED


def test_a_folder_that_cannot_be_written_is_one_sentence(fix, folder, monkeypatch):
    # What the system answers to who is not root: tests often run as root, who may write anywhere.
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    (folder / "a.py").write_text(CODE)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    code, said = fix("a.py")
    assert code == 2
    assert said == "xladoctor: a.py: the fixes cannot be written: Permission denied\n"
    assert (folder / "a.py").read_text() == CODE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_sentence(fix, folder):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "a.py").write_text(CODE)
    inner.chmod(0o555)
    try:
        code, said = fix("inner/a.py")
    finally:
        inner.chmod(0o755)
    assert code == 2
    assert "the fixes cannot be written" in said
    assert (inner / "a.py").read_text() == CODE


def test_a_disk_that_fills_up_leaves_the_file_and_no_rest(fix, folder, monkeypatch):
    class Full:
        def __init__(self, descriptor, _):
            self.descriptor = descriptor

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.descriptor)

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    (folder / "a.py").write_text(CODE)
    monkeypatch.setattr(fixes, "os", types.SimpleNamespace(**{**vars(os), "fdopen": Full}))
    code, said = fix("--no-cache", "a.py")
    assert code == 2
    assert said == "xladoctor: a.py: the fixes cannot be written: No space left on device\n"
    left = [path for path in folder.iterdir() if path.name != ".xladoctor"]
    assert left == [folder / "a.py"]
    assert (folder / "a.py").read_text() == CODE


def test_a_notebook_with_50_megabytes_of_outputs(fix, folder):
    cells = [
        {"cell_type": "code", "source": CODE, "outputs": [{"data": "A" * 50_000_000}]},
        {"cell_type": "code", "source": "%time\nxm.mark_step()", "outputs": []},
    ]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4})
    (folder / "a.ipynb").write_text(text)
    assert fix("a.ipynb")[0] == 0
    after = text.replace("xm.xla_device", "torch_xla.device")
    assert (folder / "a.ipynb").read_text() == after.replace("xm.mark_step", "torch_xla.sync")
