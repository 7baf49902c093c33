"""Training programs with counts known by construction, for the tests with real torch_xla."""

#: 8 cores, 10 optimizer steps; the last batch is smaller. Per core:
#: compilations: the step's graph for 16 rows and for 10 rows (line STEP), the graph that nonzero
#: cuts out (line FALLBACK, always 16 rows): 3. Reads: one a step (line READ): 10. Fallbacks: steps
#: 0, 3 and 6: 3.
STEPS, READS, FALLBACKS = 10, 10, 3

CORES = """\
import sys
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def train(index):
    device = torch_xla.device()
    # Not torch.manual_seed: simulated cores are threads and share the global generator.
    random = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=random)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for step in range(10):
        x = torch.randn(10 if step == 9 else 16, 24, generator=random).to(device)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()  # line STEP
        total += loss.item()  # line READ
        if step % 3 == 0 and step < 9:
            torch.nonzero(x[0] > 0)  # line FALLBACK
    if xm.is_master_ordinal():
        print(f"mean loss {total / 10:.3f}")


if __name__ == "__main__":
    xmp.spawn(train)
"""

#: One device, no spawn: ``python one.py STEPS [END]``; END is what happens after the steps.
ONE = """\
import os
import signal
import sys
import torch
import torch_xla


def main(steps, end):
    device = torch_xla.device()
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8).to(device)).sum().backward()
        optimizer.step()
        torch_xla.sync()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "leave":
        os._exit(3)
    if end == "abort":
        os.abort()
    if end == "raise":
        raise ValueError("the loss is gone")
    print("end")


main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
"""


#: One device; the loss is looked at before the step has ended, which cuts its graph in two.
CUT = """\
import torch
import torch_xla

device = torch_xla.device()
weight = torch.ones(8).to(device).requires_grad_()
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = (weight * torch.ones(8).to(device)).sum()
    loss.backward()
    optimizer.step()
    if loss.detach() > 1e6:  # line READ
        break
    torch_xla.sync()  # line STEP
"""


def line(program: str, mark: str) -> int:
    """The row of the line that is marked ``# line MARK``."""
    return next(
        row for row, text in enumerate(program.splitlines(), 1) if text.endswith(f"# line {mark}")
    )
