"""Limits for tests: ``@pytest.mark.xla_limits(compilations_after_warmup=0, fallbacks=0)``.

pytest loads this in every run of a project that has xladoctor installed: nothing is imported before
a test asks for it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from xladoctor.results import Report

#: Where the runs of tests are kept, below pytest's root.
RUNS = Path(".xladoctor", "pytest")
#: Findings that are named when a limit is exceeded.
_NAMED = 3


def _fallbacks(report: Report) -> float | None:
    counts = report.summary.fallbacks
    return None if counts is None else sum(counts.values())


#: Limit to what is held against it, and how that is called.
_LIMITS: dict[str, tuple[Callable[[Report], float | None], str]] = {
    "compilations": (lambda report: report.summary.compilations, "compilations of one core"),
    "compilations_after_warmup": (
        lambda report: report.summary.compilations_after_warmup,
        "compilations of one core after warm-up",
    ),
    "fallbacks": (_fallbacks, "operations on the CPU"),
    "host_syncs": (lambda report: report.summary.host_syncs, "host syncs"),
    "host_syncs_per_step": (
        lambda report: report.summary.syncs_per_step,
        "host syncs per step and core",
    ),
}
_MARKER = (
    f"xla_limits({', '.join(f'{name}=N' for name in _LIMITS)}): record what the test does on XLA "
    "devices, and fail it if one of these is exceeded (xladoctor)"
)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, for ``--markers`` and ``--strict-markers``."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a marked test, and hold it against its limits if it passes."""
    marker = item.get_closest_marker("xla_limits")
    if marker is None:
        return (yield)
    limits = _checked(marker)
    from xladoctor import interactive
    from xladoctor.errors import XladoctorError

    name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-80:].strip("-")
    folder = item.config.rootpath / RUNS / f"{name}-{os.getpid()}"
    try:
        with interactive.profile(folder, force=True) as run:
            result = yield
        report = run.result()
    except XladoctorError as error:
        pytest.fail(f"xla_limits: {error}", pytrace=False)
    exceeded = list(_exceeded(limits, report))
    if exceeded:
        pytest.fail("\n".join([*exceeded, *_evidence(report, folder)]), pytrace=False)
    return result


def _checked(marker: pytest.Mark) -> dict[str, float]:
    """The limits of a marker; a slip in them fails the test in one sentence."""
    known = ", ".join(_LIMITS)
    if marker.args or not marker.kwargs:
        pytest.fail(f"xla_limits takes limits by name: {known}", pytrace=False)
    for name, limit in marker.kwargs.items():
        if name not in _LIMITS:
            pytest.fail(f"xla_limits has no limit {name!r}: there are {known}", pytrace=False)
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0:
            pytest.fail(f"xla_limits: {name} must be a number, 0 or more", pytrace=False)
    return dict(marker.kwargs)


def _exceeded(limits: dict[str, float], report: Report) -> Iterator[str]:
    """What is more than it may be. What was not measured is never taken for 0."""
    for name, limit in limits.items():
        measure, what = _LIMITS[name]
        value = measure(report)
        if value is None:
            yield f"xla_limits: {name}: {what} could not be measured in this test"
        elif value > limit:
            yield f"xla_limits: {name}: {value:g} {what}, at most {limit:g} allowed"


def _evidence(report: Report, folder: Path) -> Iterator[str]:
    """The first findings, and where to read more."""
    for finding in report.findings[:_NAMED]:
        place = f"{finding.locations[0].at}: " if finding.locations else ""
        yield f"  {place}{finding.code} {finding.message}"
    yield f"  xladoctor report {folder}"
