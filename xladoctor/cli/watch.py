"""``xladoctor watch``: a run that is still going on, from another machine, with alerts."""

from __future__ import annotations

import json
import os
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from xladoctor import diagnosis
from xladoctor.cli.alerts import KINDS, Alert, Watcher, is_over
from xladoctor.errors import StorageError, UsageError
from xladoctor.report import words
from xladoctor.store import parts, runs
from xladoctor.store.locations import located

if TYPE_CHECKING:
    from xladoctor.results import Report
    from xladoctor.store.locations import Location

#: Seconds that a webhook may take.
_WEBHOOK = 10.0


@click.command(
    short_help="Watch a pod's run from another machine, with alerts.",
    epilog="Exit code: 0 the run has ended without an alert, 1 there was an alert, 2 it cannot "
    "be read.",
)
@click.argument("run", metavar="RUN")
@click.option(
    "--every", type=click.FloatRange(min=1), metavar="SECONDS", default=60.0, show_default=True,
    help="Time between two looks.",
)  # fmt: skip
@click.option(
    "--alert", "kinds", type=click.Choice(KINDS), multiple=True,
    help="Which alerts (may be given again): graphs compiled after warm-up, cores that lag, cores "
    "or hosts that stopped.  [default: all]",
)  # fmt: skip
@click.option(
    "--stopped-after", type=click.FloatRange(min=1), metavar="SECONDS", default=600.0,
    show_default=True, help="How long a core may take no step, or a host write nothing.",
)  # fmt: skip
@click.option(
    "--webhook",
    metavar="URL",
    help="Post each alert there as JSON (text, kind, cores, hosts, run).",
)
@click.option("--keep-going", is_flag=True, help="Go on after an alert, to the end of the run.")
@click.option("--once", is_flag=True, help="Look once and end.")
def watch(
    run: str,
    every: float,
    kinds: tuple[str, ...],
    stopped_after: float,
    webhook: str | None,
    keep_going: bool,
    once: bool,
) -> int:
    """Look at a run now and then while it goes on, and say what is worth knowing at once.

    RUN is what 'xladoctor profile -o' was given. Ends with the first alert, or with the run.
    """
    if not runs.is_shared(run):
        raise UsageError(f"{run}: no run of several hosts: give what 'profile -o' was given")
    if webhook is not None and not webhook.startswith(("https://", "http://")):
        raise UsageError("--webhook takes an address that begins with https:// or http://")
    location = located(run)
    watcher = Watcher(stopped_after, frozenset(kinds or KINDS))
    console = Console(stderr=True, highlight=False)
    alarmed = False
    said = ""
    while True:
        try:
            report, found = _look(location)
        except StorageError as error:
            if once or (not error.passing and not said):
                raise  # refused from the first: no later look will do better
            line, alerts, over = f"{error}; trying again", [], False  # it may come back
        else:
            line, over = _state(report, found), is_over(found)
            alerts = watcher.look(report, found, time.monotonic())
        if line != said:
            console.print(f"xladoctor: {line}", soft_wrap=True, markup=False)
            said = line
        for alert in alerts:
            alarmed = True
            click.echo(f"{alert.kind}: {alert.message}")
            if webhook is not None:
                _post(webhook, alert, location, console)
        if over or once or (alarmed and not keep_going):
            return int(alarmed)
        time.sleep(every)


def _look(location: Location) -> tuple[Report, parts.Found]:
    found = parts.find(location)
    with tempfile.TemporaryDirectory(prefix="xladoctor-watch-") as folder:
        read = runs.read_shared(location, jobs=os.cpu_count() or 1, folder=Path(folder))
        return diagnosis.diagnose(read), found


def _state(report: Report, found: parts.Found) -> str:
    going = sum(not line[-1].ended for line in found.hosts.values())
    medians = [one.step_seconds_median for one in report.cores if one.step_seconds_median]
    usual = (
        f", typically {words.seconds(sorted(medians)[len(medians) // 2])} each" if medians else ""
    )
    return (
        f"{words.number(report.summary.steps)} steps{usual}; {words.number(report.summary.cores)} "
        f"cores on {len(found.hosts)} host{'s' * (len(found.hosts) > 1)}, {going} still running"
    )


def _post(webhook: str, alert: Alert, location: Location, console: Console) -> None:
    """Tell whoever listens; an address may hold a secret, so it is never shown."""
    body = {
        "text": f"{location.url}: {alert.message}",
        "kind": alert.kind,
        "cores": list(alert.cores),
        "hosts": list(alert.hosts),
        "run": location.url,
    }
    request = urllib.request.Request(  # noqa: S310  (its scheme was looked at)
        webhook, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_WEBHOOK):  # noqa: S310
            pass
    except (OSError, ValueError) as error:
        console.print(
            f"xladoctor: the webhook did not take the alert ({type(error).__name__})", markup=False
        )
