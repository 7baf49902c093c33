"""What seeds a core's random numbers, without torch_xla; the rest is in test_simulate_training."""

import json
import subprocess
import sys

#: Two cores seed and draw in turn, as their threads would; then one that has not seeded.
PROGRAM = """\
import json, random
import numpy as np
import torch
from xladoctor.capture.simulate import randomness

randomness.install()
origin = randomness.Origin()
cores = [origin.generators() for _ in range(2)]
drawn = [[], []]
for core in (0, 1):
    randomness.use(cores[core])
    np.random.seed(719); random.seed(719); torch.manual_seed(719)
for _ in range(2):
    for core in (0, 1):
        randomness.use(cores[core])
        drawn[core].append([
            np.random.rand(), np.random.sample(), np.random.ranf(), random.random(),
            torch.rand(()).item(), *np.random.permutation(4).tolist(),
        ])
randomness.use(None)
drawn.append(np.random.rand())
print(json.dumps(drawn))
"""


def test_each_core_draws_what_its_own_seed_gives():
    runs = [
        json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM], timeout=300))
        for _ in range(2)
    ]
    for first, second, _ in runs:
        assert first == second
        assert first[0] != first[1]
    # The same in another process; what nobody has seeded is another number there.
    assert runs[0][:2] == runs[1][:2]
    assert runs[0][2] != runs[1][2]
