"""Compiles graphs in a process of its own: requests as JSON lines in, answers as JSON lines out.

Started as ``python -m xladoctor.tpu.worker``. libtpu writes what it likes to standard output and
standard error; so answers go through a copy of standard output that is made before it is loaded,
and both go to the parent's log from then on. If a graph crashes the compiler, this process dies and
the parent starts another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from xladoctor.tpu import allocations, compiled
from xladoctor.tpu.adapter import AdapterError, Compiler
from xladoctor.tpu.optimized import Optimized

_SOURCE = re.compile(r'source_file="xladoctor" source_line=(\d+)')


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        compiler = Compiler()
    except AdapterError as error:
        _say(answers, {"problem": str(error)})
        return 0
    _say(answers, {"ready": True})
    for row in sys.stdin:
        request = json.loads(row)
        try:
            answer = _answer(compiler, request)
        except OSError as error:
            where = f"{request['folder']} ({error.strerror})"
            refusal = compiled.Refusal("not-asked", f"the compiler cannot write to {where}")
            facts = _facts(request)
            answer = compiled.to_json(compiled.Compiled(**facts, seconds=0.0, refusal=refusal))
        _say(answers, answer)
    # libtpu's threads do not end by themselves.
    os._exit(0)


def _end_with_parent() -> None:
    """End when the parent has gone, however it went and whatever the compiler does.

    Standard input is a pipe that only the parent writes to: it hangs up when the parent is gone.
    """
    poll = select.poll()
    poll.register(0, 0)  # a hang-up is always reported
    poll.poll()
    os._exit(1)


def _say(answers: Any, row: dict[str, Any]) -> None:
    answers.write(json.dumps(row) + "\n")
    answers.flush()


def _facts(request: dict[str, Any]) -> dict[str, Any]:
    """What an answer repeats of its request."""
    return {key: request[key] for key in ("digest", "target", "replicas", "compiler")}


def _answer(compiler: Compiler, request: dict[str, Any]) -> dict[str, Any]:
    facts = _facts(request)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=request["folder"], ignore_cleanup_errors=True) as dump:
        try:
            program = compiler.compile(
                Path(request["module"]).read_bytes(),
                request["topology"],
                request["options"],
                request["replicas"],
                Path(dump),
                request.get("partitions", 1),
            )
        except AdapterError as error:
            refusal = compiled.Refusal("not-asked", str(error))
            answer = compiled.Compiled(**facts, seconds=0.0, refusal=refusal)
        except Exception as error:  # noqa: BLE001  (whatever the compiler raises is its answer)
            seconds = time.monotonic() - began
            answer = _refused(facts, str(error), seconds)
        else:
            seconds = time.monotonic() - began
            optimized = Optimized(program.text())
            operations = optimized.operations()
            flops = program.flops()
            if flops is not None:  # XLA counts what is in a loop once
                flops += sum(one.flops * (one.runs - 1) for one in operations)
            largest, picture = _assignment(Path(dump), optimized)
            answer = compiled.Compiled(
                **facts,
                seconds=seconds,
                memory=compiled.Memory(**program.memory()),
                flops=flops,
                operations=operations,
                allocations=largest,
                picture=picture,
            )
    return compiled.to_json(answer)


def _refused(facts: dict[str, Any], message: str, seconds: float) -> compiled.Compiled:
    memory = allocations.out_of_memory(message)
    if memory is not None:
        refusal, largest = memory
        return compiled.Compiled(**facts, seconds=seconds, refusal=refusal, allocations=largest)
    source = _SOURCE.search(message)
    sentence = " ".join(message.split())[:400]
    return compiled.Compiled(
        **facts,
        seconds=seconds,
        refusal=compiled.Refusal(
            "refused",
            f"the TPU compiler refuses the graph: {sentence}",
            source=int(source[1]) if source else None,
        ),
    )


def _assignment(
    dump: Path, optimized: Optimized
) -> tuple[tuple[compiled.Allocation, ...], tuple[int, ...]]:
    """From the buffer assignment; nothing if the compiler has written none."""
    for path in sorted(dump.glob("*after_optimizations-buffer-assignment.txt")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = path.read_text(encoding="utf-8", errors="replace")
            return allocations.read(text, optimized.sources())
    return (), ()


if __name__ == "__main__":
    sys.exit(main())
