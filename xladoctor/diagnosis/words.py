"""The words that diagnoses share: how a finding is made, how numbers and places are written."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xladoctor import amounts, catalogue
from xladoctor.errors import XladoctorError
from xladoctor.findings import Finding, Location, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xladoctor.readings.tables import Frame

#: Name and severity of the codes that diagnoses use, for an installation whose page is missing.
_CODES = {
    "XLA101": ("host-sync-in-step", Severity.WARNING),
    "XLA201": ("data-dependent-shape", Severity.WARNING),
    "XLA203": ("drop-last-missing", Severity.WARNING),
    "XLA210": ("recompilation-after-warmup", Severity.WARNING),
    "XLA211": ("long-compilation", Severity.WARNING),
    "XLA212": ("huge-graph", Severity.WARNING),
    "XLA213": ("step-in-several-graphs", Severity.INFO),
    "XLA214": ("compilation-cache-ineffective", Severity.WARNING),
    "XLA215": ("graph-captured-again", Severity.WARNING),
    "XLA301": ("no-step-boundary", Severity.ERROR),
    "XLA303": ("clip-before-reduce", Severity.ERROR),
    "XLA305": ("optimizer-before-device", Severity.ERROR),
    "XLA310": ("step-end-without-work", Severity.INFO),
    "XLA316": ("parameter-without-gradient", Severity.WARNING),
    "XLA317": ("index-out-of-range", Severity.ERROR),
    "XLA318": ("expanded-write", Severity.ERROR),
    "XLA322": ("different-result", Severity.ERROR),
    "XLA402": ("unsharded-loader", Severity.ERROR),
    "XLA405": ("collective-on-some-cores", Severity.ERROR),
    "XLA410": ("cores-build-different-graphs", Severity.ERROR),
    "XLA411": ("core-failed", Severity.ERROR),
    "XLA412": ("cores-train-different-models", Severity.ERROR),
    "XLA413": ("hang", Severity.ERROR),
    "XLA414": ("core-lags-behind", Severity.WARNING),
    "XLA420": ("uneven-iterations", Severity.ERROR),
    "XLA428": ("spmd-process-api", Severity.ERROR),
    "XLA429": ("spmd-setup", Severity.WARNING),
    "XLA433": ("collective-without-gradient", Severity.ERROR),
    "XLA434": ("equal-random-numbers", Severity.WARNING),
    "XLA435": ("statistics-differ", Severity.INFO),
    "XLA436": ("sharded-clip", Severity.ERROR),
    "XLA437": ("sharded-checkpoint", Severity.ERROR),
    "XLA440": ("replicated-tensor", Severity.WARNING),
    "XLA441": ("sharding-changes", Severity.WARNING),
    "XLA442": ("uneven-sharding", Severity.INFO),
    "XLA444": ("mesh-mismatch", Severity.ERROR),
    "XLA450": ("sharding-conflict", Severity.WARNING),
    "XLA448": ("sampler-coverage", Severity.ERROR),
    "XLA501": ("cpu-fallback-operation", Severity.WARNING),
    "XLA601": ("input-bound", Severity.WARNING),
    "XLA602": ("tracing-bound", Severity.WARNING),
    "XLA610": ("constants-sent-in-step", Severity.WARNING),
    "XLA702": ("device-memory-short", Severity.WARNING),
    "XLA710": ("tensors-kept-alive", Severity.WARNING),
    "XLA711": ("graph-needs-memory", Severity.INFO),
    "XLA714": ("debug-environment", Severity.WARNING),
    "XLA723": ("padded-dimensions", Severity.WARNING),
    "XLA724": ("layout-copies", Severity.WARNING),
    "XLA725": ("float32-products", Severity.WARNING),
    "XLA726": ("wide-arithmetic", Severity.WARNING),
    "XLA727": ("row-by-row-access", Severity.WARNING),
    "XLA728": ("small-collectives", Severity.WARNING),
    "XLA729": ("refused-by-tpu-compiler", Severity.ERROR),
    "XLA730": ("device-memory-exceeded", Severity.ERROR),
    "XLA732": ("lost-updates", Severity.WARNING),
    "XLA863": ("torchtpu-warning", Severity.WARNING),
}


def finding(
    code: str,
    message: str,
    suggestion: str,
    *,
    at: Location | Iterable[Location | None] | None = None,
    count: int | None = None,
    seconds: float | None = None,
    cores: Iterable[int] = (),
    related: Iterable[Location] = (),
    by: str = "runtime",
    certain: bool = True,
) -> Finding:
    """A finding with the name and severity that the catalogue gives its code.

    One that is not ``certain`` (it is seen, but not whether it matters) is information only.
    ``at`` is the line to change, or lines of which the first that is known is shown as that and the
    others as related; so is ``related``, in which notes say what a place has to do with it.
    """
    several = [at] if at is None or isinstance(at, Location) else at
    places = [place for place in dict.fromkeys(several) if place is not None]
    further: list[Location] = []
    for place in (*(noted(one, "also here") for one in places[1:]), *related):
        if not _among(place, (*places[:1], *further)):
            further.append(place)
    name, severity = _CODES[code]
    try:
        page = catalogue.page(code)
    except XladoctorError:
        pass
    else:
        name, severity = page.name, page.severity
    return Finding(
        code=code,
        name=name,
        severity=severity if certain else Severity.INFO,
        message=message,
        suggestion=suggestion,
        locations=tuple(places[:1]),
        related=tuple(further),
        count=count,
        seconds=seconds,
        cores=tuple(sorted(set(cores))),
        confirmed_by=(by,),
    )


def noted(place: Location, note: str) -> Location:
    """A place with what it has to do with a finding."""
    return dataclasses.replace(place, note=note)


def _among(place: Location, places: Iterable[Location]) -> bool:
    line = (place.filename, place.cell, place.row)
    return any((one.filename, one.cell, one.row) == line for one in places)


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 step``, ``1,200 steps``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def rate(value: float) -> str:
    """How often, short: ``0.3 times``, ``once``, ``twice``, ``12 times``."""
    whole = value >= 9.95 or abs(value - round(value)) < 0.05
    text = f"{value:,.0f}" if whole else f"{value:.1f}"
    return {"1": "once", "2": "twice"}.get(text, f"{text} times")


def duration(seconds: float) -> str:
    """Seconds for people; see :func:`xladoctor.amounts.duration`."""
    return amounts.duration(seconds)


def at(place: Location | None) -> str:
    """``train.py:52``, or what to say when the line is not known."""
    return f"{place.filename}:{place.row}" if place else "an unknown line"


def cores_text(cores: Iterable[int], all_cores: Iterable[int]) -> str:
    """``all 8 cores``, ``core 3``, ``cores 0-6``."""
    some, every = sorted(set(cores)), sorted(set(all_cores))
    if len(some) > 1 and some == every:
        return f"all {len(some)} cores"
    if len(some) == 1:
        return f"core {some[0]}"
    ranges: list[list[int]] = []
    for core in some:
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    texts = [str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in ranges]
    return "cores " + ", ".join(texts)


def is_installed(filename: str) -> bool:
    """Whether a file belongs to an installed package."""
    return "-packages/" in filename


def package_of(filename: str) -> str:
    """The name by which the package of an installed file is imported: "lightning"."""
    return filename.rpartition("-packages/")[2].partition("/")[0].removesuffix(".py")


def library(frames: tuple[Frame, ...]) -> str | None:
    """The package and function of the innermost frame, if that is in an installed package.

    Args:
        frames: Innermost first; those of torch and torch_xla are never among them.

    Returns:
        "lightning.optimizer_step"; None for a line of the user's own code.
    """
    if not frames or not is_installed(frames[0][0]):
        return None
    file, _, function = frames[0]
    return f"{package_of(file)}.{function}"
