"""How often loops run, read from graphs as they are printed (invented; no compiler is asked)."""

from __future__ import annotations

import pytest

from xladoctor.tpu import loops
from xladoctor.tpu.optimized import Optimized


def runs(step: str, condition: str, *, first: str = "constant(0)", dtype: str = "s32") -> set[int]:
    """How often the product in a loop's body runs, and -1 if that is not known."""
    state = f"({dtype}[], f32[8,8], {dtype}[])"
    text = f"""HloModule loop

%body (s: {state}) -> {state} {{
  %s = {state} parameter(0)
  %i = {dtype}[] get-tuple-element(%s), index=0
  %x = f32[8,8] get-tuple-element(%s), index=1
  %l = {dtype}[] get-tuple-element(%s), index=2
  %c = {dtype}[] constant(3)
  %j = {dtype}[] {step}
  %d = f32[8,8] dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %t = {state} tuple(%j, %d, %l)
}}

%more (s: {state}) -> pred[] {{
  %s = {state} parameter(0)
  %i = {dtype}[] get-tuple-element(%s), index=0
  %l = {dtype}[] get-tuple-element(%s), index=2
  %c = {dtype}[] constant(10)
  ROOT %r = pred[] {condition}
}}

ENTRY %main (x: f32[8,8], n: {dtype}[]) -> f32[8,8] {{
  %x = f32[8,8] parameter(0)
  %n = {dtype}[] parameter(1)
  %f = {dtype}[] {first}
  %k = {dtype}[] copy(%f)
  %limit = {dtype}[] constant(7)
  %t = {state} tuple(%k, %x, %limit)
  %w = {state} while(%t), condition=%more, body=%body
  ROOT %o = f32[8,8] get-tuple-element(%w), index=1
}}
"""
    found = [one for one in Optimized(text).operations() if one.opcode == "dot"]
    return {-1 if one.counted_once else one.runs for one in found}


@pytest.mark.parametrize(
    ("step", "condition", "first", "turns"),
    [
        ("add(%i, %c)", "compare(%i, %c), direction=LT", "constant(0)", 4),
        ("add(%i, %c)", "compare(%i, %c), direction=LE", "constant(1)", 4),
        ("add(%i, %c)", "compare(%c, %i), direction=GT", "constant(0)", 4),
        ("subtract(%i, %c)", "compare(%i, %c), direction=GT", "constant(20)", 4),
        ("add(%i, %c)", "compare(%i, %l), direction=NE", "constant(-2)", 3),
        ("multiply(%i, %c)", "compare(%i, %c), direction=LT", "constant(1)", 3),
        ("add(%i, %c)", "compare(%i, %l), direction=LT", "constant(0)", 3),
    ],
)
def test_turns_are_counted_as_the_loop_counts(
    step: str, condition: str, first: str, turns: int
) -> None:
    assert runs(step, condition, first=first) == {turns}


@pytest.mark.parametrize("dtype", ["s32", "u32", "s64", "u8"])
def test_numbers_wrap_as_their_type_does(dtype: str) -> None:
    found = runs("subtract(%i, %c)", "compare(%i, %c), direction=LT", first="constant(5)",
                 dtype=dtype)  # fmt: skip
    # 5, 2, then -1 and further down, or the largest number of an unsigned type.
    assert found == ({2} if dtype.startswith("u") else {-1})


@pytest.mark.parametrize(
    ("step", "condition", "first"),
    [
        ("add(%i, %c)", "compare(%i, %c), direction=LT", "copy(%n)"),  # begins at an input
        ("copy(%i)", "compare(%i, %c), direction=LT", "constant(0)"),  # never ends
        ("add(%i, %c)", "compare(%i, %c), direction=GE", "constant(10)"),  # ends when it wraps
        ("rng(%i, %c)", "compare(%i, %c), direction=LT", "constant(0)"),  # is drawn
    ],
)
def test_what_cannot_be_counted_runs_once_and_is_marked(
    step: str, condition: str, first: str
) -> None:
    assert runs(step, condition, first=first) == {-1}


def test_counting_gives_up_after_so_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_TURNS", 3)
    assert runs("add(%i, %c)", "compare(%i, %c), direction=LT") == {-1}
