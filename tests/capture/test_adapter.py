"""What the agent touches of torch_xla it asks for by name, in one adapter: it may be missing."""

from __future__ import annotations

import ast
from pathlib import Path

from xladoctor.capture.agent import xla

AGENT = Path(xla.__file__).parent
#: The modules that may lay hands on torch_xla and its bindings, always through a probe.
ADAPTER = {"xla.py", "wrapping.py", "tensors.py"}


def trees() -> dict[str, ast.Module]:
    return {path.name: ast.parse(path.read_text()) for path in sorted(AGENT.glob("*.py"))}


def bindings_asked_for() -> set[str]:
    """Names of C++ bindings that code of the agent gives to ``binding``."""
    return {
        node.args[0].value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) == "binding"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def test_what_is_called_is_probed_when_the_agent_begins():
    wrapped = {"_xla_get_cpu_tensors"}  # tensors.install asks for it, and says if it is missing
    assert bindings_asked_for() - wrapped == set(xla.CALLED)


def test_only_the_adapter_knows_torch_xla():
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [alias.name for alias in node.names]
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(one.startswith("torch_xla") for one in modules), (name, node.lineno)
            if isinstance(node, ast.Attribute) and node.attr == "_XLAC":
                assert name in ADAPTER, (name, node.lineno)


def test_the_adapter_takes_no_binding_without_asking_whether_it_is_there():
    """No ``torch_xla._XLAC.name``: only ``getattr`` with a default, ``binding`` and ``replace``."""
    for name in ADAPTER:
        for node in ast.walk(trees()[name]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                assert node.value.attr != "_XLAC", (name, node.lineno)
