"""Positions computed statement by statement are those that LibCST computes for a whole module."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from xladoctor import catalogue
from xladoctor.lint import sources
from xladoctor.lint.model.parsing import Parsed
from xladoctor.lint.model.syntax import Tree

ROOT = Path(__file__).resolve().parents[2]
#: As people write it seldom: what could part LibCST's statements from those of Python's parser.
ODD = {
    "decorators": (
        "@(\n    wrap\n)\n\n# why\n@other(1)\n"
        "async \\\n  def f(a, /, *, b=(1,\n 2)): return a; pass\n"
    ),
    "semicolons": "if a: b; c\nx = 1; y = (2,\n  3); z = 4;\nlast = 1\n",
    "branches": (
        "try:\n\ta = 1\nexcept* E as e:\n\tb = 2\nelse:\n\tc = 3\nfinally:\n\td = 4\n"
        "if a:\n    b\nelif c:\n    # why\n    d\nelif e: f\nelse:\n    if g:\n        h\n"
        "for i in x:\n  y\nelse:\n  z\nwhile a:\n    b\nelse:\n    c\n"
    ),
    "match": (
        "match a:\n    case 1:\n        b\n    case [x, *y] if z:\n"
        "        with (c as d, e):\n            f = '''\n'''; g\n"
    ),
    "wide": (
        "s = 'ä𝄞'; t = f'{s!r:>{len(s)}}', 'ß'\n"
        "class Ü(Base, metaclass=M):\n\n    '''Doc.'''\n\n    x: int = 3\n"
    ),
    "ends": "def f():\r\n    return 1\r\nx = f()  # no end of line",
    "indents": "if a:\n b\nif c:\n\tif d:\n\t\t  e\n\telse:\n\t        f = (\n  1)\n",
    "form feed": "a = 1\n\x0cb = 2\n\n\x0c\nc = 3\n",
    "lines between": (
        "\n\n# head\n\nimport a\n\n\nclass A:\n    # b\n\n    @property\n    # c\n"
        "    def d(self): ...\n\n    # foot\n# end\n"
    ),
}


def texts() -> dict[str, str]:
    found = {f"odd: {name}": text for name, text in ODD.items()}
    for path in sorted((ROOT / "sample_runs").rglob("*.py")):
        found[path.name] = path.read_text(encoding="utf-8")
    for code, page in catalogue.pages().items():
        for example in page.examples:
            found[f"{code}:{example.row}"] = example.source
    return found


def same(text: str) -> None:
    tree = whole(text)
    # A wrapper that copies the tree would give other nodes.
    expected = MetadataWrapper(tree.module, unsafe_skip_copy=True).resolve(PositionProvider)
    for node in tree.scopes:
        if not isinstance(node, cst.Module):
            assert tree.range(node) == expected[node], type(node).__name__
    assert tree.range(tree.module) == expected[tree.module]


def whole(text: str) -> Tree:
    """A tree as LibCST parses it (of others, see test_converted)."""
    return Tree(text, Parsed(text, convert=False))


@pytest.mark.parametrize("name", sorted(texts()))
def test_every_node_stands_where_libcst_says(name: str) -> None:
    text = texts()[name]
    if isinstance(sources.parse(text), sources.Unreadable):
        pytest.skip("this Python cannot parse it")
    same(text)


@pytest.mark.slow
def test_those_of_the_standard_library_too() -> None:
    """A few dozen files that other people wrote, as they are installed."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("[a-c]*.py"))
    assert len(files) > 20
    for path in files:
        same(path.read_text(encoding="utf-8"))


def test_only_the_statement_that_is_asked_for_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = whole("".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(50)))
    written: list[cst.CSTNode] = []
    inner = cst.FunctionDef._codegen_impl

    def spy(self: cst.FunctionDef, state: object) -> None:
        written.append(self)
        inner(self, state)  # type: ignore[arg-type]

    monkeypatch.setattr(cst.FunctionDef, "_codegen_impl", spy)
    definition = list(tree.functions)[30]
    assert tree.row(definition) == 61
    assert written == [definition]


def test_what_only_libcst_reads_is_placed_by_libcst(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a = 1\nif a:\n    b = (2,\n 3)\n"
    tree = whole(text)
    monkeypatch.setattr(sources, "parse", lambda _text: sources.Unreadable("does not parse"))
    expected = MetadataWrapper(tree.module, unsafe_skip_copy=True).resolve(PositionProvider)
    assert all(tree.range(node) == expected[node] for node in tree.scopes)


def test_a_row_that_libcst_loses_moves_nothing() -> None:
    """LibCST forgets a row that is only continued, and counts all rows after it one too low."""
    tree = whole("a = 1\n\\\nb = 2\nc = 3\n")
    assert [tree.row(item) for item in tree.module.body] == [1, 3, 4]
