"""The parts of a run: which hosts have written, which are missing, twice, cut or of another run."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladoctor.errors import SourceError, StorageError
from xladoctor.readings import fields
from xladoctor.store.upload import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xladoctor.store.locations import Location

#: Seconds by which the end of one part may seem to come after the begin of the one that follows it.
_SLACK = 30.0

#: More hosts than any run has: what an invented record may ask for.
_MOST_HOSTS = 200_000

_PLACE = re.compile(r"hosts/([^/]+)/([^/]+)/(.+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What one incarnation of one host has written.

    Attributes:
        label: The host, as its folder is called; of two with one name, with the machine's.
        name: The part's folder, relative to the run's.
        files: Names relative to that folder, and sizes.
        run: The run's name; None if nobody gave it one.
        hosts: How many hosts there are, as this one knows; None if it does not.
        hostname: The machine's name.
        started, flushed: Unix seconds of that host; None if not known.
        ended: Whether nothing more will come.
        complete: Whether its command ended well.
    """

    label: str
    name: str
    files: Mapping[str, int]
    run: str | None = None
    hosts: int | None = None
    hostname: str | None = None
    started: float | None = None
    flushed: float | None = None
    ended: bool = False
    complete: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The parts of one run, by host in order, each host's in the order of time."""

    hosts: Mapping[str, tuple[Part, ...]]
    notes: tuple[str, ...]


def find(location: Location) -> Found:
    """Which parts a run has.

    Raises:
        SourceError: There are none, or none of the run that is asked for.
        StorageError: The location cannot be read.
    """
    notes: list[str] = []
    parts = _parts(location, notes)
    if not parts:
        raise SourceError(
            f"{location.url}: no host has left anything here: give the address that "
            "'xladoctor profile -o' was given"
        )
    chosen = _of_one_run(location, parts, notes)
    by_host: dict[str, list[Part]] = {}
    for part in chosen:
        by_host.setdefault(part.label, []).append(part)
    hosts: dict[str, tuple[Part, ...]] = {}
    for label in sorted(by_host, key=order):
        for name, line in _told_apart(label, by_host[label], notes).items():
            hosts[name] = tuple(_after_success(line, notes))
    notes += _missing(hosts)
    return Found(hosts, tuple(notes))


def order(label: str) -> list[tuple[int, int, str]]:
    """What hosts are sorted by: their numbers as numbers."""
    words = re.findall(r"\d+|\D+", label)
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _parts(location: Location, notes: list[str]) -> list[Part]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for name, size in location.sizes("hosts").items():
        match = _PLACE.fullmatch(name)
        if match:
            found.setdefault((match[1], match[2]), {})[match[3]] = size
    small = [
        f"hosts/{label}/{incarnation}/{name}"
        for (label, incarnation), files in sorted(found.items())
        for name in ("part.json", "manifest.json")
        if name in files
    ]
    read = location.read_many(small)
    parts = []
    for (label, incarnation), files in sorted(found.items()):
        name = f"hosts/{label}/{incarnation}"
        facts = _json(read.get(f"{name}/part.json", b"{}"), label, notes)
        manifest = (
            {} if facts is None else _json(read.get(f"{name}/manifest.json", b"{}"), label, notes)
        )
        if facts is None or manifest is None:
            continue
        started = fields.moment(facts.get("started")) or fields.moment(manifest.get("started"))
        parts.append(
            Part(
                label=label,
                name=name,
                files=files,
                run=fields.text(facts.get("run")),
                hosts=fields.integer(facts.get("hosts")),
                hostname=fields.text(facts.get("hostname")),
                started=started if started is not None else _begun(incarnation),
                flushed=fields.moment(facts.get("flushed")),
                ended=facts.get("ended") is True,
                complete=manifest.get("complete") is True,
            )
        )
    return parts


def _begun(incarnation: str) -> float | None:
    head = incarnation.partition("-")[0]
    return int(head) / 1000 if head.isdecimal() and len(head) < 16 else None


def _json(text: bytes | StorageError, label: str, notes: list[str]) -> dict[str, Any] | None:
    """A small file of a part; None (and a note) if the part cannot be read by us."""
    if isinstance(text, StorageError):
        # Without the address of the file: what many hosts say is one sentence.
        notes.append(f"host {label} was left out: {str(text).partition(': ')[2]}")
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}  # cut: what else is there is still read
    if not isinstance(data, dict) or not data:
        return {}
    if data.get("schema_version") != VERSION:
        notes.append(
            f"host {label} was left out: it was written in form {data.get('schema_version')!r}, "
            f"and this xladoctor reads form {VERSION}"
        )
        return None
    return data


