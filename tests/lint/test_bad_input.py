"""Input that a linter meets and nobody planned for: no crash, no guess, bounded time."""

from __future__ import annotations

import pytest
from rule_helpers import found
from work_helpers import calls_of

from xladoctor.lint import engine
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
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "[" * 300 + "]" * 300,
        "x = " + "-" * 20_000 + "1",
        "x = " + " + ".join(["1"] * 20_000),
        "x = a" + ".b" * 5_000,
        "x = a" + "(1)" * 3_000,
        "".join("    " * depth + "if x:\n" for depth in range(99)) + "    " * 99 + "pass",
        "lambda: " * 500 + "0",
        "if a:\n    pass\n" + "elif b:\n    pass\n" * 3_000,
        "def f():\n    return f()\nf()",
    ],
    ids=[
        "parentheses", "lists", "minus", "plus", "attributes", "calls", "blocks", "lambdas",
        "elif", "recursion",
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


def test_a_long_file_takes_bounded_work():
    body = "".join(
        f"def step_{n}(model, x, device):\n    y = model(x.to(device))\n    z = y.sum() + {n}\n"
        f"    if z.shape:\n        return z\n    return y\n"
        for n in range(300)
    )
    # Twice the text takes about twice the work: nothing in the model is quadratic.
    assert calls_of(lambda: lint(XLA + body * 2)) < 2.2 * calls_of(lambda: lint(XLA + body))


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
