"""Whose fault an error on simulated cores is: the program's, the CPU device's, the simulation's.

The message on stderr and the finding XLA411 both ask :func:`of`. What is not in the table here is
not guessed: most texts of torch and XLA say nothing of the device.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
from typing import NamedTuple

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_OWN_WORDS = "xladoctor: "

#: The owners of a fault.
PROGRAM, CPU, SIMULATION = "program", "cpu", "simulation"


class Fault(NamedTuple):
    """Whose fault an error is.

    Attributes:
        whose: :data:`PROGRAM`, :data:`CPU` or :data:`SIMULATION`.
        because: What shows it, as a clause.
    """

    whose: str
    because: str


_SHAPES = Fault(PROGRAM, "shapes are checked while the graph is built, before any device is asked")
_RANGES = Fault(PROGRAM, "torch_xla refuses dimensions that are not there, and slices that begin "
                         "before their tensor (XLA322), before any device is asked")  # fmt: skip
_MIXED = Fault(PROGRAM, "torch_xla takes no CPU tensor here, on any device")
_CALLS = Fault(PROGRAM, "Python itself refuses the line, before any device is asked")

#: What "Type: message" looks like, and whose fault that is. The texts were seen with torch and
#: torch_xla 2.9.0 on the CPU device.
TABLE: tuple[tuple[re.Pattern[str], Fault], ...] = tuple(
    (re.compile(pattern, re.DOTALL), fault)
    for pattern, fault in (
        (r"^RuntimeError: Cannot infer shape for ", _SHAPES),
        (r"^RuntimeError: Shapes are not compatible for broadcasting", _SHAPES),
        (r"^RuntimeError: \w+\(\): cannot (matrix-multiply tensors|concatenate tensors)", _SHAPES),
        (r"^RuntimeError: shape '\[.*\]' is invalid for input of size ", _SHAPES),
        (r"^RuntimeError: Value out of range \(expected to be in range of \[", _RANGES),
        (r"^RuntimeError: Expected XLA tensor\. Got: torch\.\w+Tensor", _MIXED),
        (r"Unexpected execution happens inside the compiled function",
         Fault(PROGRAM, "torch_xla.compile(full_graph=True) forbids what ends a graph inside it")),
        (r"XLA device type not an accelerator",
         Fault(PROGRAM, "torch has no generators of random numbers on XLA devices (XLA502)")),
        (r"^(NameError|UnboundLocalError): ", _CALLS),
        (r"^AttributeError: module '", _CALLS),
        (r"^ValueError: (not enough|too many) values to unpack", _CALLS),
        (r"^TypeError: .*(unexpected keyword|missing \d+ required|arguments? but \d)", _CALLS),
        (r"^TypeError: unsupported operand type\(s\)", _CALLS),
        (r"GetAllocatorStats is not supported",
         Fault(CPU, "the CPU device keeps no account of its memory")),
        (r"Only interpret mode is supported on CPU backend",
         Fault(CPU, "Pallas kernels are compiled for TPUs only")),
        (r"^MemoryError|std::bad_alloc|DefaultCPUAllocator: (can't allocate|not enough) memory",
         Fault(CPU, "the memory of this machine ran out, which all simulated cores share")),
        (r"expected device xla:(\d+) but got xla:(?!\1\b)\d",
         Fault(SIMULATION, "two cores' devices met in one operation, which only cores in one "
                           "process can do")),
    )
)  # fmt: skip

#: A program's own complaint that is about the device says nothing of a TPU.
_OF_THE_DEVICE = re.compile(r"tpu|device|pjrt|accelerator|cores?\b|world.?size", re.IGNORECASE)

#: What Python raises in our own code only if that code is wrong: torch's bindings, which our
#: wrappers call, raise none of them.
_OUR_MISTAKES = (AttributeError, NameError, KeyError, AssertionError)


def began(error: BaseException) -> BaseException:
    """The error that an error is a consequence of.

    What a library raises on its way out (a ``finally``, the end of a ``with``) while another error
    passes through hides the reason; what the program's own line raises is meant, and so is what a
    library says instead of an error that it has caught.
    """
    while error.__context__ is not None and error.__cause__ is None:
        last = next(reversed(traceback.extract_tb(error.__traceback__)), None)
        if error.__suppress_context__ or last is None or not _installed(last.filename):
            break
        if _raises(last):
            break
        error = error.__context__
    return error


def of(error: BaseException) -> Fault | None:
    """Whose fault an error is.

    Args:
        error: What a core raised, with its traceback.

    Returns:
        The fault with its evidence; None if the error does not tell, or says so itself (what the
        simulation refuses, it explains).
    """
    error = began(error)
    text = f"{type(error).__name__}: {error}"
    if str(error).startswith(_OWN_WORDS):
        return None
    last = next(reversed(traceback.extract_tb(error.__traceback__)), None)
    ours = last is not None and last.filename.startswith(_OURS)
    if ours and isinstance(error, _OUR_MISTAKES):
        return Fault(SIMULATION, "it was raised inside xladoctor's own code")
    found = next((fault for pattern, fault in TABLE if pattern.search(text)), None)
    if found is not None:
        # Arguments that do not fit may be those that a wrapper has changed.
        return None if ours and found is _CALLS else found
    if last is None or _installed(last.filename) or _OF_THE_DEVICE.search(text):
        return None
    if _raises(last):
        return Fault(PROGRAM, "the program's own line raises it")
    return None


def told(error: BaseException) -> tuple[str | None, str] | None:
    """Whose fault an error is, in words for whoever reads the traceback or the finding.

    Args:
        error: What a core raised, with its traceback.

    Returns:
        The owner (None if the error does not tell) and a clause; None for what the simulation
        refuses, which says so itself.
    """
    if str(began(error)).startswith(_OWN_WORDS):
        return None
    fault = of(error)
    if fault is None:
        return None, "the error does not tell whether a TPU would do the same"
    if fault.whose == PROGRAM:
        return PROGRAM, f"a TPU would do the same: {fault.because}"
    if fault.whose == CPU:
        return CPU, (
            f"the CPU's fault, not your program's: {fault.because}; a TPU would not raise this"
        )
    return SIMULATION, (
        f"the simulation's fault, not your program's: {fault.because}; please report it with the "
        "program, the traceback, the run directory, and the versions of torch and torch_xla"
    )


def _raises(frame: traceback.FrameSummary) -> bool:
    """Whether the line of a frame is a ``raise``."""
    return linecache.getline(frame.filename, frame.lineno or 0).strip().startswith("raise ")


def _installed(path: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to us."""
    return (
        path.startswith((_OURS, os.path.dirname(os.__file__) + os.sep))
        or f"{os.sep}site-packages{os.sep}" in path
        or f"{os.sep}dist-packages{os.sep}" in path
    )
