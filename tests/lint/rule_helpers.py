"""What the tests of rules share: a program in, codes and rows out."""

from __future__ import annotations

import re
import textwrap

from xladoctor.lint import engine
from xladoctor.lint.run import Plan, lint_files
from xladoctor.lint.sources import Source


def found(program, *, target=None, filename="train.py"):
    """(row, code) of what all rules find in a program, in source order."""
    text = textwrap.dedent(program)
    options = engine.LintOptions() if target is None else engine.LintOptions(target=target)
    result = engine.lint(Source(filename, text), options)
    assert result.failures == ()
    return [(item.locations[0].row, item.code) for item in result.findings]


def told(name, program):
    """(row, code) of what is found of the codes with which a program's name begins."""
    asked = name.partition(":")[0].split()
    return {(row, code) for row, code in found(program) if code in asked}


def found_in_files(folder, files):
    """File name to the (row, code) of what is found in files that are linted together."""
    for filename, text in files.items():
        (folder / filename).parent.mkdir(exist_ok=True, parents=True)
        (folder / filename).write_text(text)
    results = lint_files(sorted(folder.rglob("*.py")), Plan(engine.LintOptions()))
    return {
        result.filename.removeprefix(f"{folder}/"): {
            (item.locations[0].row, item.code) for item in result.result.findings
        }
        for result in results
    }


def told_in_files(folder, files, asked=None):
    """(file, row, code) of the same, of the codes that are asked for, or of all."""
    found = found_in_files(folder, files).items()
    return {
        (name, row, code)
        for name, told in found
        for row, code in told
        if asked is None or code in asked
    }


def codes(program, **options):
    """The codes alone, each once."""
    return sorted({code for _, code in found(program, **options)})


def rows(program, code, **options):
    """The rows at which one rule finds something."""
    return [row for row, other in found(program, **options) if other == code]


def marked(program, mark="# here"):
    """The rows of a program that carry a mark."""
    lines = textwrap.dedent(program).splitlines()
    return [row for row, line in enumerate(lines, 1) if mark in line]


def marks(program):
    """(row, code) of each mark in a program: ``# !XLA101``."""
    return {
        (row, code)
        for row, line in enumerate(program.splitlines(), 1)
        for code in re.findall(r"XLA\d+", line.partition("# !")[2])
    }


def marks_of(name, program):
    """(row, code) of the marks of the codes with which a program's name begins."""
    asked = name.partition(":")[0].split()
    return {(row, code) for row, code in marks(program) if code in asked}


def marks_in_files(files, asked=None):
    """(file, row, code) of each mark in files, of the codes that are asked for, or of all."""
    return {
        (name, row, code)
        for name, text in files.items()
        for row, code in marks(text)
        if asked is None or code in asked
    }
