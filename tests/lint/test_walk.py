"""The walk over a syntax tree."""

from __future__ import annotations

import libcst as cst

from xladoctor.lint.model import parts, syntax


def test_what_the_walk_passes_by_has_no_parts_and_no_note_is_taken_of_it():
    nodes = [cst.parse_expression(text) for text in ("x", "1", "1.0", "1j")]
    assert {type(node) for node in nodes} == parts.LEAVES - {cst.Pass}
    assert not any(syntax.children(node) for node in [*nodes, cst.Pass()])
    assert not parts.LEAVES & {*syntax._COLLECTED, cst.Call, cst.SimpleString}


def test_the_nodes_of_a_type_in_a_node_are_those_that_a_walk_finds():
    text = (
        "f(1)\ndef g(x=f(2)):\n    for a in f(g(3)):\n        b = [f(c) for c in a if c]\n"
        "        def h(): return f\n    while x: pass\nclass C(f(4)):\n    d = lambda: f(5)\n"
    )
    tree = syntax.Tree(text)
    forest = syntax.Forest([syntax.Tree("f(0)\n"), tree, syntax.Tree("x = f(6)\n")])
    for node in syntax.walk(tree.module):
        for kind in (cst.Call, cst.Name, cst.For, cst.Return, cst.Yield):
            expected = [part for part in syntax.walk(node) if type(part) is kind]
            assert list(tree.within(node, kind)) == list(forest.within(node, kind)) == expected
