"""The agent in this very process, for ``xladoctor.profile()``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from xladoctor.errors import UsageError

_HERE = Path(__file__).resolve().parent


def agent() -> Any:
    """The agent's ``session`` module, loaded as the bootstrap does: one agent per process.

    Raises:
        UsageError: torch_xla is not installed, or the process is one of TorchTPU's.
    """
    if "torch_tpu" in sys.modules and "torch_xla" not in sys.modules:
        raise UsageError(
            "xladoctor.profile() records stretches of torch_xla's programs; one for TorchTPU is "
            "recorded as a whole: xladoctor profile -- python train.py"
        )
    try:
        import torch_xla  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"xladoctor.profile() needs torch_xla in this Python ({error}): "
            'pip install "xladoctor[xla]"'
        ) from error
    if "_xladoctor" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "_xladoctor", _HERE / "__init__.py", submodule_search_locations=[str(_HERE)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["_xladoctor"] = package
        spec.loader.exec_module(package)
    return importlib.import_module("_xladoctor.agent.session")
