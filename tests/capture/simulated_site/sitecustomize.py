"""Installs the simulation, and nothing else of the agent, as soon as torch_xla is imported."""

import importlib.abc
import importlib.util
import json
import os
import pathlib
import sys


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch_xla":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            _install(int(os.environ["SIMULATED_CORES"]))

        spec.loader.exec_module = exec_module
        return spec


def _install(cores):
    from xladoctor.capture import simulate
    from xladoctor.capture.agent import points, wrapping

    def failed(name, error):
        sys.stderr.write(f"hook off: {name}: {error!r}\n")

    def on_event(kind, facts):
        with pathlib.Path(os.environ["SIMULATED_EVENTS"]).open("a") as file:
            file.write(json.dumps([kind, facts], default=repr) + "\n")

    chains = points.Points(failed)
    missing = wrapping.install(chains) + simulate.install(chains, cores, on_event)
    if missing:
        sys.stderr.write(f"missing: {missing}\n")


def _as_a_host():
    """What the launcher does for a program that torchrun starts through it."""
    from xladoctor.capture import simulate

    cores = int(os.environ["SIMULATED_CORES"])
    mine = simulate.hosts.handed_down(os.environ, cores)
    os.environ.clear()
    os.environ.update(mine | simulate.environment(cores, several=True))


if "SIMULATED_HOST" in os.environ and "TORCHELASTIC_RUN_ID" in os.environ:
    _as_a_host()
if "SIMULATED_CORES" in os.environ:
    sys.meta_path.insert(0, _Finder())
