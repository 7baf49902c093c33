"""Which Python files the lines of shell scripts start, and whether they ask for sharded weights.

``python train.py --fsdp full_shard --fsdp_config fsdp.json``: the Trainer of transformers reads
these options (``training_args.py``: ``fsdp`` holds one of full_shard, shard_grad_op, hybrid_shard
...), and gives each core a share of all weights.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: One command over several lines.
_CONTINUED = re.compile(rb"\\\r?\n")
#: ``train.py``, ``src/train.py``, ``-m package.train``.
_FILE = re.compile(rb"(?:^|[\s\"'/])(?P<file>\w+)\.py\b|[ \t]-m[ \t]+(?:\w+\.)*(?P<module>\w+)")
_STARTS = re.compile(
    rb"(?:^|[\s;&|(/\"'])(?:python[\d.]*|torchrun|accelerate[ \t]+launch|deepspeed)[ \t]"
)
_SHARDS = re.compile(rb"[ \t]--fsdp(?:=|[ \t]+)[\"']?[\w \t]*shard")
#: ``python train.py "${options[@]}"``, ``python train.py $OPTIONS``: they stand further up.
_FURTHER_UP = re.compile(rb"[ \t]\"?\$(?:\{\w+(?:\[[@*]\])?\}|\w+)")
_OF_LAUNCHERS = frozenset({"xla_spawn", "xla_dist", "launch", "run", "distributed"})


def started_files(data: bytes) -> Iterator[tuple[str, bool]]:
    """The modules that a script starts, without folders, and whether each is to be sharded."""
    for line in _CONTINUED.sub(b" ", data).splitlines():
        starts = _STARTS.search(line)
        if starts is None:
            continue
        options = data if _FURTHER_UP.search(line, starts.end()) else line
        sharded = _SHARDS.search(options) is not None
        for found in _FILE.finditer(line, starts.end() - 1):
            name = (found["file"] or found["module"]).decode("ascii", "replace")
            if name not in _OF_LAUNCHERS:
                yield name, sharded
