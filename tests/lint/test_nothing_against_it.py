"""What nothing in a file speaks against: loaders, seeds, cores and branches as people write them.

All programs are invented. ``# !XLA101`` marks a line on which that rule has to find something; no
other line may have a finding of a code that is asked for.
"""

from __future__ import annotations

import pytest
from rule_helpers import found, marks, told

XM = """\
import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler, random_split
from tqdm import tqdm
"""
STEPS = f"""\
{XM}
from parts import Cells, UNet
def fit(net, batches, adam):
    net.train()
    for x, y in batches:
        adam.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        xm.optimizer_step(adam)
"""

#: The beginning of what each core runs: epochs of steps.
RUN = f"""\
{XM}
from parts import Net
def run(rank, rows):
    device = torch_xla.device()
    torch.manual_seed(0)
    net = Net().to(device)
    adam = torch.optim.Adam(net.parameters())
    for epoch in range(3):
        for x, y in rows:
            adam.zero_grad()
"""
#: Spellings by the rules that they are about.
PROGRAMS = {
    "XLA718: pinned by a constant": f"""\
{XM}
PIN_MEMORY = True
ON_GPU = torch.cuda.is_available()
def fit(net, adam, rows, tests, device):
    loader = DataLoader(rows, 64, drop_last=True, pin_memory=PIN_MEMORY)  # !XLA718
    other = DataLoader(tests, 64, drop_last=True, pin_memory=ON_GPU)
    for batches in (loader, other):
        for x, y in pl.MpDeviceLoader(batches, device):
            adam.zero_grad()
            net(x, y).backward()
            xm.optimizer_step(adam)
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
    for x, y in pl.MpDeviceLoader(other, device):
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
""",
    "XLA718: a device loader that another file goes over": f"""\
{XM}
def loaders(rows, device):
    plain = DataLoader(rows, batch_size=8, pin_memory=True)
    fast = DataLoader(rows, batch_size=8, pin_memory=True)  # !XLA718
    return plain, pl.MpDeviceLoader(fast, device)
""",
    "XLA718: a bar that gets a name in the loop": f"""\
{XM}
def fit(net, adam, rows):
    device = torch_xla.device()
    net.to(device)
    loader = DataLoader(rows, batch_size=8, drop_last=True, pin_memory=True)  # !XLA718
    for i, (x, y) in (bar := tqdm(enumerate(loader), total=len(loader))):
        adam.zero_grad()
        net(x.to(device), y.to(device)).backward()
        adam.step()
        torch_xla.sync()
        bar.set_description(f"step {{i}}")
""",
    "XLA603: settings of the loader that the start hands over": f"""\
{XM}
from parts import Cells, UNet
def train(index, args):
    torch.manual_seed(args.seed)
    device = torch_xla.device()
    net = UNet(args.width).to(device)
    adam = torch.optim.Adam(net.parameters())
    batches = DataLoader(Cells(args.root), args.batch, drop_last=True, num_workers=args.workers)
    for x, y in batches:
        x, y = x.to(device), y.to(device)  # !XLA603
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
if __name__ == "__main__":
    xmp.spawn(train, args=(settings,))
""",
    "XLA603: a loader that the start hands over": f"""\
{XM}
def train(index, batches, net, adam):
    device = torch_xla.device()
    for x, y in tqdm(batches):
        x, y = x.to(device), y.to(device)
        adam.zero_grad()
        net(x, y).backward()
        xm.optimizer_step(adam)
""",
    "XLA426: a seed of a generator's own": f"""\
{STEPS}
def main(index):
    device = torch_xla.device()
    mine = torch.Generator().manual_seed(42)
    rows, _ = random_split(Cells("data"), [0.8, 0.2], generator=mine)
    picks = np.random.RandomState(3)
    picks.seed(4)
    net = UNet(1, 1).to(device)  # !XLA426
    adam = torch.optim.AdamW(net.parameters())
    fit(net, pl.MpDeviceLoader(DataLoader(rows, 8), device), adam)
xmp.spawn(main)
""",
    "XLA426: a seed of torch": f"""\
{STEPS}
def main(index):
    device = torch_xla.device()
    torch.manual_seed(42)
    rows, _ = random_split(Cells("data"), [0.8, 0.2])
    net = UNet(1, 1).to(device)
    adam = torch.optim.AdamW(net.parameters())
    fit(net, pl.MpDeviceLoader(DataLoader(rows, 8), device), adam)
xmp.spawn(main)
""",
    "XLA426: a seed of a module of helpers": f"""\
{STEPS}
import helpers
def main(index):
    device = torch_xla.device()
    helpers.seed_all(42)
    net = UNet(1, 1).to(device)
    adam = torch.optim.AdamW(net.parameters())
    fit(net, pl.MpDeviceLoader(DataLoader(Cells("data"), 8), device), adam)
xmp.spawn(main)
""",
    "XLA406: tables in other forms": f"""\
{XM}
import pandas as pd
def write(rows, path):
    pd.DataFrame(rows).to_excel(path)  # !XLA406
def main(index):
    device = torch_xla.device()
    rows = [1, 2]
    write(rows, "losses.xlsx")
    pd.DataFrame(rows).to_feather("losses.feather")  # !XLA406
    pd.DataFrame(rows).to_parquet(path="losses.parquet")  # !XLA406
    pd.DataFrame(rows).to_excel(excel_writer=f"losses-{{index}}.xlsx")
    if xm.is_master_ordinal():
        pd.DataFrame(rows).to_excel("best.xlsx")
xmp.spawn(main)
""",
    "XLA401: a plain text with a core's word in it": f"""\
{XM}
def main(index):
    device = torch_xla.device()
    print("starting the process")  # !XLA401
    print("device" " is there")  # !XLA401
    print(f"process {{index}} is there")
    print("process", index)
    print("process %d" % index)
xmp.spawn(main)
""",
    "XLA304: each optimizer of one batch": f"""\
{XM}
class Fitting:
    def step(self, batch):
        self.net(batch).backward()
        for adam, rate in zip(self.adams, self.rates):
            adam.param_groups[0]["lr"] = rate
            xm.optimizer_step(adam, barrier=True)  # !XLA304
            adam.zero_grad()
    def run(self, loader):
        for batch in pl.MpDeviceLoader(loader, torch_xla.device()):
            self.step(batch)
""",
    "XLA304: each optimizer of a batch of a plain loader": f"""\
{XM}
class Fitting:
    def step(self, batch):
        self.net(batch).backward()
        for adam in self.adams:
            xm.optimizer_step(adam, barrier=True)
            adam.zero_grad()
    def run(self, rows):
        for batch in DataLoader(rows, batch_size=8):
            self.step(batch.to(torch_xla.device()))
""",
    "XLA304: a step of an object's own for each batch": f"""\
{XM}
class Fitting:
    def step(self, batch):
        self.net(batch).backward()
        xm.optimizer_step(self.adam, barrier=True)  # !XLA304
    def run(self, loader):
        for batch in pl.MpDeviceLoader(loader, torch_xla.device()):
            self.step(batch)
""",
    "XLA101: a function of torch_xla that no table knows": f"""\
{XM}
from torch_xla.experimental import new_kernels
def fit(net, adam, loader):
    device = torch_xla.device()
    net.to(device)
    for x, y in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        xm.optimizer_step(adam)
        kept = new_kernels.shape_of(3)
        print(kept.item())
        total = new_kernels.fused_mean(loss)
        history = total.item()  # !XLA101
""",
    "XLA209: a sample's own length within a full size": f"""\
{XM}
WIDTH = 128
def collate(rows):
    ids = torch.zeros(len(rows), WIDTH, dtype=torch.long)
    for i, row in enumerate(rows):
        n = min(len(row), WIDTH)
        ids[i, :n] = row[:n]
    return ids
def fit(net, adam, rows):
    device = torch_xla.device()
    loader = DataLoader(rows, batch_size=8, drop_last=True, collate_fn=collate)
    for ids in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(ids).backward()
        xm.optimizer_step(adam)
""",
    "XLA209: the longest length as it grows": f"""\
{XM}
def collate(rows):
    width = 0
    for row in rows:
        width = max(width, len(row))  # !XLA209
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids
def fit(net, adam, rows):
    device = torch_xla.device()
    loader = DataLoader(rows, batch_size=8, drop_last=True, collate_fn=collate)
    for ids in pl.MpDeviceLoader(loader, device):
        adam.zero_grad()
        net(ids).backward()
        xm.optimizer_step(adam)
""",
    "XLA801: a name that turns torch_xla off": """\
try:
    import torch_xla.core.xla_model as xm
    from torch_xla.utils import gcsfs  # !XLA801
    XLA_FOUND = True
except ImportError:
    from trackers import Tracker
    XLA_FOUND = False
""",
    "XLA801: a name that alone is tried": """\
import torch_xla.core.xla_model as xm
try:
    import torch_xla.debug.metrics as met
    from torch_xla.utils import gcsfs
except ImportError:
    gcsfs = None
""",
    "XLA801: a name and the new one": """\
try:
    import torch_xla
    from torch_xla.experimental import pjrt
except ImportError:
    import torch_xla.runtime as pjrt
""",
    "XLA425: the master ends what a loop has left": f"""\
{RUN}\
            loss = net(x.to(device), y.to(device))
            loss.backward()
            xm.optimizer_step(adam)
        if xm.is_master_ordinal():  # !XLA425
            torch_xla.sync()
            print(loss)
if __name__ == "__main__":
    xmp.spawn(run, args=([],))
""",
    "XLA425: a meeting before what the master does": f"""\
{RUN}\
            net(x.to(device), y.to(device)).backward()
            xm.optimizer_step(adam)
        xm.rendezvous("epoch")
        if xm.is_master_ordinal():
            torch_xla.sync()
        for x, y in pl.MpDeviceLoader(rows, device):
            adam.zero_grad()
            net(x, y).backward()
            xm.optimizer_step(adam)
        if xm.is_master_ordinal():
            torch.save(net.state_dict(), "net.pt")
if __name__ == "__main__":
    xmp.spawn(run, args=([],))
""",
    "XLA401 XLA101: a class that the file itself runs without torch_xla": """\
import torch
try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr
    XLA_FOUND = True
except ImportError:
    XLA_FOUND = False
class Fitting:
    def __init__(self, net, adam, batches):
        self.device = torch_xla.device() if XLA_FOUND else torch.device("cpu")
        self.net, self.adam, self.batches = net.to(self.device), adam, batches
        self.RANK = int(xr.global_ordinal()) if XLA_FOUND else 0
        self.GLOBAL_RANK = 8 * self.RANK + self.RANK
        self.FIRST = self.GLOBAL_RANK == 0
    def run(self):
        print("training")  # !XLA401
        if self.FIRST:
            print("on the first core")
        for batch in self.batches:
            self.adam.zero_grad()
            loss = self.net(batch.to(self.device))
            loss.backward()
            if XLA_FOUND:
                xm.optimizer_step(self.adam, barrier=True)
            else:
                self.adam.step()
            self.total = loss.item()  # !XLA101
        if XLA_FOUND:
            xm.rendezvous("end")
if __name__ == "__main__":
    if not XLA_FOUND:
        Fitting(make_net(), make_adam(), make_batches()).run()
""",
    "XLA401 XLA101: a class that other devices alone run": """\
import torch
try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    XLA_FOUND = True
except ImportError:
    XLA_FOUND = False
class Plain:
    def __init__(self, net, adam, batches):
        self.net, self.adam, self.batches = net, adam, batches
    def run(self):
        print("training")
        for batch in self.batches:
            self.adam.zero_grad()
            loss = self.net(batch)
            loss.backward()
            self.adam.step()
            self.total = loss.item()
def on_cores(net, adam, batches):
    for batch in batches:
        net(batch.to(torch_xla.device())).backward()
        xm.optimizer_step(adam, barrier=True)
if __name__ == "__main__":
    if XLA_FOUND:
        on_cores(make_net(), make_adam(), make_batches())
    else:
        Plain(make_net(), make_adam(), make_batches()).run()
""",
    "XLA101: a flag that says whether torch_xla was found": """\
import torch
try:
    import torch_xla
    import torch_xla.core.xla_model as xm
    HERE = True
except ImportError:
    HERE = False
DEVICE = torch_xla.device() if HERE else torch.device("cuda")
def fit(net, adam, batches):
    net.to(DEVICE)
    for batch in batches:
        adam.zero_grad()
        loss = net(batch.to(DEVICE))
        loss.backward()
        if HERE:
            xm.optimizer_step(adam, barrier=True)
            seen = loss.item()  # !XLA101
        else:
            adam.step()
            seen = loss.item()
""",
    "XLA405: a group of the masters of the hosts": f"""\
{XM}
import torch.distributed as dist
def fit(net, adam, rows, hosts):
    device = torch_xla.device()
    if hosts > 1 and xm.is_master_ordinal():
        dist.init_process_group("gloo")
    for x in pl.MpDeviceLoader(rows, device):
        adam.zero_grad()
        net(x).backward()
        grads = [p.grad.cpu() for p in net.parameters()]
        if xm.is_master_ordinal():
            for grad in grads:
                dist.all_reduce(grad)
        xm.optimizer_step(adam)
def main(index, rows, hosts):
    fit(make_net(), make_adam(), rows, hosts)
xmp.spawn(main, args=([], 2))
""",
    "XLA405: a group of all": f"""\
{XM}
import torch.distributed as dist
import torch_xla.distributed.xla_backend
def main(index, net, adam, rows):
    device = torch_xla.device()
    dist.init_process_group("xla", init_method="xla://")
    for x in pl.MpDeviceLoader(rows, device):
        adam.zero_grad()
        loss = net(x)
        loss.backward()
        if xm.is_master_ordinal():
            dist.all_reduce(loss)  # !XLA405
        xm.optimizer_step(adam)
xmp.spawn(main, args=(1, 2, []))
""",
    "XLA402: samples that a helper has cut with the core's number": f"""\
{XM}
from parts import cut
class Fitting:
    def loader(self, rows):
        return DataLoader(rows, batch_size=8, drop_last=True)
    def run(self, net, adam):
        device = torch_xla.device()
        number = xr.global_ordinal()
        _, rows = cut("data", number, xr.world_size())
        for x in pl.MpDeviceLoader(self.loader(rows), device):
            adam.zero_grad()
            net(x).backward()
            xm.optimizer_step(adam)
def main(index):
    Fitting().run(make_net(), make_adam())
xmp.spawn(main)
""",
    "XLA402: samples that nothing has cut": f"""\
{XM}
from parts import read
class Fitting:
    def loader(self, rows):
        return DataLoader(rows, batch_size=8, drop_last=True)  # !XLA402
    def run(self, net, adam):
        device = torch_xla.device()
        _, rows = read("data")
        for x in pl.MpDeviceLoader(self.loader(rows), device):
            adam.zero_grad()
            net(x).backward()
            xm.optimizer_step(adam)
def main(index):
    Fitting().run(make_net(), make_adam())
xmp.spawn(main)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nothing_speaks_against_is_told(name):
    assert told(name, PROGRAMS[name]) == marks(PROGRAMS[name])


def test_the_same_without_torch_xla_is_no_matter():
    plain = PROGRAMS["XLA718: pinned by a constant"]
    for module in ("torch_xla.core.xla_model", "torch_xla.distributed.xla_multiprocessing"):
        plain = plain.replace(f"import {module} as", "import helpers as")
    plain = plain.replace("import torch_xla.distributed.parallel_loader as", "import helpers as")
    plain = plain.replace("import torch_xla.runtime as", "import helpers as")
    plain = plain.replace("import torch_xla\n", "").replace("torch_xla.device()", '"cpu"')
    assert found(plain) == []
