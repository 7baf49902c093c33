"""``xladoctor probe``: measure on the installed torch_xla what operations do."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xladoctor.probe.differences import Difference
    from xladoctor.probe.idioms import Idiom


@click.command(
    epilog="Exit code: 0 measured, 1 with --diff if something differs, 2 bad flag or no torch_xla."
)
@click.option("--only", metavar="TEXT", help="Only idioms whose code or group contains TEXT.")
@click.option("--list", "list_only", is_flag=True, help="List the idioms and measure nothing.")
@click.option(
    "--values", is_flag=True, help="Measure results that differ from PyTorch's on the CPU instead."
)
@click.option("--diff", is_flag=True, help="Show what differs from the table.")
@click.option("--against", type=click.Path(), help="The table for --diff.  [default: ours]")
@click.option("-o", "--output-file", type=click.Path(dir_okay=False), help="Write the table there.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "toml"]),
    default="text",
    show_default=True,
    help="How to show what was measured.",
)
@click.option("--device", metavar="NAME", help="PJRT device.  [default: $PJRT_DEVICE, or CPU]")
@click.option(
    "--python", metavar="FILE", help="The Python that has torch_xla.  [default: this one]"
)
def probe(
    only: str | None,
    list_only: bool,
    values: bool,
    diff: bool,
    against: str | None,
    output_file: str | None,
    output_format: str,
    device: str | None,
    python: str | None,
) -> int:
    """Measure what each operation and idiom does on an XLA tensor.

    Does it wait for the device, cut the graph, run on the CPU, compile anew for other values? The
    linter's table of operations is made so; about a second for each idiom.
    """
    from xladoctor import catalogue
    from xladoctor.errors import UsageError
    from xladoctor.probe import table
    from xladoctor.probe.idioms import idioms

    name = device or os.environ.get("PJRT_DEVICE") or "CPU"
    python = python or sys.executable
    if values:
        _refuse(list_only or against or output_file or output_format == "toml")
        return _values(only or "", name, python, diff=diff, as_json=output_format == "json")
    chosen = [item for item in idioms() if only is None or only in item.name or only == item.group]
    if not chosen:
        raise UsageError(
            f"--only {only}: no idiom contains this; 'xladoctor probe --list' shows all"
        )
    if list_only:
        for item in chosen:
            click.echo(f"{item.group:14} {item.name}")
        return 0
    if against and not diff:
        raise UsageError("--against says what --diff compares with: give --diff too")
    base = table.read(Path(against)) if against else catalogue.table("ops")
    versions, rows = _measured(chosen, name, python)
    versions["device"] = name
    if output_file:
        _write(Path(output_file), versions, rows)
    if diff:
        return _show_differences(base, versions, rows, output_format)
    if output_format == "json":
        click.echo(json.dumps({**versions, "measured": rows}, indent=2))
    elif output_format == "toml":
        click.echo(table.render(versions, rows), nl=False)
    elif not output_file:
        for row in rows:
            click.echo(f"{row['name']:60} {_words(row)}")
    return 0


def _refuse(other_options: object) -> None:
    """Options that mean nothing for ``--values``."""
    from xladoctor.errors import UsageError

    if other_options:
        raise UsageError(
            "--values goes with --only, --diff, --device, --python and --output-format json"
        )


def _measured(
    idioms: Sequence[Idiom], device: str, python: str
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Versions and rows that the worker writes."""
    from xladoctor.errors import UsageError

    versions: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    with click.progressbar(length=len(idioms), label="Measuring", file=sys.stderr) as bar:
        for line in _worker(idioms, device, python):
            if "versions" in line:
                versions.update(line["versions"])
            else:
                rows.append(line)
                bar.update(1)
    if not versions:
        raise UsageError(
            f"--python {python}: it measured nothing: name a Python that has torch_xla"
        )
    return versions, rows


