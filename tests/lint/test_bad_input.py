"""Input that a linter meets and nobody planned for: no crash, no guess, bounded time."""

from __future__ import annotations

import json

import pytest
from rule_helpers import found
from work_helpers import calls_of

from xladoctor.lint import engine, sources
from xladoctor.lint.sources import Source

XLA = "import torch\nimport torch_xla\nimport torch_xla.core.xla_model as xm\n"


def lint(text):
    result = engine.lint(Source("train.py", text))
    assert result.failures == ()
    return [(item.locations[0].row, item.code) for item in result.findings]


def test_python_2_is_one_finding():
    [(row, code)] = lint(XLA + "print 'loss', loss\nexec 'x = 1'\n")
    assert (row, code) == (4, "XLA001")


@pytest.mark.parametrize(
    "text",
    [
        "".join(" " * depth + "if x:\n" for depth in range(1000)) + " " * 1000 + "pass",
        "".join(" " * depth + f"def f{depth}():\n" for depth in range(1000)) + " " * 1000 + "pass",
        "".join(" " * depth + "for x in y:\n" for depth in range(1000)) + " " * 1000 + "pass",
        "x = " + "f(" * 1000 + ")" * 1000,
        "x = " + "{1: " * 1000 + "}" * 1000,
        "x = " + "not " * 1000 + "y",
        "x = " + "y if z else " * 1000 + "0",
        "x = y" + "[0]" * 700,
        "x = " + "lambda: (" * 1000 + "0" + ")" * 1000,
        "f" + "(x)(y)" * 1000,
        "x = y" + "[0]" * 5000,
        "x = " + "f'{" * 40 + "}'" * 40,
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "[" * 300 + "]" * 300,
        "x = " + "-" * 20_000 + "1",
        "x = " + " + ".join(["1"] * 8_000),
        "x = " + " + ".join(["1"] * 20_000),
        "x = a" + ".b" * 5_000,
        "x = a" + "(1)" * 3_000,
        "".join("    " * depth + "if x:\n" for depth in range(99)) + "    " * 99 + "pass",
        "lambda: " * 500 + "0",
        "if a:\n    pass\n" + "elif b:\n    pass\n" * 3_000,
        "def f():\n    return f()\nf()",
    ],
    ids=[
        "1000 ifs", "1000 defs", "1000 loops", "1000 calls", "1000 dicts", "1000 nots",
        "1000 conditions", "700 indices", "1000 lambdas", "2000 results", "5000 indices",
        "f-strings",
        "parentheses", "lists", "minus", "8000 sums", "plus", "attributes", "calls", "blocks",
        "lambdas", "elif", "recursion",
    ],
)  # fmt: skip
def test_deep_nesting_is_refused_or_linted(text):
    assert {code for _, code in lint(XLA + text + "\n")} <= {"XLA001"}


def test_a_long_chain_of_calls_is_followed_to_its_end():
    steps = "".join(f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(200))
    program = f"{XLA}{steps}def f200(x):\n    return x.item()\n"
    program += "for x in range(3):\n    loss = torch.ones(1, device=xm.xla_device())\n"
    program += "    loss.backward()\n    f0(loss)\n    torch_xla.sync()\n"
    assert {code for _, code in lint(program)} <= {"XLA101", "XLA802"}


BLOCK = """
def step_{n}(model, loader, optimizer, device):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        xm.optimizer_step(optimizer)
        total += loss.item()
    return total / len(loader)


class Meter_{n}:
    def __init__(self):
        self.total = 0.0

    def update(self, value, count=1):
        self.total += value * count
"""


def test_the_work_grows_with_the_file_and_not_faster():
    def work(count):
        text = XLA + "".join(BLOCK.replace("{n}", str(n)) for n in range(count))
        return calls_of(lambda: lint(text))

    work(1)  # loads rules and tables
    # Four times the text: 4 if all is linear, 16 if something looks from everywhere at everything.
    assert work(80) < 5 * work(20)


