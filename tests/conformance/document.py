"""The table of upstream's tests for people: ``docs/conformance.md``."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from tests.conformance.table import OWNERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.execution import Outcome
    from tests.conformance.table import Table

#: Why a test is not the simulation's that fails on torch_xla's own CPU device too.
SAME_WITHOUT = "ends the same way without xladoctor, on torch_xla's own CPU device"


def summary(known: Table, outcomes: Sequence[Outcome]) -> str:
    return ""


def page(known: Table, outcomes: Sequence[Outcome]) -> str:
    return ""
