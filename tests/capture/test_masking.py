"""Secrets in command lines are nowhere kept and nowhere shown, and it is said."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xladoctor.capture import masking
from xladoctor.cli.app import main

SECRET = "s3cr3tvalue"


@pytest.mark.parametrize(
    "line",
    [
        "train.py --hf-token {} --epochs 3",
        "train.py --api_key={}",
        "train.py --apiKey {}",
        "train.py wandb.api_key={}",
        "env WANDB_API_KEY={} python t.py",
        "t.py https://me:{}@host/x",
    ],
)
def test_values_behind_such_names(line):
    words = masking.masked(shlex.split(line.format(SECRET)))
    assert words == shlex.split(line.format("***"))


def test_a_word_with_blanks_is_masked_as_a_whole():
    assert masking.masked(["--password=" + SECRET + " " + SECRET]) == ["--password=***"]


@pytest.mark.parametrize(
    "word",
    [
        f"python t.py --token {SECRET} --epochs 3",
        f"export HF_TOKEN={SECRET}; python t.py",
        f"import w; w.login(key='{SECRET}')",
        f'{{"password": "{SECRET}", "lr": 3}}',
        "hf_" + SECRET * 3,
    ],
)
def test_secrets_inside_a_word(word):
    assert SECRET not in masking.masked(["bash", "-c", word])[2]
    assert masking.names(["bash", "-c", word]) == ["an argument"]


def test_other_words_stay_as_they_are():
    words = shlex.split(
        "t.py --max-tokens 512 --tokenizer gpt2 --pad-token-id 0 --key-dim=64 --use-token --lr 3 -x"
    )
    assert masking.masked(words) == words
    assert masking.names(words) == []


@given(st.lists(st.text()))
def test_any_words(words):
    found = masking.masked(words)
    assert len(found) == len(words)
    assert masking.masked(found) == found


def test_no_file_of_a_run_holds_it_and_it_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-c", "print(1)", "--hf-token", SECRET]
    assert main(["profile", "-o", "run", "--", *words]) == 0
    out, err = capfd.readouterr()
    assert "what looks like a secret (--hf-token)" in err
    assert "shown as ***" in " ".join(out.split())
    assert SECRET not in out + err
    for file in Path("run").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()
    assert json.loads(Path("run/manifest.json").read_text())["masked"] == ["--hf-token"]
    for output_format in ("full", "concise", "json", "markdown", "html", "sarif", "github"):
        assert main(["report", "run", "--output-format", output_format]) == 0
        assert SECRET not in capfd.readouterr().out
