"""Tensors that some cores fill, and a collective of all in the same graph (XLA421)."""

import pytest
from rule_helpers import marked, rows

PROGRAM = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

def gathered(part):
    return xm.all_gather(part)

def share(self, rows, net):
    device = torch_xla.device()
    rank = xr.global_ordinal()
    x = net(rows.to(device))
    {lines}
"""

DIFFERENT = [
    """if rank != 0:
        x = torch.zeros_like(x)  # here
    x = xm.all_reduce(xm.REDUCE_SUM, x)""",
    """if not xm.is_master_ordinal():
        x.zero_()  # here
    xm.all_reduce("sum", [x])""",
    """if rank > 0:
        x *= 0  # here
    return xm.all_gather(x)""",
    """x = x if rank == 0 else torch.zeros(4, 4, device=device)  # here
    return xm.all_reduce("sum", x)""",
    """if rank == 0:
        self.bank = torch.rand(8, 8, device=device)  # here
    else:
        self.bank = torch.zeros(8, 8, device=device)
    self.bank = xm.all_reduce("sum", self.bank)""",
    """if rank == 0:
        self.bank = load()
    else:
        self.bank = torch.empty(8, 8, device=device)  # here
    assert self.bank.shape == (8, 8)
    return gathered(self.bank)""",
    """if self.tpu:
        if rank == 0:
            bank = load()
        else:
            bank = rows.to(device).new_zeros(8, 8).float()  # here
    else:
        bank = load()
    return xm.all_reduce("sum", bank)""",
    """weights = []
    for p in net.parameters():
        if rank != 0:
            p.data.mul_(torch.tensor(0, dtype=p.dtype, device=device))  # here
        weights.append(p.data)
    xm.wait_device_ops()
    xm.all_reduce(xm.REDUCE_SUM, weights)
    torch_xla.sync()""",
    """if rank != 0:
        for p in net.parameters():
            p.data.zero_()  # here
    xm.all_reduce("sum", [p.data for p in net.parameters()])""",
    """weights = list(net.parameters())
    for p in weights:
        if not xm.is_master_ordinal():
            p.data = torch.zeros_like(p.data)  # here
    xm.all_reduce("sum", weights)""",
    """for p in net.parameters():
        if rank > 0:
            p.data *= 0  # here
        xm.all_reduce("sum", [p.data])""",
]
ALIKE = [
    """if rank != 0:
        for p in net.parameters():
            p.data.zero_()
    torch_xla.sync()
    xm.all_reduce("sum", [p.data for p in net.parameters()])""",
    """weights = []
    for p in net.parameters():
        p.data.mul_(1.0 if rank == 0 else 0.5)
        weights.append(p.data)
    xm.all_reduce("sum", weights)""",
    """if rank != 0:
        for p in net.parameters():
            p.data.zero_()
    xm.all_reduce("sum", [b.data for b in net.buffers()])""",
    """weights, sizes = list(net.parameters()), []
    for p in weights:
        if rank != 0:
            p.grad.mul_(2)
        sizes.append(p.numel())
    xm.all_reduce("sum", torch.tensor(len(weights), device=device))""",
    """if rank != 0:
        x = torch.zeros_like(x)
    torch_xla.sync()
    x = xm.all_reduce(xm.REDUCE_SUM, x)""",
    """if rank != 0:
        x = torch.zeros_like(x)
    print(x.mean().item())
    x = xm.all_reduce(xm.REDUCE_SUM, x)""",
    """if rank == 0:
        bank = load()
    else:
        bank = torch.zeros(8, 8)
    return xm.all_reduce("sum", bank.to(device))""",
    """if rank == 0:
        bank = load().to(device)
    else:
        bank = torch.zeros(8, 8).to(device)
    return xm.all_reduce("sum", bank)""",
    """if rank != 0:
        rows = torch.zeros_like(rows)
    return xm.all_reduce("sum", rows.to(device))""",
    """count = 0
    if rank == 0:
        count += 1
    return xm.all_reduce("sum", torch.tensor(count, device=device))""",
    """if rank != 0:
        x = torch.zeros_like(x)
    x = net(rows.to(device))
    return xm.all_reduce("sum", x)""",
    """if self.warm:
        x = torch.zeros_like(x)
    return xm.all_reduce("sum", x)""",
    """scale = torch.tensor(1.0 if rank == 0 else 0.0).to(device)
    x.mul_(scale)
    return xm.all_reduce("sum", x)""",
    """if rank == 0:
        seen = torch.zeros_like(x)
        torch.save(seen.cpu(), "seen.pt")
    return xm.all_reduce("sum", x)""",
]


@pytest.mark.parametrize("lines", DIFFERENT)
def test_a_tensor_that_some_cores_fill_makes_their_program_another(lines):
    program = PROGRAM.format(lines=lines)
    assert rows(program, "XLA421") == marked(program)


@pytest.mark.parametrize("lines", ALIKE)
def test_what_all_bring_as_data_or_run_before_is_one_program(lines):
    assert not rows(PROGRAM.format(lines=lines), "XLA421")
