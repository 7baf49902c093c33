"""The walk over a syntax tree."""

from __future__ import annotations

import libcst as cst

from xladoctor.lint.model import syntax


def test_what_the_walk_passes_by_has_no_parts_and_no_note_is_taken_of_it():
    assert all(not syntax.children(kind("1")) for kind in syntax._LEAVES - {cst.Pass})
    assert not syntax._LEAVES & {*syntax._COLLECTED, cst.Call, cst.SimpleString}
