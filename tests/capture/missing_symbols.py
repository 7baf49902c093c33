"""Run by a test: the same training with each internal of torch_xla hidden from the agent in turn.

``python missing_symbols.py FOLDER`` prints one JSON object a symbol. torch_xla is imported once;
each training runs in a forked child, before the runtime of the parent has started.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

import torch
import torch_xla

CAPTURE = Path(__file__).resolve().parents[2] / "xladoctor" / "capture"


#: What the agent registers itself with, by what it calls the loss of it.
HOOKS = {
    "register_optimizer_step_post_hook": (
        importlib.import_module("torch.optim.optimizer"),
        "register_optimizer_step_post_hook",
    ),
    "aten::_to_cpu": (torch.library, "Library"),
}


def load_agent():
    spec = importlib.util.spec_from_file_location(
        "_xladoctor", CAPTURE / "__init__.py", submodule_search_locations=[str(CAPTURE)]
    )
    sys.modules["_xladoctor"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["_xladoctor"])
    from _xladoctor.agent import boot, tensors, wrapping, xla

    return boot, tensors, wrapping, xla


def train() -> str:
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(6, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.ones(4, 6), batch_size=2)
    for x in data:
        optimizer.zero_grad()
        loss = model(x.to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync(wait=True)
        torch.nonzero(loss)
    return f"{loss.item():.4f}"


def probe(hidden: str | None, folder: Path) -> dict:
    """Train with one name hidden; with None also say which names were asked for."""
    boot, tensors, wrapping, xla = load_agent()
    asked: set[str] = set()
    binding, replace = xla.binding, wrapping.Wrapper.replace

    def seen(name):
        asked.add(name)
        return None if name == hidden else binding(name)

    def replaced(self, owner, name, make):
        asked.add(name)
        if name == hidden:
            self.missing.append(f"{owner}.{name}")
        else:
            replace(self, owner, name, make)

    def put(owner, name, value):
        asked.add(name)
        if name == hidden:
            raise AttributeError(name)
        setattr(owner, name, value)

    xla.binding, wrapping.Wrapper.replace, tensors.setattr = seen, replaced, put
    asked.update(HOOKS)
    if hidden in HOOKS:
        delattr(*HOOKS[hidden])
    os.environ["XLADOCTOR_RUN_DIR"] = str(folder)
    recorder = boot.boot()
    loss = train()
    recorder.close()
    return {"hidden": hidden, "loss": loss, "asked": sorted(asked)}


def in_child(hidden: str | None, folder: Path) -> dict:
    folder.mkdir()
    out = folder / "result.json"
    pid = os.fork()
    if pid == 0:
        try:
            out.write_text(json.dumps(probe(hidden, folder)))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return json.loads(out.read_text()) if out.exists() else {"hidden": hidden, "loss": None}


def main(folder: Path) -> None:
    first = in_child(None, folder / "all")
    print(json.dumps(first))
    for name in first["asked"]:
        print(json.dumps(in_child(name, folder / name.replace("::", "-"))), flush=True)


main(Path(sys.argv[1]))
