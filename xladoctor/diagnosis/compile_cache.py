"""XLA214 compilation-cache-ineffective: graphs on disk that are not found or cannot be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xladoctor.diagnosis import thresholds as limits
from xladoctor.diagnosis.words import finding, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.diagnosis.case import Case
    from xladoctor.findings import Finding


def find(case: Case) -> Iterator[Finding]:
    """At most one. A first run can only miss, so misses alone say nothing."""
    for state in case.states:
        failed = state.counter("PersistentCacheDeserializeFailure")
        hits, missed = state.counter("PersistentCacheHit"), state.counter("PersistentCacheMiss")
        if failed:
            yield finding(
                "XLA214",
                f"{plural(failed, 'graph')} of the compilation cache on disk could not be loaded, "
                "and had to be compiled again",
                "use the cache only where the backend can load its programs (TPU, GPU), and empty "
                "it after an upgrade of torch_xla or libtpu",
                count=failed,
                by=state.by,
            )
            return
        if hits and missed and missed > hits and missed >= limits.CACHE_MISSES:
            yield finding(
                "XLA214",
                f"the compilation cache on disk was used {plural(hits, 'time')} and missed "
                f"{plural(missed, 'time')}: most graphs differ from those of the run before",
                "give xr.initialize_cache one folder a core that is the same in each run, and look "
                "for graphs that change from run to run (seeds and Python numbers in the graph)",
                count=missed,
                by=state.by,
            )
            return
