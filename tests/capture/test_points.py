"""The chains around a point: order, failures of a hook, the program's own exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from xladoctor.capture.agent.points import LAUNCH, MEASURE, RECORD, SIMULATE, Call, Points


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def points(failures: list[str]) -> Points:
    return Points(lambda hook, error: failures.append(f"{hook}: {error!r}"))


def call(*args: Any) -> Call:
    return Call(LAUNCH, "_xla_step_marker", 0, args)


def test_order_is_record_simulate_measure_original(points: Points) -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        def around(_call: Call, proceed: Any) -> Any:
            seen.append(name)
            return proceed()

        return around

    points.around(LAUNCH, MEASURE, noting("measure"))
    points.around(LAUNCH, RECORD, noting("record"))
    points.around(LAUNCH, SIMULATE, noting("simulate"))
    assert points.run(call(2), lambda x: seen.append("original") or x * 2) == 4
    assert seen == ["record", "simulate", "measure", "original"]


def test_a_failing_hook_is_turned_off_and_the_program_goes_on(
    points: Points, failures: list[str]
) -> None:
    ran: list[int] = []

    def broken(_call: Call, _proceed: Any) -> Any:
        raise ZeroDivisionError("ours")

    points.around(LAUNCH, RECORD, broken, "broken")
    for _ in range(3):
        assert points.run(call(), lambda: ran.append(1) or "result") == "result"
    assert len(ran) == 3
    assert failures == ["launch:broken: ZeroDivisionError('ours')"]


def test_a_hook_that_fails_afterwards_does_not_run_the_program_twice(points: Points) -> None:
    ran: list[int] = []

    def broken(_call: Call, proceed: Any) -> Any:
        proceed()
        raise ZeroDivisionError("ours")

    points.around(LAUNCH, MEASURE, broken)
    assert points.run(call(), lambda: ran.append(1) or "result") == "result"
    assert len(ran) == 1


def test_the_programs_exception_passes_untouched(points: Points, failures: list[str]) -> None:
    def around(_call: Call, proceed: Any) -> Any:
        return proceed()

    def program() -> None:
        raise KeyError("theirs")

    points.around(LAUNCH, RECORD, around)
    with pytest.raises(KeyError, match="theirs"):
        points.run(call(), program)
    assert failures == []


def test_the_programs_exception_wins_over_a_hook_that_fails_because_of_it(
    points: Points, failures: list[str]
) -> None:
    def broken(_call: Call, proceed: Any) -> Any:
        try:
            return proceed()
        finally:
            raise ZeroDivisionError("ours")

    def program() -> None:
        raise KeyError("theirs")

    points.around(LAUNCH, RECORD, broken)
    with pytest.raises(KeyError, match="theirs"):
        points.run(call(), program)
    assert len(failures) == 1


def test_the_simulation_may_raise_and_stays_on(points: Points, failures: list[str]) -> None:
    def stop(_call: Call, _proceed: Any) -> Any:
        raise RuntimeError("core 3 left the loop")

    points.around(LAUNCH, SIMULATE, stop)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="core 3"):
            points.run(call(), lambda: None)
    assert failures == []
