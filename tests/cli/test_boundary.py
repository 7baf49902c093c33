"""Whatever goes wrong inside: one sentence, exit code 2, the details in a file; never code 1."""

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from xladoctor import visible
from xladoctor.cli import app
from xladoctor.cli.app import main

COMMANDS = app.cli.list_commands(None)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def details(err):
    [name] = re.findall(r"\S+xladoctor-error-\S+\.txt", err)
    text = Path(name).read_text(encoding="utf-8")
    Path(name).unlink()
    return text


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("error", [ZeroDivisionError("a\nb\x1b"), SystemExit(0), RecursionError()])
def test_an_internal_error_is_one_sentence_and_code_2(monkeypatch, capfd, command, error):
    def broken(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(app.cli, "invoke", broken)
    assert main([command, "--token", "abc"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"xladoctor: internal error: {type(error).__name__}")
    assert "Traceback" not in err
    assert "\x1b" not in err
    kept = details(err)
    assert "Traceback (most recent call last)" in kept
    assert f"command: xladoctor {command} --token '***'" in kept
    assert "abc" not in kept  # it may hold a secret, and is to be sent


def test_an_error_that_cannot_say_what_it_is(monkeypatch, capfd):
    class MuteError(Exception):
        def __str__(self):
            raise ValueError

    monkeypatch.setattr(app.cli, "invoke", lambda *_: (_ for _ in ()).throw(MuteError()))
    assert main(["env"]) == 2
    err = capfd.readouterr().err
    assert "internal error: MuteError: (it cannot be shown)" in err
    assert "Traceback" in details(err)


def test_details_that_cannot_be_written_are_said_to_be_missing(monkeypatch, capfd):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setattr(app.cli, "invoke", lambda *_: 1 / 0)
    assert main(["env"]) == 2
    assert "the details could not be written" in capfd.readouterr().err


def run(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "xladoctor", *words], stderr=subprocess.PIPE, check=False, **more
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["rules"], ["env"], ["explain", "XLA101"]])
def test_a_full_disk_behind_standard_output(words):
    with Path("/dev/full").open("wb") as full:
        done = run(*words, stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith(b"xladoctor: the system refused something: No space left")
    assert done.stderr.count(b"\n") == 1
    details(done.stderr.decode())


@pytest.mark.skipif(sys.platform == "win32", reason="names there are never bytes")
@pytest.mark.parametrize("output_format", ["full", "concise", "json", "github", "gitlab", "junit",
                                           "sarif"])  # fmt: skip
def test_names_that_are_not_utf_8_lose_no_finding(tmp_path, output_format):
    name = os.fsdecode(b"caf\xe9.py")
    Path(name).write_text("print 'loss'\n")
    done = run("lint", "--no-cache", "--output-format", output_format, ".", stdout=subprocess.PIPE)
    assert done.returncode == 1, done.stderr
    shown = done.stdout.decode("utf-8")  # the output itself is text
    assert "XLA001" in shown
    if output_format == "json":
        assert json.loads(shown)[0]["filename"] == name
    filed = run("lint", "--no-cache", "--output-format", output_format, "-o", "out", name)
    assert filed.returncode == 1, filed.stderr
    assert (tmp_path / "out").read_text("utf-8") == shown


def test_standard_output_in_an_encoding_without_the_characters():
    Path("café\N{SNOWMAN}.py").write_text("print 'loss'\n", encoding="utf-8")
    done = run("lint", "--no-cache", ".", stdout=subprocess.PIPE,
               env={**os.environ, "PYTHONIOENCODING": "latin-1"})  # fmt: skip
    assert done.returncode == 1
    assert b"caf\xe9\\u2603.py:1:" in done.stdout


def test_source_lines_and_diffs_show_what_they_hold(capfd):
    code = (
        "import torch_xla.core.xla_model as xm  # \x1b[31m\u202e red\n"
        "\x0c\n"
        "def train(loader, optimizer):\n"
        "\tdevice = xm.xla_device()  # \x1b[2J\u202e\n"
        "\tprint(device)  # ::error::forged\n"
    )
    Path("train.py").write_text(code, encoding="utf-8")
    assert main(["lint", "--isolated", "--no-cache", "--select", "ALL", "."]) == 1
    frames = capfd.readouterr().out
    assert "\\x1b[2J\\u202e" in frames
    assert main(["lint", "--isolated", "--no-cache", "--diff", "--unsafe-fixes", "."]) == 1
    difference = capfd.readouterr().out
    assert "\\x1b[31m\\u202e red" in difference
    for shown in (frames, difference):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert shown == visible.guarded(shown)
