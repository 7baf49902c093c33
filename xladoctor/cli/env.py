"""``xladoctor env``: versions and what works here, for bug reports."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata
from typing import Any

import click

from xladoctor import __version__
from xladoctor.capture.command import Versions
from xladoctor.tpu.installed import why_not

_PACKAGES = (
    "torch", "torch_xla", "libtpu", "jaxlib", "torchvision", "lightning", "pytorch-lightning",
    "accelerate", "transformers", "numpy", "pandas", "libcst", "rich", "click", "jinja2",
)  # fmt: skip

#: Variables that decide how torch_xla runs or that xladoctor reads.
_VARIABLES = (
    "PJRT_DEVICE", "CPU_NUM_DEVICES", "XLA_FLAGS", "XLA_USE_BF16", "XLA_DOWNCAST_BF16",
    "XLA_USE_SPMD", "XLA_IR_DEBUG", "XLA_HLO_DEBUG", "PT_XLA_DEBUG", "PT_XLA_DEBUG_LEVEL",
    "XRT_TPU_CONFIG", "PYTHONPATH",
)  # fmt: skip

_NOTE = "found without importing torch: an installation that is broken inside does not show"


@click.command()
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def env(output_format: str) -> None:
    """Show versions and what works here.

    Nothing is imported to find out: versions come from the installed packages' own records.
    """
    facts = describe()
    if output_format == "json":
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(_as_text(facts))


def describe() -> dict[str, Any]:
    """Versions, variables, what works and what is wrong here, ready for JSON."""
    packages = {name: _version(name) for name in _PACKAGES}
    problems = _problems(packages)
    xla = Versions(packages["torch"], packages["torch_xla"]).problem() is None
    return {
        "xladoctor": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpus": _cpus(),
        "packages": packages,
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "works": {
            "lint": packages["libcst"] is not None,
            "profile --simulate-cores": xla and sys.platform == "linux",
            "report": True,
            "--tpu": why_not() is None,
            "report as data frames": packages["pandas"] is not None,
        },
        "problems": problems,
        "note": _NOTE,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _problems(packages: dict[str, str | None]) -> list[str]:
    problems = []
    wrong = Versions(packages["torch"], packages["torch_xla"]).problem()
    if wrong is not None:
        problems.append(wrong)
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        problems.append(
            f"Python {platform.python_version()} is not supported: use Python 3.10 to 3.13"
        )
    problems += [
        f"{name} is set and does nothing in torch_xla 2.9: unset {name}"
        for name in ("XLA_USE_BF16", "XLA_DOWNCAST_BF16", "XRT_TPU_CONFIG")
        if name in os.environ
    ]
    if "PJRT_DEVICE" not in os.environ and packages["torch_xla"] and not packages["libtpu"]:
        problems.append(
            "PJRT_DEVICE is not set, so torch_xla picks a device by itself: set PJRT_DEVICE=CPU or "
            "TPU, or profile with --simulate-cores, which sets it"
        )
    return problems


def _as_text(facts: dict[str, Any]) -> str:
    rows = [
        ("xladoctor", facts["xladoctor"]),
        ("python", f"{facts['python']} ({facts['executable']})"),
        ("platform", facts["platform"]),
        ("CPUs", facts["cpus"]),
        *((name, version or "not installed") for name, version in facts["packages"].items()
          if version or name in ("torch", "torch_xla", "pandas")),
        *facts["environment"].items(),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += ["", "works here:"]
    lines += [f"  {'yes' if works else 'no ':<3}  {what}" for what, works in facts["works"].items()]
    if facts["problems"]:
        lines += ["", "problems:", *(f"  {problem}" for problem in facts["problems"])]
    lines += ["", f"({facts['note']})"]
    return "\n".join(lines)
