"""The check of equal draws looks closely while lines are new, and then seldom."""

from __future__ import annotations

from xladoctor.capture.simulate.checks.draws import EVERY, SETTLED, STEPS, _Lines


def looked_at(first_drawn, steps):
    """The steps in which a line that draws from ``first_drawn`` on is looked for."""
    lines, looked = _Lines(), []
    seeds = lines.seeds.setdefault("line", {})
    for step in range(1, steps + 1):
        if not lines.due(step):
            continue
        looked.append(step)
        if step >= first_drawn and len(seeds) < STEPS:
            seeds[step] = 101
            lines.new_at = step
    return looked, seeds


def test_settled_lines_cost_one_step_in_sixteen():
    looked, seeds = looked_at(1, 1600)
    assert list(seeds) == [1, 2]
    assert len(looked) <= 1600 // EVERY + STEPS + SETTLED


def test_a_line_that_draws_late_is_still_seen_twice():
    _, seeds = looked_at(100, 200)
    assert len(seeds) == STEPS
    assert list(seeds) == [112, 113]
