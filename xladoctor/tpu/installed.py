"""Whether the TPU compiler is on this machine, and which."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import platform
import sys

from xladoctor.errors import MissingExtra, XladoctorError


def why_not() -> XladoctorError | None:
    """Why the TPU compiler cannot be asked here, as one sentence; None if it can."""
    machine = platform.machine().lower()
    here = f"{platform.system()} on {machine}, Python {platform.python_version()}"
    if sys.platform != "linux" or machine not in ("x86_64", "amd64"):
        return XladoctorError(
            "--tpu: libtpu exists for Linux on x86-64 only, and this is "
            f"{here}: take the run directory to such a machine and run "
            "'xladoctor report RUN --tpu TARGET' there"
        )
    missing = [name for name in ("jaxlib", "libtpu") if importlib.util.find_spec(name) is None]
    if missing and not (3, 11) <= sys.version_info[:2] <= (3, 12):
        return XladoctorError(
            f"--tpu: jaxlib 0.7.1 and libtpu 0.0.21 exist for Python 3.11 and 3.12, and this is "
            f"{here}: install xladoctor[tpu] with one of these and run "
            "'xladoctor report RUN --tpu TARGET' there"
        )
    if missing:
        return MissingExtra("costs on a TPU (--tpu)", missing[0], "tpu")
    return None


def compiler_version() -> str:
    """Name and version ("libtpu 0.0.21"), or the name alone if it is not installed as a package."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"libtpu {importlib.metadata.version('libtpu')}"
    return "libtpu"
