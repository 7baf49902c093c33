from __future__ import annotations

import io
import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from xladoctor.diagnosis import diagnose
from xladoctor.errors import SourceError, UsageError
from xladoctor.readings import load

if TYPE_CHECKING:
    from pathlib import Path

REPORT = "Counter: MarkStep\n  Value: 61\n"


def test_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text(REPORT)
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_standard_input() -> None:
    (report,) = load(["-"], REPORT).reports
    assert report.source == "standard input"


def test_the_text_that_a_powershell_redirection_writes(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(REPORT.encode("utf-16"))
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_bytes_that_are_not_utf8_do_not_hide_the_report(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"caf\xe9\n" + REPORT.encode())
    assert load([tmp_path / "m.txt"]).reports[0].counters == {"MarkStep": 61}


def test_a_notebook_whose_outputs_hold_a_report(tmp_path: Path) -> None:
    lines = REPORT.splitlines(keepends=True)
    cells = [
        {"cell_type": "markdown", "source": ["# x"]},
        {
            "cell_type": "code",
            "source": ["Counter: no"],
            "outputs": [{"name": "stdout", "text": lines}],
        },
        {
            "cell_type": "code",
            "outputs": [{"data": {"text/plain": "'Counter: A\\n  Value: 3\\n'"}}],
        },
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (report,) = load([tmp_path / "n.ipynb"]).reports
    assert report.counters == {"MarkStep": 61, "A": 3}


def test_several_sources_are_the_cores_of_one_run(tmp_path: Path) -> None:
    for core in (0, 3):
        (tmp_path / f"m.txt.{core}").write_text(REPORT)
    reports = load([tmp_path / "m.txt.0", tmp_path / "m.txt.3"]).reports
    assert [report.core for report in reports] == [0, 3]


def test_cores_of_several_hosts_do_not_take_each_others_numbers(tmp_path: Path) -> None:
    paths = [tmp_path / host / "m.txt.0" for host in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(REPORT)
    assert [report.core for report in load(paths).reports] == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.txt", None, "there is no such file or folder"),
        ("empty.txt", b"", "this is empty"),
        ("prose.txt", b"my training is slow\n", "no torch_xla metrics report"),
        ("image.png", b"\x89PNG\0\0\0", "this is a binary file"),
        ("broken.ipynb", b"{", "not a notebook"),
        ("list.ipynb", b"[]", "not a notebook"),
    ],
)
def test_bad_sources_are_one_sentence_that_names_them(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=sentence) as failure:
        load([path])
    assert str(path) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_text_that_is_as_long_as_it_likes_is_read_in_little_memory(tmp_path: Path) -> None:
    """A report after 24 MB without a line end, as a minified file or a damaged disk has it."""
    with (tmp_path / "m.txt").open("w") as text:
        for _ in range(24):
            text.write("x" * 2**20)
        text.write("\n" + REPORT)
    tracemalloc.start()
    (report,) = load([tmp_path / "m.txt"]).reports
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.counters == {"MarkStep": 61}
    assert peak < 16 * 2**20


def test_a_long_line_is_never_cut_inside_a_value(tmp_path: Path) -> None:
    """A log in one JSON string: megabytes without a line end, and a report across the limit."""
    for shift in range(0, 40, 7):
        start = '{"log": "' + "step 5 loss 0.5\\n" * ((2**20 - 200) // 17) + "y" * shift
        line = start + "\\n" + (REPORT.replace("61", "123456") * 3).replace("\n", "\\n") + '"}'
        (tmp_path / "m.txt").write_text(line)
        reports = load([tmp_path / "m.txt"]).reports
        assert {report.counters["MarkStep"] for report in reports} == {123456}


def test_standard_input_is_read_as_a_stream() -> None:
    (report,) = load(["-"], io.StringIO(REPORT)).reports
    assert report.counters == {"MarkStep": 61}


def test_a_binary_file_that_begins_like_text(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"text\n" * 2000 + bytes(range(256)) * 4000)
    with pytest.raises(SourceError, match="no torch_xla metrics report"):
        load([tmp_path / "m.txt"])


def test_the_report_of_another_tool_is_shown_and_not_judged() -> None:
    text = "Counter: ratex::add\n  Value: 4\nMetric: RAFCompile\n  TotalSamples: 4\n"
    found = load(["-"], text)
    assert found.reports[0].counters == {"ratex::add": 4}
    assert any("may be the report of another tool" in note for note in found.notes)
    report = diagnose(found)
    assert report.findings == ()
    assert report.summary.verdict == "This report shows too little to tell."
    assert load(["-"], "Counter: xla::add\n  Value: 4\n").notes == ()


def test_a_report_in_markdown_html_and_colour() -> None:
    for text in (
        "> ```\n> Counter: MarkStep\n>   Value: 61\n> ```\n",
        "<pre><b>Counter:</b> MarkStep<br>&nbsp;&nbsp;Value:&nbsp;61</pre>\n",
        "&lt;code&gt;Counter: MarkStep\n&amp;nbsp;&amp;nbsp;Value: 61&lt;/code&gt;\n",
        "\x1b[1;32mCounter:\x1b[0m MarkStep\n  \x1b[1mValue:\x1b[0m 61\n",
        "\x1b]8;;http://x\x07Counter: MarkStep\x1b]8;;\x07\n  Value: 61\n",
        "* Counter: MarkStep\n*   Value: 61\n",
        "INFO:root:Counter: MarkStep\nINFO:root:  Value: 61\n",
        "12:Counter: MarkStep\n13:  Value: 61\n",
        "| Counter: MarkStep |\n|   Value: 61 |\n",
    ):
        (report,) = load(["-"], text).reports
        assert report.counters == {"MarkStep": 61}, text


def test_a_notebook_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    with path.open("wb") as notebook:
        notebook.write(b'{"cells": [' + b" " * 8192)
        notebook.truncate(256 * 2**20 + 1)  # a hole: it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(SourceError, match="larger than 256 MB: clear its images") as failure:
        load([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(failure.value)
    assert peak < 2**20


def test_no_source_at_all() -> None:
    with pytest.raises(UsageError):
        load([])