def _values(only: str, device: str, python: str, *, diff: bool, as_json: bool) -> int:
    """Measure the expressions of the table of differences on the CPU and on the device."""
    from xladoctor.errors import UsageError
    from xladoctor.probe.differences import differences

    known = {item.code: item for item in differences() if only in item.code}
    if not known:
        raise UsageError(f"--only {only}: no expression of the table of differences contains this")
    rows = [row for row in _rows("values.py", list(known), device, python) if "name" in row]
    changed = [row for row in rows if _shows(row) != _shows(_told(known[row["name"]]))]
    shown = changed if diff else rows
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        for row in shown:
            told = known[row["name"]]
            before = f" (the table: {told.cpu} and {told.xla})" if row in changed else ""
            click.echo(f"{row['name']}\n    CPU {row['cpu']}, XLA {row['xla']}{before}")
    differ = sum(row["cpu"] != row["xla"] for row in rows)
    click.echo(
        f"{differ} of {len(rows)} expressions give something else on {device} than PyTorch on the "
        f"CPU; {len(changed)} are not as the table says.",
        err=True,
    )
    return 1 if diff and changed else 0


def _told(item: Difference) -> dict[str, str]:
    """What the table says of an expression, in the form of a measured row."""
    return dataclasses.asdict(item)


def _shows(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["cpu"], row["xla"]


def _worker(idioms: Sequence[Idiom], device: str, python: str) -> Iterator[dict[str, Any]]:
    """What the worker measures of idioms."""
    asked = [{"name": item.name, **dataclasses.asdict(item)} for item in idioms]
    return _rows("worker.py", asked, device, python)


def _rows(script_name: str, asked: object, device: str, python: str) -> Iterator[dict[str, Any]]:
    """The rows that a script of ``probe`` writes in the Python that has torch_xla."""
    from xladoctor.errors import UsageError

    script = Path(__file__).resolve().parents[1] / "probe" / script_name
    environment = {**os.environ, "PJRT_DEVICE": device}
    # Files, not pipes: who ends without having read all, or says much, keeps nobody waiting.
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile() as said:
        json.dump(asked, given)
        given.seek(0)
        try:
            process = subprocess.Popen(
                [python, str(script)],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise UsageError(f"--python {python}: {error.strerror}") from error
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                row = _row(line)
                if row is not None:
                    yield row
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    if process.returncode != 0:
        raise UsageError(_why_it_ended(python, process.returncode, text))


def _row(line: str) -> dict[str, Any] | None:
    """A line of the worker; None for what a library printed between."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and ("versions" in row or "name" in row) else None


def _why_it_ended(python: str, code: int, said: str) -> str:
    if "No module named 'torch" in said:
        return (
            f"{python} has no torch_xla to measure: pip install 'xladoctor[xla]', or name "
            "another Python with --python"
        )
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    return f"the measuring process ended with code {code}: {last}"


def _write(path: Path, versions: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table; a file that is one already keeps what was written into it by hand."""
    from xladoctor.errors import UsageError
    from xladoctor.probe import table

    try:
        if path.exists():
            text = table.update(path.read_text(encoding="utf-8"), versions, rows)
        else:
            text = table.render(versions, rows)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output-file {path}: {error.strerror}") from error
    click.echo(f"Wrote {len(rows)} rows to {path}.", err=True)


def _show_differences(
    base: Mapping[str, Any],
    versions: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    output_format: str,
) -> int:
    from xladoctor.probe import table

    found = table.differences(base["measured"], rows)
    if output_format == "json":
        listed = [
            {"name": name, "changes": [{"key": k, "before": b, "after": a} for k, b, a in changes]}
            for name, changes in found
        ]
        click.echo(json.dumps(listed, indent=2))
    else:
        for name, changes in found:
            said = "; ".join(f"{key}: {before} -> {after}" for key, before, after in changes)
            click.echo(f"{name}\n    {said}")
    known = {row["name"] for row in base["measured"]}
    both = sum(row["name"] in known for row in rows)
    new = f", {len(rows) - both} are not in the table" if both < len(rows) else ""
    click.echo(
        f"torch_xla {base['torch_xla']} on {base['device']} and {versions['torch_xla']} on "
        f"{versions['device']}: {len(found)} of {both} idioms differ{new}.",
        err=True,
    )
    return 1 if found else 0


def _words(row: Mapping[str, Any]) -> str:
    """What a row says, in words."""
    if "error" in row:
        return f"raises {row['error']}"
    said = []
    if row["sync"]:
        said.append("waits for the device")
    if row["cut"]:
        said.append("cuts the graph")
    if row["fallback"]:
        said.append(f"runs on the CPU ({', '.join(row['fallback'])})")
    if row["constant"]:
        said.append(f"compiles {row['constant']} times in 3 equal steps")
    if row["varying"]:
        said.append(f"compiles {row['varying']} times in 5 steps with other values")
    return ", ".join(said) or "stays on the device"
