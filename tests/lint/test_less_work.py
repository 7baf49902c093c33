"""What is left out so that linting is quick changes no answer, and nothing waits to be freed."""

from __future__ import annotations

import gc
import sysconfig
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xladoctor.lint import contents, engine, run, sources
from xladoctor.lint.asked import LintOptions, Member, Result
from xladoctor.lint.engine import lint_together
from xladoctor.lint.model import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem

#: Imports as people write them seldom, and what only looks like one.
ODD = {
    "in texts": "'''\nimport a\n'''\nx = 'y\\\nimport b'\n\"\"\"import c\"\"\"\nimport d\n",
    "in comments": "# import a\nimport b  # from c import d\n#\nfrom e import f\n",
    "in brackets": "from a import (b,  # c (d)\n  e,\n  f as g)\nimport h\n",
    "in brackets, with a bracket in a comment": "from a import (b,  # :)\n  c)\nimport d\n",
    "on one row": (
        "if a: import b; from c import d\nelse: import e\ntry: from . import f\nfinally: g\n"
    ),
    "continued": "from a \\\n  import b, \\\n  c\nimport d as \\\n e\n",
    "within": "def f():\n    import a.b.c\n    class G:\n\tfrom ..h import *\n",
    "raised": "try:\n    import a\nexcept B as b:\n    raise C \\\n      from b\n",
    "yielded": "def f():\n    x = (yield\n    from g)\n    import a\n",
    "returns": "import a\r\nif b:\r\n    from c import d\r\nimport e\rimport f\r",
    "names": "important = from_here = 1\nx = {'a': important}\ny = x[important:from_here]\n",
    "raw": "a = r'\\'\nimport b\nc = r'\\''\nimport d\n",
    "formatted": "a = f'{b!r:>{c}}' f'''\nimport d {e}\n'''\nimport g\n",
    "first": "import a",
    "none": "x = 1\n",
}


def same(text: str) -> None:
    if isinstance(sources.parsed(text), sources.Unreadable):
        pytest.skip("this Python cannot parse it")
    mine = contents.imported_modules(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_imports_of", sources.parsed)
        assert set(contents.imported_modules(text)) == set(mine)


@pytest.mark.parametrize("name", ODD)
def test_imports_are_those_of_the_whole_file(name: str) -> None:
    same(ODD[name])


@pytest.mark.slow
def test_imports_of_the_standard_library_too() -> None:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    assert len(files) > 100
    for path in files:
        same(path.read_text(encoding="utf-8"))


def test_little_is_parsed_for_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = sources.parsed
    monkeypatch.setattr(sources, "parsed", lambda text: parsed.append(text) or real(text))
    text = "import a\n" + "x = f(1)\n" * 100 + "def g():\n    from b import (c,\n      d)\n"
    assert contents.imported_modules(text) == ["a", "b", "b.c", "b.d"]
    assert parsed == ["import a\nfrom b import (c,\n      d)"]


def test_models_are_freed_without_the_collector_of_circles() -> None:
    """Those of hundreds of files would be looked through again and again."""
    held: list[weakref.ref[object]] = []

    def own(model: FileModel) -> Iterator[Problem]:
        held.extend(weakref.ref(one) for one in (model, model.program, model.tree))
        yield from ()

    text = "import torch_xla\n\n\nclass A:\n    def f(self): return self.f()\n"
    members = [
        Member(sources.Source("a.py", text), LintOptions(), {"b": "b.py"}),
        Member(sources.Source("b.py", text), LintOptions(), {"a": "a.py"}),
    ]
    gc.collect()
    gc.disable()
    try:
        results = lint_together(members, {"ACME101": own})
        assert [one() for one in held] == [None] * 6
    finally:
        gc.enable()
    assert not any(result.failures for result in results)


PLAIN = (
    "import torch\n\n\ndef train(model, loader, optimizer):\n"
    "    for x, y in loader:\n"
    "        loss = model(x).sum()\n"
    "        loss.backward()\n"
    "        optimizer.step()\n"
    "        print(loss.item())\n"
)


def test_files_that_are_linked_and_concern_no_rule_get_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*given: object, **named: object) -> None:
        raise AssertionError(given, named)

    monkeypatch.setattr(engine, "Part", never)
    members = [
        Member(sources.Source("a.py", "import b\n" + PLAIN), LintOptions(), {"b": "b.py"}),
        Member(sources.Source("b.py", PLAIN), LintOptions()),
    ]
    assert lint_together(members) == [Result(), Result()]
    assert run._results(members) == [Result(), Result()]


@pytest.mark.parametrize(
    ("added", "followed"),
    [
        ("# for GPUs, not TPUs\n", False),
        ('NAMES = {"tpu": "TPU", "gpu": "GPU"}\n', False),
        ('MODEL = torch.nn.Linear(2, 2).to("xla")\n', True),
        ("import torch_xla\n", True),
    ],
)
def test_values_are_followed_where_a_file_of_the_program_has_xla_devices(
    monkeypatch: pytest.MonkeyPatch, added: str, followed: bool
) -> None:
    made: list[object] = []
    real = program.Flow
    monkeypatch.setattr(program, "Flow", lambda *given: made.append(given) or real(*given))
    members = [
        Member(
            sources.Source("a.py", "from b import train\n" + added), LintOptions(), {"b": "b.py"}
        ),
        Member(sources.Source("b.py", PLAIN), LintOptions()),
    ]
    assert not any(result.failures for result in lint_together(members))
    assert bool(made) is followed


def test_what_is_set_and_installed_is_told_in_a_program_for_no_device() -> None:
    text = PLAIN + '\n\nimport os\n\nos.environ["XRT_TPU_CONFIG"] = "tpu_worker;0;10.0.0.2:8470"\n'
    members = [
        Member(sources.Source("a.py", "from b import train\n"), LintOptions(), {"b": "b.py"}),
        Member(sources.Source("b.py", text), LintOptions()),
    ]
    assert [item.code for one in lint_together(members) for item in one.findings] == ["XLA701"]
