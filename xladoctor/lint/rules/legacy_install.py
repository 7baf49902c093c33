"""XLA716: the installation of a torch_xla that current TPUs and Pythons do not run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from xladoctor.lint.rules import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xladoctor.lint.model import FileModel, Problem
    from xladoctor.lint.model.file import Place

_RUNS = (
    "os.system",
    "os.popen",
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.Popen",
)
#: What a command fetches or installs, and what was wrong with it.
_LEGACY = (
    (r"env-setup\.py", "env-setup.py installs the XRT runtime, which was removed in torch_xla 2.1"),
    (r"cloud[-_]tpu[-_]client", "cloud-tpu-client is for TPU nodes, which no longer exist"),
    (
        r"tpu-pytorch/wheels|torch_xla-(?:1\.\d|nightly)",
        "these wheels of torch_xla are for Python 3.6 to 3.8 and the XRT runtime",
    ),
    (r"\btorch[-_]xla(?:\[\w+\])?==\s*1\.", "torch_xla 1.x has the XRT runtime, removed in 2.1"),
)
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in _LEGACY)
#: The first release without XRT.
_SINCE = (2, 1)


@rule("XLA716")
def legacy_install(model: FileModel) -> Iterator[Problem]:
    """Find commands that install torch_xla as in the days of TPU nodes."""
    if model.target < _SINCE:
        return
    for number, line in model.shell:
        why = _legacy(line)
        if why is not None:
            yield _problem(model, model.place_of_row(number), why)
    for call in model.calls():
        if call.name in _RUNS or call.method in {"system", "getoutput"}:
            text = " ".join(_texts(model, call.node))
            why = _legacy(text)
            if why is not None:
                yield _problem(model, call.node, why)


def _legacy(line: str) -> str | None:
    return next((why for pattern, why in _PATTERNS if pattern.search(line)), None)


def _texts(model: FileModel, call: cst.Call) -> Iterator[str]:
    """The literal words of a command: one text, or a list of them."""
    for argument in call.args:
        items = [argument.value]
        if isinstance(argument.value, cst.List | cst.Tuple):
            items = [element.value for element in argument.value.elements]
        for item in items:
            value = model.literal(item)
            if isinstance(value, str):
                yield value


def _problem(model: FileModel, place: Place | cst.CSTNode, why: str) -> Problem:
    return model.problem(
        place,
        f"{why}: on a TPU machine of today it fails or breaks the installation",
        suggestion='pip install torch "torch_xla[tpu]" -f '
        "https://storage.googleapis.com/libtpu-releases/index.html (equal versions of both)",
    )
