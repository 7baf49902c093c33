"""Small graphs as HLO text (invented), and as what a run directory holds."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from xladoctor.readings.wire import field
from xladoctor.tpu import compiler, modules

if TYPE_CHECKING:
    from pathlib import Path

#: Tests with this mark compile for real; they need the extra ``tpu``.
real = pytest.mark.skipif(
    compiler.why_not() is not None, reason="needs xladoctor[tpu]: Linux on x86-64, Python 3.11/3.12"
)


def _where(operation: str, row: int) -> str:
    return f'metadata={{op_name="{operation}" source_file="/p/train.py" source_line={row}}}'


def product(rows: int, inner: int, columns: int, dtype: str = "f32", row: int = 12) -> str:
    """A matrix product, as torch_xla traces ``a @ b`` in some row of train.py."""
    contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    shape = f"{dtype}[{rows},{columns}]{{1,0}}"
    return f"""HloModule product
ENTRY main {{
  a = {dtype}[{rows},{inner}]{{1,0}} parameter(0)
  b = {dtype}[{inner},{columns}]{{1,0}} parameter(1)
  ROOT d = {shape} dot(a, b), {contracted}, {_where("aten__mm", row)}
}}"""


def large(gigabytes: int) -> str:
    """A graph whose argument, result and what is between are of so many GiB each."""
    shape = f"f32[1024,{gigabytes * 2**28 // 1024}]{{1,0}}"
    return f"""HloModule large
ENTRY main {{
  a = {shape} parameter(0)
  b = {shape} exponential(a), {_where("aten__exp", 7)}
  r = {shape} reverse(b), dimensions={{1}}, {_where("aten__flip", 8)}
  c = {shape} add(b, r), {_where("aten__add", 9)}
  d = {shape} reverse(c), dimensions={{0}}, {_where("aten__flip", 10)}
  ROOT e = {shape} add(d, c), {_where("aten__add", 11)}
}}"""


def module(text: str) -> bytes:
    """Text as a serialized ``HloModuleProto``."""
    import jaxlib._jax as jax

    found: bytes = jax.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return found


def prepared(text: str) -> modules.Prepared:
    """Text, ready to be compiled."""
    return modules.prepare(module(text))


def recorded(text: str, path: Path) -> Path:
    """Text as a run directory keeps it (``HloProto``, packed)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(field(1, module(text))))
    return path


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if packages were not installed."""
    find = importlib.util.find_spec
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name in names else find(name, package),
    )