def _of_one_run(location: Location, parts: Sequence[Part], notes: list[str]) -> list[Part]:
    runs: dict[str | None, list[Part]] = {}
    for part in parts:
        runs.setdefault(part.run, []).append(part)
    if location.wanted is not None:
        if location.wanted not in runs:
            names = ", ".join(sorted(name for name in runs if name)) or "no named run"
            raise SourceError(
                f"{location.url}: there is no run {location.wanted!r} here, but {names}"
            )
        return runs[location.wanted]
    if len(runs) == 1:
        return list(parts)
    begun = {
        name: min((part.started for part in of if part.started is not None), default=0.0)
        for name, of in runs.items()
    }
    newest = max(runs, key=lambda name: (begun[name], name or ""))
    others = [name for name in sorted(runs, key=lambda name: begun[name]) if name != newest]
    # A path may hold a "#" of its own: only addresses name a run of several.
    address = location.url if "://" in location.url else f"file://{Path(location.url).absolute()}"
    named = [f"{address}#{name}" for name in others if name]
    notes.append(
        f"{len(runs)} runs are in one folder: this is the newest, {newest or 'which has no name'} "
        f"({_moment(begun[newest])})"
        + (f"; the others are {_few(named)}" if named else "; the other one has no name")
    )
    return runs[newest]


def _after_success(parts: list[Part], notes: list[str]) -> list[Part]:
    """What a host has left since it last ended well: what came after that was another run."""
    done = [at for at, part in enumerate(parts[:-1]) if part.complete and part.ended]
    if done:
        notes.append(
            f"host {parts[0].label}: an earlier run in the same folder, which ended well, was left "
            f"out (begun {_moment(parts[done[-1]].started)})"
        )
        return parts[done[-1] + 1 :]
    return parts


def _told_apart(label: str, parts: list[Part], notes: list[str]) -> dict[str, list[Part]]:
    """The lines of incarnations that a host's name stands for: two at one time are two hosts."""
    lines: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: (part.started or 0.0, part.name)):
        for line in lines:
            last = line[-1].flushed
            if last is None or part.started is None or last <= part.started + _SLACK:
                line.append(part)
                break
        else:
            lines.append([part])
    if len(lines) == 1:
        return {label: lines[0]}
    names = [line[0].hostname or line[0].name.rpartition("/")[2] for line in lines]
    notes.append(
        f"host {label} is there {_times(len(lines))} at the same time ({', '.join(names)}): they "
        "are shown as different hosts; set XLADOCTOR_HOST where the launcher numbers them wrongly"
    )
    found: dict[str, list[Part]] = {}
    for at, (name, line) in enumerate(zip(names, lines, strict=True), 1):
        shown = f"{label} ({name})" if names.count(name) == 1 else f"{label} ({name}, {at})"
        found[shown] = [dataclasses.replace(part, label=shown) for part in line]
    return found


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _missing(hosts: Mapping[str, Sequence[Part]]) -> list[str]:
    expected = max((part.hosts or 0 for line in hosts.values() for part in line), default=0)
    numbers = {int(head) for label in hosts if (head := re.split(r"[. ]", label)[0]).isdecimal()}
    if not expected or expected > _MOST_HOSTS or (len(numbers) < len(hosts) and not numbers):
        return []
    if not numbers or max(numbers) >= expected:
        return []
    gone = sorted(set(range(expected)) - numbers)
    if not gone:
        return []
    others = expected - len(gone)
    said = f"{ranges(gone, 'host')} of {expected} left nothing here: what follows is of the other"
    return [f"{said} {others}"]


def ranges(numbers: Iterable[int], word: str) -> str:
    """Numbers in words: ``host 3``, ``hosts 0-2 and 5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    names = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    many = len(names) > 1 or len(runs[0]) > 1
    return f"{word}{'s' * many} {_few(names)}"


def labels(names: Sequence[str]) -> str:
    """Hosts in words, numbered ones as ranges."""
    if all(name.isdecimal() for name in names):
        return ranges(map(int, names), "host")
    return f"host{'s' * (len(names) > 1)} {_few(sorted(names, key=order))}"


def _few(names: Sequence[str], most: int = 8) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


_LEFT_OUT = re.compile(r"host (.+?) was left out: (.+)", re.DOTALL)


def gathered(notes: Iterable[str]) -> list[str]:
    """Sentences, those on hosts that were left out for one reason as one."""
    hosts: dict[str, list[str]] = {}
    found: dict[str, None] = {}
    for note in notes:
        match = _LEFT_OUT.fullmatch(note)
        found[match[2] if match else note] = None
        if match:
            hosts.setdefault(match[2], []).append(match[1])
    return [
        f"{labels(hosts[text])} {'were' if len(hosts[text]) > 1 else 'was'} left out: {text}"
        if text in hosts
        else text
        for text in found
    ]


def by_hosts(said: Iterable[tuple[str, str]], count: int) -> list[str]:
    """Sentences of hosts, each once, with the hosts that say it where not all do.

    Args:
        said: Host and sentence.
        count: How many hosts there are.
    """
    hosts: dict[str, dict[str, None]] = collections.defaultdict(dict)
    for label, sentence in said:
        hosts[sentence][label] = None
    lines = [
        sentence if len(names) == count > 1 or count == 1 else f"{labels(list(names))}: {sentence}"
        for sentence, names in hosts.items()
    ]
    most = 20
    if len(lines) > most:
        lines[most:] = [f"{len(lines) - most} more notes of hosts are left out"]
    return lines


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "at an unknown time"
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.timezone.utc):%Y-%m-%d %H:%M} UTC"
