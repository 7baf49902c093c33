"""A fact of torch_xla that XLA412 tells: views of a bucket do not see that it was reduced.

On one device and without xladoctor, so that it is no doing of the simulation. The reduction is made
to double what it gets, since the sum over one device changes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.xla

PROGRAM = """
import json
import torch, torch_xla
import torch.distributed as dist
import torch_xla.distributed.xla_backend as backend


def allreduce(self, tensors, options):
    torch_xla._XLAC._xla_all_reduce_inplace("sum", tensors, 2.0, [], False)
    return backend._ret_work(tensors)


dist.init_process_group("xla", store=dist.HashStore(), rank=0, world_size=1)
backend.ProcessGroupXla.allreduce = allreduce
found = {}
for views in (False, True):
    model = torch.nn.Linear(2, 1, bias=False).to(torch_xla.device())
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
    parallel(torch.ones(1, 2).to(torch_xla.device())).sum().backward()
    found[str(views)] = model.weight.grad.cpu().tolist()
base = torch.ones(4).to(torch_xla.device())
view = base[1:3]
torch_xla._XLAC._xla_all_reduce_inplace("sum", [base], 2.0, [], False)
found["base"], found["view"] = base.cpu().tolist(), view.cpu().tolist()
print(json.dumps(found))
"""


def test_gradients_that_are_views_of_a_bucket_are_not_reduced(tmp_path):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("XLA")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=tmp_path,
        env={**environ, "PJRT_DEVICE": "CPU"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "False": [[2.0, 2.0]],
        "True": [[1.0, 1.0]],
        "base": [2.0, 2.0, 2.0, 2.0],
        "view": [1.0, 1.0],
    }
