"""The machine-readable form; its keys are fixed by the contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from xladoctor.results import to_json

if TYPE_CHECKING:
    from xladoctor.results import Report


def render(report: Report) -> str:
    """One JSON object, indented."""
    return json.dumps(to_json(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
