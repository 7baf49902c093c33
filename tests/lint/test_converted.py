"""LibCST's nodes made of what Python's parser finds are those that LibCST's parser makes."""

from __future__ import annotations

import ast
import dataclasses
import functools
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from xladoctor import catalogue
from xladoctor.lint import sources
from xladoctor.lint.engine import lint
from xladoctor.lint.model import FileModel, Problem, syntax, walk
from xladoctor.lint.model import parsing as lint_parsing
from xladoctor.lint.model.parsing import Parsed
from xladoctor.lint.model.parts import left_out
from xladoctor.lint.model.syntax import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
#: Without white space, but with what these fields tell.
TELLING = {"star", "asynchronous", "relative"}
#: As people write it seldom, and where the two parsers divide a text otherwise.
ODD = {
    "tuples": (
        "x = (a, b), (c), ((d),), ()\nx[(1, 2)]; x[(1), (2)]; x[1,]; x[(1),]; x[()]\n(a), b = c\n"
    ),
    "slices": "x[:, 1:2, ::3, ..., None, a:b:c, (d, e)]\n",
    "starred": "x[a, *b]\nx[*b]\nx[*b,]\ndef f(*a: *b): pass\n",
    "texts": (
        "a = 'x' \"y\" '''z''' r'\\d' b'' if 0 else ''\n"
        "b = ('one'\n  # between\n  \"two\" \\\n 'three')\n"
        "c = '', \"\", '''\n'\n''', 'it\\'s', 'a\\\nb'\n"
    ),
    "formatted": (
        "a = f'{x}', f\"{x!r:>{len(y)}} {{}}\" 'b' f'''{a\n + b}''', rf'\\{x}', 'a' f'{x=}'\n"
        "b = ('ä' f'{x}' 'ß')\nc = ('a' f'b' 'c')\n"
    ),
    "numbers": "a = 0x1F, 1_000, 1e-3, 2j, -1, 0o17, .5, 10.\n",
    "operators": (
        "a = not b and c or d and (e or f) and not (g)\n"
        "b = a < b <= c is not d not in e != f\nc **= -a @ ~b // c << 1\n"
    ),
    "calls": (
        "f(a, *b, c=1, *d, **e)\nf(x for x in y)\nf((x for x in y), 1)\nf(*a, **b)\nf((a))\n"
        "f(a := 1, b=(c := 2))\n"
    ),
    "functions": (
        "def f(a, b: int = 1, /, c=2, *d: str, e, g=3, **h) -> None: ...\ndef g(*, a): pass\n"
        "async def h():\n    async with a as b, c: await d\n    async for i in j: yield i\n"
        "    return [k async for k in l if m if n for o in p]\n"
        "x = lambda a, *b, c=1, **d: (yield)\n"
    ),
    "classes": (
        "@a\n@(b)\nclass C(B, *D, metaclass=M, **kw):\n    x: int\n    y: 'int' = 1\n\n"
        "    @property\n    def z(self): return 1\n"
    ),
    "imports": (
        "import a.b.c as d, e\nfrom . import (f as g,\n  h)\n"
        "from ...i.j import *\nfrom .k import l\nimport m . n\n"
    ),
    "branches": (
        "if a: b; c\nelif d: e\nelse:\n    if f: g\n"
        "if a:\n    b\nelse:\n    if c:\n        d\n    e\n"
        "try: a\nexcept (B, C) as d: e\nexcept F: g\nexcept: h\nelse: i\nfinally: j\n"
        "while (a): b\nelse: c\nfor (a, b), *c in d, e: f\n"
    ),
    "deleted": "del a, b\ndel (c, d)\ndel e\ndel f,\ndel [g]\n",
    "raised": "raise\nraise A from B\nraise (C)\nassert a, 'b'\nglobal x, y\n",
    "with": "with (a): b\nwith (a, b): c\nwith (a as b, c): d\nwith a as (b, c): d\n",
    "rows": "a = 1; b = '''\n'''; c = 2;\nif d: e = '''\n'''; f\nx = [\n  1, # one\n  2]\n",
    "continued": "a = 1\n\\\nb = 2\nif c: \\\n  d\nx = a + \\\n  b\n",
    "letters": "ä = 'ß' + f'{ä} 𝄞'; b = ä.ö(ü='é')\nclass Ü(ä): 'é'\n",
    "ligature": "ﬁ = 1\n",
    "comments": "# ① \N{FULLWIDTH DIGIT TWO}\na = 1  # ﬁ\nb = (  # (\n a)\n",
    "ends": "def f():\r\n    return 1\r\nx = f()  # no end of line",
    "form feed": "a = 1\n\x0cb = 2\n\n\x0c\nc = 3\n",
    "match": "match a:\n    case [1, *_] if b:\n        c\n",
    "new": "type A[T] = list[T]\ndef f[T](a: T): pass\n",
    "empty": "\n# nothing\n",
}


