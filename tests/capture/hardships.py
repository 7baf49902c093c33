"""Run by a test: trainings to which something happens, each in a forked child.

``python hardships.py RUN_DIR`` prints ``NAME PID EXIT_CODE LOSS`` for each; the same without
xladoctor must print the same, process ids aside.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch_xla
from torch.utils.data import DataLoader, Dataset

RUN_DIR = Path(sys.argv[1])
NOBODY = 65534


class Data(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, at):
        return torch.full((4,), float(at))


def train(steps, workers=0):
    torch.manual_seed(0)
    device = torch_xla.device()
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    data = iter(DataLoader(Data(), batch_size=2, num_workers=workers))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(next(data).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
    return loss.item()


def killed():
    train(4)
    os.kill(os.getpid(), signal.SIGKILL)


def left():
    train(4)
    os._exit(3)


def aborted_by_xla():
    """An unknown flag is fatal to XLA: the abort comes out of its own C++."""
    os.environ["XLA_FLAGS"] = "--there_is_no_such_flag"
    return train(4)


def full_disk():
    """A limit on the size of files stands in for the disk: each write beyond it fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3072, 3072))
    return train(6)


def read_only():
    if os.getuid() == 0:  # whom no mode keeps from writing
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return train(6)


def taken_away():
    """Someone clears the run directory while the program runs."""
    train(3)
    for folder in RUN_DIR.glob(f"p{os.getpid()}-*"):
        shutil.rmtree(folder)
    return train(6)


def forks_after_threads():
    """The runtime's threads run when a child is forked and when the loader forks its workers."""
    train(2)
    child = os.fork()
    if child == 0:
        os._exit(int(torch.ones(5).sum()))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    return train(6, workers=2)


ALL = (
    killed, left, aborted_by_xla, full_disk, read_only, taken_away, forks_after_threads,
)  # fmt: skip


def main():
    for one in ALL:
        sys.stdout.flush()
        if one is read_only and RUN_DIR.exists():
            RUN_DIR.chmod(0o555)
        pid = os.fork()
        if pid == 0:
            loss = one()
            # As a process ends by itself: what is registered for the end is run.
            print(f"loss {loss:.6f}", end=" ")
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        if RUN_DIR.exists():
            RUN_DIR.chmod(0o755)
        print(one.__name__, pid, os.waitstatus_to_exitcode(status))


main()