def test_a_file_of_fifty_thousand_lines_is_linted():
    # Mostly comments and data, to be quick here; the benchmark has one that is all step loops.
    table = 'TABLE = """\n' + "1 2 3\n" * 30_000 + '"""\n'
    text = XLA + table + "# a comment\nx = 1\n\n" * 7_000 + "device = xm.xla_device()\n"
    assert text.count("\n") > 50_000
    assert lint(text) == [(text.count("\n"), "XLA802")]


def test_star_imports_make_nothing_up():
    assert (
        found(
            """
            import torch_xla
            from torch_xla.core.xla_model import *
            from somewhere import *

            for x, y in loader:
                loss = model(x)
                loss.backward()
                step(optimizer)
                print(loss.item())
            """
        )
        == []
    )


@pytest.mark.parametrize(
    "line",
    [
        "getattr(value, 'item')()",
        "getattr(value, name)()",
        "globals()['value'].item()",
        "exec('value.item()')",
        "eval('value.item()')",
        "type(value).__getattribute__(value, 'item')()",
    ],
)
def test_what_is_decided_at_run_time_is_not_guessed(line):
    program = f"""
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm

        def train(loader, model, optimizer, name):
            for value in loader:
                {line}
                torch_xla.sync()
    """
    assert found(program) == []


def test_names_that_exec_may_have_changed_stay_what_they_are_written_to_be():
    assert found("import torch_xla\nexec(open('setup.py').read())\nprint(torch_xla.sync)\n") == []


def test_classes_that_inherit_in_a_circle():
    assert (
        found(
            """
            import torch_xla

            class A(B):
                def forward(self, x):
                    return x

            class B(A):
                pass

            class C(C):
                pass

            B()(1)
            C().run()
            """
        )
        == []
    )


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "\x0c", "#", "\\\n", "\x00"])
def test_next_to_nothing(text):
    assert {code for _, code in lint(text)} <= {"XLA001"}


@pytest.mark.parametrize(
    "line",
    [
        "getattr(loss, 'item')()",
        "getattr(loss, reader)()",
        "getattr(torch_xla, 'sync')()",
        "setattr(loss, 'item', print)",
        "__import__('torch_xla').sync()",
        "importlib.import_module('torch_xla').sync()",
        "vars(loss)['item']",
        "exec(f'loss.{reader}()')",
    ],
)
def test_names_made_at_run_time_are_nobody(line):
    program = f"""
        import importlib
        import torch
        import torch_xla

        def train(loader, loss, reader):
            for x in loader:
                {line}
    """
    assert found(program) == []


def test_code_after_exec_is_read_as_it_is_written():
    text = (
        XLA + "exec(open('old.py').read())\n"
        "for x in range(3):\n    loss = torch.ones(1, device=xm.xla_device())\n"
        "    loss.backward()\n    torch_xla.sync()\n    print(loss.item())\n"
    )
    assert {code for _, code in lint(text)} == {"XLA101", "XLA802"}


@pytest.mark.parametrize(
    "line",
    [
        "print 'x'", "raise E, 'x'", "x = `y`", "x <> y", "x = 0777", "x = ur'x'", "exec 'x'",
        "print >>f, 'x'", "def f((a, b)): pass",
    ],
)  # fmt: skip
def test_python_2_in_its_many_forms(line):
    codes = [code for _, code in lint(f"{XLA}{line}\n")]
    # Python 3 reads ``print >>f, 'x'`` as a tuple.
    assert codes == ([] if line.startswith("print >>") else ["XLA001"])


def test_a_huge_notebook():
    cells = [{"cell_type": "code", "source": f"{XLA}x{n} = {n}\n%time x{n}\n"} for n in range(300)]
    cells[200] = {"cell_type": "code", "source": "print 'old'\n"}
    cells.append({"cell_type": "code", "source": "", "outputs": [{"text": "A" * 20_000_000}]})
    cells.append({"cell_type": "code", "source": "device = xm.xla_device()\n"})
    source = sources.from_bytes(json.dumps({"cells": cells}).encode(), "n.ipynb")
    result = engine.lint(source)
    assert result.failures == ()
    places = [(item.code, item.locations[0].cell) for item in result.findings]
    assert places == [("XLA001", 200), ("XLA802", 301)]