@functools.cache
def texts() -> dict[str, str]:
    return dict(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    yield from ((f"odd: {name}", text) for name, text in ODD.items())
    for path in sorted((ROOT / "sample_runs").rglob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")
    for code, page in catalogue.pages().items():
        for example in page.examples:
            yield f"{code}:{example.row}", example.source


@functools.cache
def telling(kind: type[cst.CSTNode]) -> list[str]:
    without = set(left_out(kind)) - TELLING
    return [field.name for field in dataclasses.fields(kind) if field.name not in without]


def difference(one: object, other: object, path: str = "") -> str | None:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        pairs = ((f"{path}[{n}]", *both) for n, both in enumerate(zip(one, other, strict=True)))
    elif type(one) is type(other) and isinstance(one, cst.CSTNode):
        names = telling(type(one))
        pairs = ((f"{path}.{x}", getattr(one, x), getattr(other, x)) for x in names)
    else:
        return None if one == other else f"{path}: {one!r} is not {other!r}"
    return next((found for at, a, b in pairs if (found := difference(a, b, at))), None)


def check(text: str) -> None:
    tree = sources.parse(text)
    if not isinstance(tree, ast.Module):
        pytest.skip("this Python cannot parse it")
    mine = Parsed(text)
    assert difference(mine.module, cst.parse_module(text)) is None
    check_places(text)


def check_places(text: str) -> None:
    """What is said of places and texts before LibCST has parsed the file is what it says then."""
    tree = Tree(text)
    twins = tree._positions._of_python
    if twins is None:
        return
    said = {node: (twins.place(node), twins.text(node)) for node in tree.scopes}
    inside = [node for text in tree.nodes(cst.FormattedString) for node in walk(text)]
    in_texts = {node: tree.range(node) for node in inside}
    tree.complete()
    assert tree.module.code == cst.parse_module(text).code
    places = MetadataWrapper(tree.module, unsafe_skip_copy=True).resolve(PositionProvider)
    for node, (place, written) in said.items():
        assert place is None or place == places[node], type(node).__name__
        expected = tree.module.code_for_node(node).strip() if written is not None else None
        assert written is None or written.strip() == expected
    assert in_texts == {node: places[node] for node in in_texts}


@pytest.mark.parametrize("name", texts())
def test_nodes_places_and_texts_are_those_of_libcst(name: str) -> None:
    check(texts()[name])


@pytest.mark.slow
def test_those_of_the_standard_library_too() -> None:
    """A few dozen files that other people wrote, as they are installed."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("[a-c]*.py"))
    assert len(files) > 20
    made = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        check(text)
        made += Parsed(text).rows is not None
    assert made > 0.9 * len(files)


def test_libcst_parses_only_what_python_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    parse = cst.parse_module

    def spy(text: str) -> cst.Module:
        asked.append(text)
        return parse(text)

    monkeypatch.setattr(lint_parsing.cst, "parse_module", spy)
    text = "import torch_xla\n\n\ndef f(x, y):\n    if x:\n        return f'{x}' + y.cpu()\n"
    tree = Tree(text)
    for kind in (cst.Call, cst.Name, cst.FunctionDef, cst.If, cst.Return, cst.Arg):
        for node in tree.nodes(kind):
            tree.range(node)
    assert [tree.text(node) for node in tree.nodes(cst.Call)] == ["y.cpu()"]
    assert asked == []
    tree.range(tree.nodes(cst.IndentedBlock)[0])
    tree.range(tree.nodes(cst.Parameters)[0])
    assert asked == [text]


def test_too_deep_for_python_is_not_too_deep_for_libcst() -> None:
    """Converting takes more of Python's stack for a level than the walk behind it does."""
    text = f"import torch_xla\nx = {' + '.join(['a'] * 400)}\n"
    assert Parsed(text).module.body
    assert not lint(sources.Source("deep.py", text)).findings


def test_indentation_that_python_takes_alone() -> None:
    """Spaces and tabs that end at the same column; LibCST compares them as they are written."""
    text = (
        "import torch_xla\n\n\n"
        "def step(model, kept):\n"
        "        if kept:\n"
        "            kept( a )\n"
        '        text = """\n\t a\n"""\n'
        "        for x in kept:\n"
        "                kept( x )\n"
        "       \tif x:\n"
        "\t        model( x )\n"
    )
    with pytest.raises(cst.ParserSyntaxError):
        cst.parse_module(text)
    tree = Tree(text)
    tree.complete()
    last = tree.nodes(cst.Call)[-1]
    assert (tree.range(last).start.line, tree.range(last).start.column) == (13, 9)
    assert tree.text(last) == "model( x )"
    assert '"""\n\t a\n"""' in tree.module.code
    assert not lint(sources.Source("tabs.py", text)).failures


def test_rules_of_others_get_whole_nodes() -> None:
    model = FileModel("f( a ,b)  # why\n")
    [call] = model.nodes(cst.Call)
    assert call.whitespace_before_args.value == " "
    assert model.tree.module.code == "f( a ,b)  # why\n"


def test_rules_of_others_are_given_whole_nodes_when_files_are_linted() -> None:
    seen: list[str] = []

    def own(model: FileModel) -> Iterator[Problem]:
        seen.extend(call.whitespace_before_args.value for call in model.nodes(cst.Call))
        yield from ()

    result = lint(sources.Source("a.py", "f( a)  # why\n"), rules={"ACME101": own})
    assert result.failures == ()
    assert seen == [" "]


def test_a_text_of_a_linked_file_is_read_there() -> None:
    trees = [Tree("x = f(1)\n"), Tree("y = g( 2 )\n")]
    syntax.Forest(trees)
    [call] = trees[1].nodes(cst.Call)
    assert trees[0].text(call) == "g( 2 )"


def test_what_is_around_a_node_of_a_linked_file_is_found_there() -> None:
    trees = [Tree("x = f(1)\n"), Tree("while True:\n    y = g(2)\n")]
    syntax.Forest(trees)
    [call] = trees[1].nodes(cst.Call)
    around = list(trees[0].ancestors(call))
    assert around == list(trees[1].ancestors(call))
    assert [type(node) for node in around[-2:]] == [cst.While, cst.Module]
