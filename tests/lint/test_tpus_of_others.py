"""What notebooks and programs say of TPUs that PyTorch has nothing to do with, or no longer.

All programs are invented.
"""

from __future__ import annotations

import pytest

from tests.lint.rule_helpers import found, rows
from xladoctor.lint import engine
from xladoctor.lint.sources import Source

ADDRESS = """\
import os
{imports}

address = os.environ["COLAB_TPU_ADDR"]
"""


@pytest.mark.parametrize(
    ("imports", "told"),
    [
        ("import torch_xla.core.xla_model as xm", True),
        ("import tensorflow as tf\nimport torch", True),
        ("import tensorflow as tf", False),
        ("import jax", False),
    ],
)
def test_variables_that_tensorflow_and_jax_read_themselves(imports, told):
    assert bool(rows(ADDRESS.format(imports=imports), "XLA701")) is told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("python -m torch_xla.distributed.xla_dist --tpu=$NAME -- python train.py", True),
        ("python3.8 -u -m torch_xla.distributed.xla_dist --tpu=x", True),
        ("python -m torch_xla.distributed.xla_multiprocessing", False),
        ("python -m torch_xla_like.distributed.xla_dist", False),
        ("echo -m torch_xla.distributed.xla_dist", False),
    ],
)
def test_modules_that_a_shell_line_runs(line, told):
    shell = ((2, f"!{line}"),)
    result = engine.lint(Source("pod.ipynb", "import torch_xla\npass\n", shell=shell))
    assert bool([one for one in result.findings if one.code == "XLA801"]) is told


@pytest.mark.parametrize("name", ["GPU_NUM_DEVICES", "PJRT_GPU_ASYNC_CLIENT", "ZERO_COPY_ENABLED"])
def test_names_of_variables_that_went_with_gpus(name):
    program = (
        f'import os\nimport torch_xla.core.xla_env_vars as xenv\n\nos.environ[xenv.{name}] = "1"\n'
    )
    assert (4, "XLA801") in found(program)
    assert (4, "XLA801") not in found(program, target=(2, 8))


PLANES = """\
import chess
import torch
import torch_xla.core.xla_model as xm


def encode(board):
    planes = torch.zeros(12, 8, 8)
    {fill}
    return planes


def play(model, boards, optimizer):
    device = xm.xla_device()
    model = model.to(device)
    for board in boards:
        loss = model(encode(board).unsqueeze(0).to(device)).mean()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
"""


@pytest.mark.parametrize(
    ("fill", "code"),
    [
        ("for at, piece in board.pieces(): planes[piece, at // 8, at % 8] = 1.0", "XLA603"),
        ("for move in board.legal_moves: planes[0, move // 8] = 1.0", "XLA603"),
        ("for at in range(4): planes[at] = 1.0", "XLA604"),
        ("pass", "XLA604"),
    ],
)
def test_planes_that_data_fill_are_no_constants(fill, code):
    told = {one for _, one in found(PLANES.format(fill=fill))}
    assert told & {"XLA603", "XLA604"} == {code}
