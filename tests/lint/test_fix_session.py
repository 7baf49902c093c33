"""The real fixes on all there is to fix: every page, every sample, and many pages in one file."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from xladoctor import catalogue
from xladoctor.lint import engine, fixes, sources

SAMPLES = Path(__file__).resolve().parents[2] / "sample_runs"
#: Pages in one file. All blocks with a fix are in one of these files, in an order of no meaning.
MANY = 4


#: Before the name of a program that is to be moved to another device.
MOVED = "to torch_tpu: "


def blocks(device=""):
    """The faulty code of the pages whose rule has a fix (those that are on for a device alone)."""
    return [
        (page.code, example.source)
        for page in catalogue.pages().values()
        for example in page.examples
        if example.kind == "bad"
        and page.fix != "none"
        and page.default_for == ((device,) if device else ())
    ]


def mixed():
    """Names and texts of files that hold the code of several pages."""
    drawn = blocks()
    random.Random(20).shuffle(drawn)  # always the same
    groups = [drawn[at : at + MANY] for at in range(0, len(drawn), MANY)]
    return {
        "-".join(code for code, _ in group): "\n".join(text for _, text in group)
        for group in groups
    }


def programs():
    """All texts, by a name for each."""
    single = {f"{code}-{at}": text for at, (code, text) in enumerate(blocks())}
    moved = {f"{MOVED}{code}-{at}": text for at, (code, text) in enumerate(blocks("torch_tpu"))}
    found = {
        path.relative_to(SAMPLES).as_posix(): path.read_text()
        for path in sorted(SAMPLES.glob("*/as_found*.py"))
    }
    assert len(found) >= 4
    moved |= {f"{MOVED}{name}": text for name, text in found.items()}
    return single | mixed() | found | moved


PROGRAMS = programs()


def lint(source, device=""):
    result = engine.lint(source, engine.LintOptions(device=device))
    assert result.failures == ()
    return result


def linter(name):
    return lambda source: lint(source, "torch_tpu" if name.startswith(MOVED) else "")


@pytest.fixture(scope="module")
def fixed():
    """Each program after all its fixes."""
    return {
        name: fixes.fix(text.encode(), "x.py", linter(name), unsafe=True)
        for name, text in PROGRAMS.items()
    }


def test_every_fix_is_made_somewhere_and_where_pages_meet(fixed):
    with_fix = {page.code for page in catalogue.pages().values() if page.fix != "none"}
    assert {item.code for done in fixed.values() for item in done.made} == with_fix
    drawn = {code for code, _ in blocks()}
    assert len({item.code for name in mixed() for item in fixed[name].made}) > 0.8 * len(drawn)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fixes_end_parse_and_leave_nothing_to_fix(fixed, name):
    done = fixed[name]
    assert done.stable
    assert sources.syntax_error(done.data.decode()) is None
    assert [x.code for x in done.result.findings if fixes.is_applicable(x, unsafe=True)] == []
    assert fixes.fix(done.data, "x.py", linter(name), unsafe=True).data == done.data


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_that_no_edit_names_stay_as_they_are(name, newline):
    text = PROGRAMS[name].replace("\n", newline)
    found = linter(name)(sources.from_bytes(text.encode(), "x.py")).findings
    chosen = [item for item in found if fixes.is_applicable(item, unsafe=True)]
    _, edits = fixes.select(chosen)
    after = iter(fixes.apply(text, edits).splitlines(keepends=True))
    touched = {row for edit in edits for row in range(edit.start.row, edit.end.row + 1)}
    lost = [
        line
        for row, line in enumerate(text.splitlines(keepends=True), 1)
        if row not in touched and line not in after  # "in" goes on where the last line was
    ]
    assert lost == []


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs the dev extra")
def test_fixed_programs_name_nothing_that_they_do_not_import(fixed, tmp_path):
    for at, (name, done) in enumerate(fixed.items()):
        (tmp_path / f"before_{at}.py").write_text(PROGRAMS[name])
        (tmp_path / f"after_{at}.py").write_bytes(done.data)
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821",
         "--output-format", "json", str(tmp_path)],
        capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    unknown = {"before": set(), "after": set()}
    for item in json.loads(ran.stdout):
        when, _, at = Path(item["filename"]).stem.partition("_")
        unknown[when].add((list(fixed)[int(at)], item["message"]))
    assert unknown["before"]  # the blocks are cut out of programs: they lack names themselves
    assert unknown["after"] - unknown["before"] == set()
