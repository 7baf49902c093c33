import contextlib
import logging
import os
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

log = logging.getLogger("birdnet")


def main_device(cache="/tmp/birdnet-xla"):
    device = torch_xla.device()
    torch.zeros(8, device=device).add_(1)
    torch_xla.sync()
    if cache:
        os.makedirs(cache, exist_ok=True)
        xr.initialize_cache(f"{cache}/{xr.global_ordinal()}", readonly=False)
    return device


@contextlib.contextmanager
def clocked(name):
    began = time.monotonic()
    yield
    torch_xla.sync(wait=True)
    if xm.is_master_ordinal():
        log.info("%s took %.1f s", name, time.monotonic() - began)


@contextlib.contextmanager
def frozen(net):
    was = net.training
    net.eval()
    with torch.no_grad():
        yield net
    net.train(was)


class Running:
    """A mean that stays where its values are."""

    def __init__(self, device):
        self.total = torch.zeros((), device=device)
        self.count = 0

    def update(self, value, n=1):
        self.total = self.total + value.detach() * n
        self.count += n

    def compute(self):
        return self.total.item() / max(self.count, 1)
