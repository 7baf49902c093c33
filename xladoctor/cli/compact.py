"""``xladoctor compact``: the parts of a run as digests and columns, once for all reports."""

from __future__ import annotations

import importlib.util
import os

import click
from rich.console import Console

from xladoctor.errors import MissingExtra, UsageError
from xladoctor.store import compact as compacting
from xladoctor.store import parts
from xladoctor.store.locations import located
from xladoctor.store.runs import is_shared


@click.command(short_help="Compact the parts of a pod's run, for reports and queries at scale.")
@click.argument("run", metavar="RUN")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N",
    help="Processes that work at a time.  [default: one a CPU]",
)  # fmt: skip
def compact(run: str, jobs: int | None) -> int:
    """Write digests and columns (Parquet) of the hosts' parts beside them.

    RUN is what 'xladoctor profile -o' was given. Each host compacts its own part when its command
    ends; this does it for those that were cut off. 'xladoctor report' reads the digests; DuckDB,
    Dask, Ray and others read RUN/columns/steps/*.parquet and the other tables.
    """
    if not is_shared(run):
        raise UsageError(f"{run}: no run of several hosts: give what 'profile -o' was given")
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra("columnar files", "pyarrow", "pod")
    location = located(run)
    found = parts.find(location)
    every = [part for line in found.hosts.values() for part in line]
    made, notes = compacting.compact(location, every, jobs=jobs or os.cpu_count() or 1)
    console = Console(stderr=True, highlight=False)
    for note in (*found.notes, *notes):
        console.print(f"xladoctor: {note}", soft_wrap=True, markup=False)
    click.echo(f"{location.url}: {made} of {len(every)} parts compacted anew")
    return 0
