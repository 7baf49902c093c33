"""What cheaper compilation costs in truth: cycles and memory of six graphs with other options.

Run: ``PYTHONPATH=. python tests/accuracy/cheaper.py [--recorded] [--write]``. Each graph is
compiled by a process of its own, one at a time; CPU seconds are of the compilation alone. What was
measured is kept in cheaper.json beside this file; ``--write`` puts the table into
docs/tpu-accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.accuracy import published

HERE = Path(__file__).parent
RECORDED = HERE / "cheaper.json"
TARGET = "v3-8"
KINDS = ("mlp", "recommender", "vit", "decoder", "resnet", "lstm")
#: Sets of options: as libtpu does it, as we ask it, and with its own switch for less effort.
SETS = ("default", "ours", "effort -1")


def main(argv: list[str]) -> int:
    """Measure what is not known and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="compile nothing")
    parser.add_argument("--write", action="store_true", help="into docs/tpu-accuracy.md")
    options = parser.parse_args(argv)
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
    if not options.recorded:
        for kind in KINDS:
            if set(known.get(kind, ())) != set(SETS):
                known[kind] = _measured(kind)
                RECORDED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    text = _table(known)
    print(text)
    if options.write:
        published.write({"cheaper": text})
    return 0


def _measured(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.pb.z"
        found = {}
        for which in ("trace", *SETS):
            words = [sys.executable, __file__, which, kind, str(graph)]
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                env={**os.environ, "CHEAPER_CHILD": "1"},
            )  # fmt: skip
            if which != "trace":
                found[which] = json.loads(done.stdout.splitlines()[-1])
    return found


def _trace(kind: str, graph: Path) -> None:
    """The graph of a program's step, as ``xladoctor plan`` traces it."""
    from xladoctor.cli import plan
    from xladoctor.planning.choices import Choice

    command = (sys.executable, str(HERE / "published" / "small.py"), kind)
    step = plan._trace(Choice(command, ()), kind, graph.parent / "run", None, 600.0)
    assert step.error is None, step.error
    (path,) = set(step.graphs)
    graph.write_bytes(path.read_bytes())


def _compile(which: str, graph: Path) -> dict[str, Any]:
    from xladoctor.tpu import adapter, modules, targets
    from xladoctor.tpu.optimized import Optimized

    (target,) = targets.find(TARGET)
    compiler = adapter.Compiler()
    if which != "ours":
        compiler._cheaper = []
    if which == "effort -1":
        make = compiler._jax.CompileOptions

        def less_effort() -> Any:
            made = make()
            made.executable_build_options.exec_time_optimization_effort = -1.0
            return made

        compiler._jax = _With(compiler._jax, CompileOptions=less_effort)
    module = modules.read(graph, donate=True).module
    began = sum(os.times()[:2])
    program = compiler.compile(module, target.topology, target.options, 1)
    seconds = sum(os.times()[:2]) - began
    operations = Optimized(program.text()).operations()
    memory = program.memory()
    return {
        "cpu_seconds": round(seconds, 1),
        "cycles": sum(one.total_cycles for one in operations),
        "data_bytes": memory["arguments"] + memory["output"] + memory["temporary"],
        "code_bytes": memory["code"],
    }


class _With:
    """A module with some names of its own."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _table(known: dict[str, Any]) -> str:
    rows = [
        "| graph | libtpu's own | ours | cycles | memory | effort -1 | cycles | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        if kind not in known:
            continue
        own = known[kind]["default"]
        cells = [f"{own['cpu_seconds']:.1f} s"]
        for which in SETS[1:]:
            other = known[kind][which]
            cells.append(f"{other['cpu_seconds']:.1f} s")
            cells += [_apart(own[key], other[key]) for key in ("cycles", "data_bytes")]
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _apart(own: int, other: int) -> str:
    return "the same" if own == other else f"{other / own - 1:+.2%}"


if __name__ == "__main__":
    if "CHEAPER_CHILD" in os.environ:
        which, kind, graph = sys.argv[1], sys.argv[2], Path(sys.argv[3])
        if which == "trace":
            _trace(kind, graph)
        else:
            print(json.dumps(_compile(which, graph)), flush=True)
            os._exit(0)  # libtpu's threads do not end by themselves
    else:
        sys.exit(main(sys.argv[1:]))
