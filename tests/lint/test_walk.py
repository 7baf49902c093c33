"""The walk over a syntax tree."""

from __future__ import annotations

import libcst as cst

from xladoctor.lint.model import parts, syntax


def test_what_the_walk_passes_by_has_no_parts_and_no_note_is_taken_of_it():
    nodes = [cst.parse_expression(text) for text in ("x", "1", "1.0", "1j")]
    assert {type(node) for node in nodes} == parts.LEAVES - {cst.Pass}
    assert not any(syntax.children(node) for node in [*nodes, cst.Pass()])
    assert not parts.LEAVES & {*syntax._COLLECTED, cst.Call, cst.SimpleString}
